"""The Answer page's ratios: label, axis, number and sentence of each row say which side is faster."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import saved
from tests.support.patience import until
from tests.support.world import PROBLEM, submit

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made

AXES: dict[str, dict[str, list[Any]]] = {
    "two": {"threads": [1, 2]},
    "three": {"scheduler": ["fork-join", "serial", "task"]},
    "five": {"token_slice": [2, 4, 8, 16, 32]},
}
NAMES = {"threads": "{} threads", "scheduler": "{}", "token_slice": "token slice {}"}


@pytest.fixture(scope="module")
def compared(world):
    """An experiment of one repetition for each axis: a ratio is that of two medians."""
    sound = {"cores": 2}  # not the world's worker whose trainer crashes
    made = {
        name: submit(world.client, name=name, base=PROBLEM, axes=axes, requires=sound, repetitions=1)
        for name, axes in AXES.items()
    }
    for number in made.values():
        until(lambda: world.client.experiment(number).state == "finished", "the comparison", 600)  # noqa: B023
    return made


def named(axis, value):
    return NAMES[axis].format(value).replace("1 threads", "1 thread")


@pytest.mark.parametrize("which", AXES)
def test_label_axis_number_and_sentence_agree(world, tab, tmp_path, compared, which):
    def asked(path):
        answer = httpx.get(f"{world.home.url}/api/v1/{path}", params={"experiment_id": compared[which]}, timeout=60)
        return answer.raise_for_status().json()

    ((axis, values),) = AXES[which].items()
    sweep, scaling = asked("analysis/sweep"), asked("analysis/scaling")["rows"]
    median_s = {json.dumps(row["variant"][axis]): row["step_s"]["median"] for row in scaling}
    rows = [row for row in sweep["rows"] if row["ratio"] is not None]
    assert len(rows) == len(values) - 1
    page = tab.open(f"experiment?id={compared[which]}")
    title = f"Along {axis.replace('_', ' ')}" if len(rows) > 1 else "2 threads against 1 thread"
    figure = page.locator("figure.plot", has=page.get_by_role("heading", name=title, exact=True))
    svg = saved(page, figure.get_by_role("button", name="SVG").click, tmp_path)
    titles = re.findall("<title[^>]*>([^<]*)<", svg)
    text = saved(page, figure.get_by_role("button", name="CSV").click, tmp_path)
    shown = list(csv.DictReader(io.StringIO(text)))
    table = page.get_by_role("region", name="Comparisons")
    for row, exported in zip(rows, shown, strict=True):
        first, second = named(axis, row["a"]), named(axis, row["b"])
        assert row["ratio"] == pytest.approx(median_s[json.dumps(row["a"])] / median_s[json.dumps(row["b"])])
        assert (exported["a"], exported["b"]) == (str(row["a"]), str(row["b"]))
        assert float(exported["ratio"]) == pytest.approx(row["ratio"], rel=1e-5)
        label = "everything else equal" if len(rows) == 1 else f"{first} / {second}, everything else equal"
        assert label in titles
        assert any(title.startswith(f"{label}: {row['ratio']:.3f}") for title in titles)
        said = "undecided" if len(rows) == 1 else f"{second} against {first}"
        of_both = table.get_by_role("row").filter(has_text=f"{row['ratio']:.3f}").filter(has_text=said)
        expect(of_both).not_to_have_count(0)  # another row may have the same ratio, to three digits
    both = (named(axis, rows[0]["a"]), named(axis, rows[0]["b"])) if len(rows) == 1 else ("first", "second")
    assert f">{both[0]} time / {both[1]} time<" in svg
    expect(figure).to_contain_text(
        "2 threads are faster →" if len(rows) == 1 else "the second is faster →"
    )
    if len(rows) == 1:  # short labels stand at the ends of the axis
        name, first, second = (figure.locator("svg text", has_text=text).bounding_box() for text in (
            "everything else equal", "← 1 thread is faster", "2 threads are faster →",
        ))  # fmt: skip
        assert name["x"] + name["width"] < first["x"]
        assert first["x"] + first["width"] < second["x"]
    expect(figure).to_contain_text(
        "above 1: 2 threads are faster." if len(rows) == 1 else "above 1: the second is faster."
    )
    verdict = sweep["verdict"]
    (row,) = (row for row in rows if (str(row["a"]), str(row["b"])) == (verdict["a"], verdict["b"]))
    first, second = named(axis, row["a"]), named(axis, row["b"])
    assert f"whether {second} or {first} is faster" in verdict["sentence"]
    assert f"{first} time / {second} time {row['ratio']:.3f}" in verdict["sentence"]
    expect(page.locator("main")).to_contain_text(verdict["sentence"])


def test_a_question_across_the_axis_is_drawn_first(world, tab, tmp_path):
    """The sweep runs along the scheduler; the question compares numbers of threads."""
    question = [{"scheduler": "task", "threads": 2}, {"scheduler": "task", "threads": 1}]
    number = submit(
        world.client, name="across", base=PROBLEM, axes={"scheduler": ["fork-join", "task"], "threads": [1, 2]},
        primary=dict(zip("ab", question, strict=True)), requires={"cores": 2}, repetitions=1,
    )  # fmt: skip
    until(lambda: world.client.experiment(number).state == "finished", "the comparison", 600)
    answer = httpx.get(f"{world.home.url}/api/v1/analysis/sweep", params={"experiment_id": number}, timeout=60)
    sweep = answer.raise_for_status().json()
    assert sweep["axis"] == "scheduler"
    assert not any(row["primary"] for row in sweep["rows"])
    page = tab.open(f"experiment?id={number}")
    figure = page.locator("figure.plot", has=page.get_by_role("heading", name="Along scheduler", exact=True))
    first, *others = list(csv.DictReader(io.StringIO(
        saved(page, figure.get_by_role("button", name="CSV").click, tmp_path)
    )))  # fmt: skip
    assert len(others) == len(sweep["rows"]) == 2
    assert float(first["ratio"]) == pytest.approx(sweep["primary"]["ratio"], rel=1e-5)
    svg = saved(page, figure.get_by_role("button", name="SVG").click, tmp_path)
    a, b = (named("threads", sweep["primary"][side]) for side in "ab")
    assert f"{a} / {b}, the question: task: {sweep['primary']['ratio']:.3f}" in svg
    expect(page.get_by_role("region", name="Comparisons").get_by_role("row").nth(1)).to_contain_text(f"{b} against {a}")
    expect(page.locator(".verdict")).to_contain_text(re.compile("The question: .*It is undecided whether"))
    assert page.locator(".verdict").inner_text().count("undecided") == 1


def test_a_question_without_other_comparisons_is_drawn_with_its_own_labels(world, tab, tmp_path):
    """No two of these variants differ in one setting alone."""
    number = submit(
        world.client, name="both at once", base=PROBLEM, zip=[{"scheduler": ["fork-join", "task"], "threads": [1, 2]}],
        primary={"a": {"threads": 1}, "b": {"threads": 2}}, requires={"cores": 2}, repetitions=1,
    )  # fmt: skip
    until(lambda: world.client.experiment(number).state == "finished", "the comparison", 600)
    answer = httpx.get(f"{world.home.url}/api/v1/analysis/sweep", params={"experiment_id": number}, timeout=60)
    sweep = answer.raise_for_status().json()
    assert sweep["rows"] == []
    page = tab.open(f"experiment?id={number}")
    title = "task, 2 threads against fork-join, 1 thread"
    figure = page.locator("figure.plot", has=page.get_by_role("heading", name=title, exact=True))
    expect(figure).to_contain_text("the second is faster →")
    expect(figure).to_contain_text("fork-join, 1 thread time / task, 2 threads time; above 1: the second is faster")
    svg = saved(page, figure.get_by_role("button", name="SVG").click, tmp_path)
    assert f"the question: everything else equal: {sweep['primary']['ratio']:.3f}" in svg
