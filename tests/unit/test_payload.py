import hashlib
import json
import math

import pytest

from gpt2core.spec.config import TrainConfig
from taskloom.server.errors import BadResult, BodyTooComplex
from taskloom.server.queue.attempts import payload

SPEC = TrainConfig(steps=4, warmup=1).to_dict()
THREAD = {"useful_s": 0.2, "barrier_s": 0.1, "starvation_s": 0.0, "idle_s": 0.0}
OP = {"op": "qkv", "phase": "forward", "calls": 12, "time_s": 0.2, "flop": 10**9, "bytes": 10**8}


@pytest.fixture
def make_result(make_result):
    """A complete result, with more entries than other tests need."""
    return lambda *args, **more: {**make_result(*args, **more), "ops": [OP], "threads": [THREAD]}


def check(content, outcome="succeeded", spec=SPEC):
    text = content if isinstance(content, str) else json.dumps(content)
    return payload.check(text, hashlib.sha256(text.encode()).hexdigest(), outcome, spec)


def test_a_good_result_is_kept_as_it_came(make_result):
    result = make_result()
    text = json.dumps({"result": result, "error": None}, indent=3)
    found = check(text)
    assert found.result == result
    assert payload.unpack(found.compressed) == {"result": result, "error": None}
    assert len(found.compressed) < len(text)


def test_figures_leave_out_the_warm_up(make_result):
    found = payload.figures(make_result([9.0, 0.1, 0.2, 0.4], losses=[4, 3, 2, 1], batch=4, seq=64))
    assert found.median_step_s == pytest.approx(0.2)
    assert found.tokens_per_s == pytest.approx(4 * 64 * 3 / 0.7)
    assert found.final_loss == 1


def test_node_time_waits_for_no_longer_than_the_run_was_queued(make_result):
    parts = {"claiming_s": 9.0, "timed_s": 2.0}
    result = {**make_result(), "node_time": parts}
    assert payload.figures(result).node_time == parts
    assert payload.figures(result, 3.0).node_time == {"claiming_s": 3.0, "timed_s": 2.0}
    assert payload.figures({**result, "node_time": {"timed_s": 2.0}}, 0.0).node_time == {"timed_s": 2.0}
    for older in ({**result, "node_time": {}}, make_result()):
        assert payload.figures(older).node_time is None


@pytest.mark.parametrize("parts", [{"timed_s": -1.0}, {"timed_s": "long"}, {f"{i}_s": 1.0 for i in range(51)}])
def test_node_time_is_few_lengths_of_time(make_result, parts):
    with pytest.raises(BadResult, match="node_time"):
        check({"result": {**make_result(), "node_time": parts}, "error": None})


def test_a_damaged_text_is_refused():
    with pytest.raises(BadResult, match="damaged"):
        payload.check("{}", "0" * 64, "failed", SPEC)


@pytest.mark.parametrize("content", ["[]", "nonsense", '{"result": NaN}', '{"result": null, "x": 1}'])
def test_what_is_no_payload_is_refused(content):
    with pytest.raises(BadResult):
        check(content)


def test_outcomes_go_with_what_they_need(make_result):
    result, error = make_result(), {"slug": "boom"}
    assert check({"result": None, "error": error}, "failed").error == error
    assert check({"result": result, "error": error}, "failed").result == result
    assert check({"result": None, "error": None}, "cancelled")
    for content, outcome in [
        ({"result": None, "error": None}, "succeeded"),
        ({"result": result, "error": error}, "succeeded"),
        ({"result": None, "error": None}, "failed"),
        ({"result": None, "error": "boom"}, "failed"),
    ]:
        with pytest.raises(BadResult):
            check(content, outcome)


