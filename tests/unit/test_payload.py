import hashlib
import json
import math

import pytest

from taskloom.server.errors import BadResult
from taskloom.server.queue.attempts import payload


def check(content, outcome="succeeded"):
    text = content if isinstance(content, str) else json.dumps(content)
    return payload.check(text, hashlib.sha256(text.encode()).hexdigest(), outcome)


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


def test_a_damaged_text_is_refused():
    with pytest.raises(BadResult, match="damaged"):
        payload.check("{}", "0" * 64, "failed")


@pytest.mark.parametrize("content", ["[]", "nonsense", '{"result": NaN}', "[" * 100_000, '{"result": null, "x": 1}'])
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
    ],
)
def test_a_result_that_lacks_something_is_refused(make_result, breakage):
    with pytest.raises(BadResult):
        check({"result": {**make_result(), **breakage}, "error": None})


def test_numbers_are_finite(make_result):
    with pytest.raises(BadResult):
        check({"result": make_result(losses=[1, 2, 3, math.inf]), "error": None})
    text = json.dumps({"result": make_result(losses=[1, 2, 3, 1234.5]), "error": None}).replace("1234.5", "1e999")
    with pytest.raises(BadResult):
        check(text)


def test_results_of_an_older_trainer_are_taken_and_unknown_ones_are_not(make_result):
    assert check({"result": {**make_result(), "schema": "taskloom.result/1"}, "error": None}, "succeeded").result
    with pytest.raises(BadResult, match="schema"):
        check({"result": {**make_result(), "schema": "taskloom.result/99"}, "error": None}, "succeeded")
