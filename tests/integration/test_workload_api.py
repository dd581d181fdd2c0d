"""A workload through the API: by the template's name, planned, run, extended, cancelled, answered, as a page."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner

from gpt2core.spec.latency import latency
from taskloom import Client
from taskloom.cli import main
from taskloom.contract.experiments import ExperimentRequest
from taskloom.server.read.analysis import analyses

TERMS = {"networks": ["tiny", "lstm-tiny"], "threads": [2], "batches": [2]}
WANTED = {"template": "workload", "workload": TERMS, "base": {"steps": 4, "warmup": 1, "seq": 32}, "repetitions": 1}
RUNS = 14  # of each network: two schedulers in two modes, two larger batches, real data


def run(node, make_result, runs):
    for _ in range(runs):
        lease = node.claim()
        spec = {name: value for name, value in lease["spec"].items() if value is not None}
        infer = spec.get("mode") == "infer"
        arenas = {"weights": 1000, "gradients": 0 if infer else 1000, "activations": 100 * spec["batch"]}
        spec.setdefault("token_slice", min(spec["seq"], 64))
        result = make_result([0.9, *[0.1 if infer else 0.4] * 3], **spec)
        if infer:
            times = {name: {phase: result[name][phase] for phase in ("data", "forward")}
                     for name in ("phase_s", "phase_busy_s")}  # fmt: skip
            result |= {**times, "losses": [], "weights_sha256": None, "outputs_sha256": "o",
                       "outputs_sketch": [1.0] * 64, "latency": latency([0.1] * 3)}  # fmt: skip
        node.upload(lease, {**result, "memory_bytes": {**arenas, "peak_rss": 5000}})


def test_from_the_name_of_the_template_to_the_answer(api, make_result):
    plan = api.post("/experiments?dry_run=true", WANTED)
    assert (plan["runs"], plan["variants"], plan["repetitions"]) == (RUNS, RUNS, 1)
    assert api.get("/experiments")["items"] == []
    made = api.submit(**WANTED)
    assert (made["runs"], made["name"]) == (RUNS, "workload of tiny, lstm-tiny")
    assert made["request"]["template"] == "workload"
    assert api.submit(**made["request"])["request"] == made["request"]  # what is stored can be submitted again
    node = api.worker()
    run(node, make_result, RUNS)
    found = api.get(f"/experiments/{made['id']}/workload")
    networks = {of["model"]: of for of in found["networks"]}  # in the random order of the first block
    assert {(of["network"], name, len(of["rows"])) for name, of in networks.items()} == {
        ("gpt2", "tiny", 7), ("lstm", "lstm-tiny", 7),
    }  # fmt: skip
    tiny = networks["tiny"]
    assert {(each["axis"], each["logits"]) for each in tiny["growth"]} == {("batch", "all"), ("seq", "all")}
    by_batch = next(each for each in tiny["growth"] if each["axis"] == "batch")
    measured = {point["size"] for point in by_batch["points"] if point["train_peak_bytes"]}
    assert measured == {4, 8}
    assert [each["time"] for each in tiny["modes"]] == [pytest.approx(0.25)] * 3  # two schedulers, a larger batch
    assert [(each["real"], each["generated"]) for each in tiny["data"]] == [("stdlib", "synthetic")]
    assert all(each["verdict"] == "undecided" for each in tiny["schedulers"])
    counters = tiny["rows"][0]["counters"]
    assert counters["instructions"] is None
    assert set(counters["missing"]) == {"instructions", "cycles", "cache_misses", "miss_gb_per_s"}
    document = api.get("/analysis/report", experiment_id=made["id"])
    assert document["workload"] == found
    assert "<h2>lstm-tiny (lstm)</h2>" in api.http.get(f"/reports/{made['id']}").text
    assert api.get("/experiments/999/workload", 404)["type"] == "/problems/not-found"


def test_no_memory_is_planned_for_each_variant(api, make_result, monkeypatch):
    """Plans of a large network take long: an experiment of many variants would not be answered within the deadline."""
    made = api.submit(**WANTED)
    run(api.worker(), make_result, RUNS)
    found = api.get(f"/experiments/{made['id']}/workload")

    def planned(_):
        raise AssertionError

    monkeypatch.setattr(analyses, "arenas_bytes", planned)
    assert json.loads(json.dumps(dataclasses.asdict(analyses.workload(api.context.database, made["id"])))) == found


def test_it_is_extended_and_cancelled_like_any_experiment(api, make_result):
    terms = {**TERMS, "networks": ["tiny"], "modes": ["train"], "batches": [], "tokens": None}
    made = api.submit(**{**WANTED, "workload": terms})
    assert made["runs"] == 2
    node = api.worker()
    run(node, make_result, 2)
    longer = api.post(f"/experiments/{made['id']}/extend", {"repetitions": 1})
    assert (longer["runs"], longer["extended"], longer["state"]) == (4, 1, "active")
    ended = api.post(f"/experiments/{made['id']}/cancel")
    assert (ended["state"], ended["by_state"]) == ("cancelled", {"succeeded": 2, "cancelled": 2})
    assert len(api.get(f"/experiments/{made['id']}/workload")["networks"]) == 1


def test_any_experiment_has_a_workload_and_one_without_results_is_empty(api, make_result):
    made = api.submit(base={"steps": 4, "warmup": 1}, axes={"scheduler": ["fork-join", "task"]}, repetitions=1)
    assert api.get(f"/experiments/{made['id']}/workload")["networks"] == []
    run(api.worker(), make_result, 2)
    (network,) = api.get(f"/experiments/{made['id']}/workload")["networks"]
    assert [row["variant"]["scheduler"] for row in network["rows"]] == ["fork-join", "task"]
    assert "workload" not in api.http.get(f"/reports/{made['id']}").text.partition("Design")[0]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"template": "workloads"}, "/template"),
        ({"template": None}, "/workload"),
        ({"workload": {"networks": ["tiny", "nothing"]}}, "/workload/networks/1"),
        ({"workload": {**TERMS, "threads": [64]}}, "/axes/threads/0"),
        ({"base": {"steps": 0}}, "/base/steps"),
    ],
)
def test_what_cannot_be_run_is_refused_at_its_field(api, change, pointer):
    api.worker()
    for path in ("/experiments", "/experiments?dry_run=true"):
        refused = api.post(path, {**WANTED, **change}, 422)
        assert pointer in [error["pointer"] for error in refused["errors"]]


def test_the_command_line_plans_submits_and_shows_it(api, make_result, tmp_path):
    url = str(api.http.base_url)
    asked = ["workload", "--model", "tiny", "--threads", "2", "--steps", "4", "--warmup", "1", "--batches", "",
             "--repetitions", "1", "--server", url]  # fmt: skip
    planned = CliRunner().invoke(main, [*asked, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert "5 runs" in planned.output
    queued = CliRunner().invoke(main, asked, env={"GITHUB_SHA": "1a2b3c4d", "GITHUB_REF_NAME": "next"})
    assert (queued.exit_code, "workload of tiny; see: taskloom experiments workload" in queued.output) == (0, True)
    run(api.worker(), make_result, 5)
    newest = api.get("/experiments")["items"][0]
    made = newest["id"]
    assert (newest["commit"], newest["branch"]) == ("1a2b3c4d", "next")
    shown = CliRunner().invoke(main, ["experiments", "workload", str(made), "--server", url])
    assert shown.exit_code == 0, shown.output
    for text in ("tiny (gpt2)", "arenas in MiB by batch", "With real data (stdlib)", "not counted (instructions"):
        assert text in shown.output
    page = tmp_path / "page.html"
    written = CliRunner().invoke(main, ["report", str(made), "-o", str(page), "--server", url])
    assert written.exit_code == 0, written.output
    assert "Time by op type" in page.read_text()
    with Client(url) as client:
        assert client.workload(made).networks[0].model == "tiny"
    refused = CliRunner().invoke(main, [*asked, "-o", str(page)])
    assert (refused.exit_code, "--output needs --wait" in refused.output) == (2, True)


def test_the_request_of_the_command_is_that_of_the_api():
    given = {**WANTED, "base": {"steps": 4}}
    assert ExperimentRequest.model_validate(given).axes == {"scheduler": ["fork-join", "task"], "threads": [2]}
