"""Pages say what to do next where something is empty, or nothing runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from gpt2core.spec.models import PRESETS
from tests.support.patience import until

pytestmark = pytest.mark.ui

SPEC = {"token_slice": 64, "batch_slice": 1, "steps": 3, "warmup": 1}


def finish(api, make_result, axes):
    """The number of an experiment whose runs have succeeded and whose verdict is known."""
    made = api.submit(base=SPEC, axes=axes, name="who is faster?")
    node = api.worker()
    for i in range(made["runs"]):
        node.upload(node.claim(), make_result([9.0, 0.5 + 0.1 * i, 0.5 + 0.1 * i]))
    until(lambda: api.get(f"/experiments/{made['id']}")["verdict"], "the verdict")
    return made["id"]


def test_an_idle_server_shows_the_next_command_and_the_verdicts_of_each_week(api, make_result, new_tab):
    finish(api, make_result, {"scheduler": ["fork-join", "task"]})
    until(lambda: api.get("/overview")["verdicts"], "the overview to know the verdict")
    page = new_tab(api.url).open("")
    under_way = page.locator("section.panel", has=page.get_by_role("heading", name="Under way"))
    expect(under_way.locator("pre")).to_contain_text("taskloom submit")
    table = page.get_by_role("region", name="Verdicts by week", exact=True)
    (week,) = api.get("/overview")["verdicts"]
    assert week["by_verdict"] == {"undecided": 1}
    words = [text.strip() for text in table.locator("th").all_inner_texts()]
    assert words == ["Week of", "undecided"]  # the other verdicts did not occur
    expect(table.locator("td")).to_have_text(
        [week["began_at"][:10], *(str(week["by_verdict"].get(word, 0)) for word in words[1:])]
    )


def test_an_empty_comparison_offers_the_variants_that_were_compared_last(api, make_result, new_tab):
    own = {**PRESETS["tiny"].to_dict(), "layers": 1, "name": "one layer"}
    made = finish(
        api, make_result, {"scheduler": ["fork-join", "task"], "fusion": [None, "none"], "model": ["tiny", own]}
    )
    page = new_tab(api.url).open("compare")
    offers = page.locator("main li a")
    expect(offers).to_have_count(2)  # those of a model of sizes have no address, in which commas separate settings
    for offer in offers.all():
        a, b = offer.inner_text().split(" against ")
        assert a.replace("task", "fork-join") == b.replace("task", "fork-join")
        assert a != b
    expect(page.get_by_role("link", name="who is faster?")).to_have_attribute("href", f"experiment?id={made}")
    offers.filter(has_text="fusion default").click()
    expect(page.locator(".verdict")).to_contain_text("It is undecided whether")
    expect(page.locator("main")).to_contain_text("Nothing else differs")


def test_an_empty_field_shows_its_default_which_is_not_sent(api, new_tab):
    page = new_tab(api.url).open("new")
    sync = page.get_by_role("group", name="sync", exact=True)
    expect(sync.get_by_label("step")).not_to_be_checked()
    expect(sync.locator("label")).to_have_text(["phase", "step (default)", "none"])
    page.get_by_text("More settings").click()
    for name, said in (("seed", "default: 1337"), ("eps", "default: 1e-8"), ("lr", "default of gpt2: 0.0001"),
                       ("nesterov", "default: false"), ("op_threads", "default")):  # fmt: skip
        expect(page.locator(f"#set-{name}")).to_have_attribute("placeholder", said)
    expect(page.get_by_role("group", name="optimizer", exact=True)).to_contain_text("adamw (default of gpt2)")
    batch = page.locator("#set-batch")
    sent = {"model": "tiny", "seq": 64, "steps": 20}
    with page.expect_request(lambda request: request.method == "POST" and request.post_data_json["base"] == sent):
        batch.fill("")
    expect(batch).to_have_attribute("placeholder", "default of gpt2: 4")


def enter(command, api, folder):
    """Enter a command line that a page shows in a shell."""
    taskloom = f'taskloom() {{ "{sys.executable}" -P -m taskloom.cli "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", taskloom + command], cwd=folder, env={**os.environ, "TASKLOOM_SERVER": api.url},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "base",
    [
        {"model": "tiny", "optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        {"model": {"network": "lstm", "layers": 1, "hidden": 24, "embedding": 16}, "seq": 8, "carry_state": False},
    ],
    ids=["a flag", "a model without a name of its own"],
)
def test_the_command_line_of_a_run_asks_for_the_same_run(api, new_tab, tmp_path, base):
    api.submit(base={**base, "steps": 2, "warmup": 1}, axes={"scheduler": ["task"]})
    enter(new_tab(api.url).open("run?id=1&view=settings").locator("pre.command").inner_text(), api, tmp_path)
    assert api.get("/runs/2")["spec"] == api.get("/runs/1")["spec"]


def test_the_command_line_of_an_experiment_asks_for_the_same_experiment(api, new_tab, tmp_path):
    """Also with an axis of a flag, of which the command line cannot be given a value."""
    api.submit(base={"model": "tiny", "optimizer": "sgd", "momentum": 0.9, "steps": 2}, axes={"nesterov": [True]})
    page = new_tab(api.url).open("experiment?id=1&view=design")
    enter(page.locator("pre.command").first.inner_text(), api, tmp_path)
    assert api.get("/experiments/2")["request"] == api.get("/experiments/1")["request"]