@pytest.mark.parametrize(
    "breakage",
    [
        {"schema": "other/1"},
        {"config": {}},
        {"config": None},
        {"losses": [1.0]},
        {"losses": None},
        {"step_s": ["a"] * 4},
        {"step_s": [True] * 4},
        {"phase_s": {"forward": [1, 1, 1, 1]}},
        {"phase_s": 5},
        {"environment": None},
        {"weights_sha256": None},
        {"losses": []},
        {"losses": [1.0, 2.0, 3.0, 10**400]},
        {"losses": [1.0, 2.0, 3.0, 1e200]},
        {"losses": [True] * 4},
        {"step_s": [0.0] * 4},
        {"step_s": [-1.0] * 4},
        {"phase_busy_s": {}},
        {"ops": None},
        {"ops": []},
        {"ops": [{**OP, "flop": -1}]},
        {"ops": [{**OP, "time_s": 5e-324}]},
        {"ops": [{**OP, "phase": "sleep"}]},
        {"ops": [{"op": "qkv"}]},
        {"threads": None},
        {"threads": []},
        {"threads": [THREAD, THREAD]},
        {"threads": [{"useful_s": "much"}]},
        {"threads": [{**THREAD, "idle_s": 0.4}]},  # more than the elapsed time
        {"memory_bytes": {"weights": "many"}},
        {"memory_bytes": None},
        {"graph": {"t1_s": "long"}},
        {"graph": {"t1_s": -1.0}},
        {"flagged": [[]]},
        {"validity": {"foreign": {"cores": 5}}},
        {"validity": 5},
        {"counters": {"threads": [5]}},
        {"environment": {"peaks": 5}},
        {"environment": {"peaks": {"threads": {"x": {}}}}},
        {"environment": {"peaks": {"threads": {"1": {"gflop_per_s": "fast"}}}}},
        {"resident_bytes": 5},
        {"anything": 10**400},
        {"anything": "\ud800"},
    ],
)
def test_a_result_that_lacks_something_is_refused(make_result, breakage):
    with pytest.raises(BadResult):
        check({"result": {**make_result(), **breakage}, "error": None})


@pytest.mark.parametrize("missing", ["losses", "step_s", "phase_s", "phase_busy_s", "ops", "threads", "memory_bytes"])
def test_every_block_that_analyses_read_is_asked_for(make_result, missing):
    result = make_result()
    del result[missing]
    with pytest.raises(BadResult, match=missing):
        check({"result": result, "error": None})


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"batch": 8}, "batch"), ({"lr": 0.5}, "lr"), ({"threads": 2}, "threads"), ({"warmup": 0}, "warmup"),
     ({"model": {"layers": 1, "heads": 1, "channels": 64, "vocab": 256, "context": 128}}, "model"),
     ({"scheduler": "fork-join"}, "scheduler")],
)  # fmt: skip
def test_a_result_of_another_configuration_is_refused(make_result, settings, field):
    with pytest.raises(BadResult, match=field):
        check({"result": make_result(**settings), "error": None})


@pytest.mark.parametrize("change", [{"batch": None}, {"batch": 10**400}, {"batch": -1}, {"model": "tiny"}, {"lr": "x"}])
def test_a_configuration_that_is_none_is_refused(make_result, change):
    result = make_result()
    with pytest.raises(BadResult):
        check({"result": {**result, "config": {**result["config"], **change}}, "error": None})


def test_what_the_run_left_open_is_the_trainers_to_choose(make_result):
    spec = TrainConfig(steps=4, cores=(1, 0)).to_dict()
    result = make_result(cores=[0, 1], fusion="rows", warmup=2)
    assert check({"result": result, "error": None}, spec=spec).result == result


def test_what_a_newer_trainer_adds_is_kept_and_what_an_older_one_lacks_is_its_default(make_result):
    result = make_result()
    result["config"]["new_setting"] = result["news"] = {"a": [1, 2.5, "x", None]}
    del result["config"]["grad_accum"]
    assert check({"result": result, "error": None}).result == result
    with pytest.raises(BadResult, match="grad_accum"):
        check({"result": result, "error": None}, spec={**SPEC, "grad_accum": 2})


@pytest.mark.parametrize("content", ["[" * 100_000, '{"result": ' + "[" * 50 + "]" * 50 + "}", "[" + "[]," * 5_000_000])
def test_a_payload_that_nests_deep_or_holds_very_much_is_refused_before_it_is_built(content):
    with pytest.raises(BodyTooComplex):
        check(content)


def test_numbers_are_finite(make_result):
    with pytest.raises(BadResult):
        check({"result": make_result(losses=[1, 2, 3, math.inf]), "error": None})
    text = json.dumps({"result": make_result(losses=[1, 2, 3, 1234.5]), "error": None}).replace("1234.5", "1e999")
    with pytest.raises(BadResult):
        check(text)


def test_results_of_an_unknown_schema_are_refused(make_result):
    with pytest.raises(BadResult, match="schema"):
        check({"result": {**make_result(), "schema": "taskloom.result/99"}, "error": None}, "succeeded")
