"""Ops of a step in two trees: what is summed, compared and shown."""

from __future__ import annotations

import pytest

from bench import ops
from bench.combine import by_occasion, combined
from bench.record import ROOT
from bench.revisions import Case
from gpt2core.gemm import libraries

HOURS = ("2026-11-24T18:00:00+00:00", "2026-11-24T20:00:00+00:00")
COMMITS = {"ours": "a1", "before": "b2"}
PEAKS = {"gflop_per_s": 90.0, "registers_gflop_per_s": 100.0, "triad_gb_per_s": 10.0}


def result(gelu_s, more=(), losses=(1.0,), blas="own", peaks=None):
    """Two timed steps of half a second on two threads."""
    found = [{"op": "gelu", "phase": "forward", "time_s": gelu_s, "blas": None, "flop": 18_000_000, "bytes": 8_000_000},
             {"op": "fc", "phase": "forward", "time_s": 1.0, "blas": blas, "flop": 10**9, "bytes": 10**9}]  # fmt: skip
    return {"config": {"warmup": 1, "precision": "fp32", "model": "tiny"}, "step_s": [9.0, 0.4, 0.6],
            "threads": [{}, {}], "environment": {"peaks": peaks}, "ops": [*found, *more],
            "losses": list(losses)}  # fmt: skip


def rounds(ours, before):
    of = {"ours": {**ops.figures(ours), "others": 0.0}, "before": {**ops.figures(before), "others": 0.1}}
    return [{"round": i, "of": of} for i in range(6)]


def record(at, ours, before):
    made = rounds(ours, before)
    machine = {"cpu_model": "CPU", "cores": 2, "kernel": "6", "load_average": [0.0]}
    command = ["--model", "tiny", "--grad-clip", "1"]
    return {"schema": "taskloom.bench.ops/1", "at": at, "machine": machine, "command": command, "revisions": COMMITS,
            "case": "tiny", "rounds": made, "rows": ops.rows(made)}  # fmt: skip


def test_an_op_has_its_time_in_a_step_and_the_step_that_of_all_threads():
    found = ops.figures(result(0.5))["op_s"]
    assert found == {"gelu, forward": 0.25, "fc, forward": 0.5, ops.STEP: pytest.approx(1.0)}


def test_an_op_has_the_longer_of_the_times_of_its_arithmetic_and_of_its_bytes():
    """Of two threads in one of two steps. A head of the tiny model has 16 channels, so attention's backward pass has an
    exponential for each 160 FLOP."""
    more = [{"op": "attention", "phase": "backward", "time_s": 0.1, "blas": "own", "flop": 16 * 10**6, "bytes": 0}]
    found = result(0.5, more, peaks={"threads": {"2": PEAKS}})
    roof_s = ops.figures(found)["roof_s"]
    assert roof_s["gelu, forward"] == pytest.approx(8e6 / 10e9)  # a million elements: 50 million FLOP take less
    assert roof_s["fc, forward"] == pytest.approx(0.1)
    assert roof_s["attention, backward"] == pytest.approx((16e6 + 32e5) / 100e9)
    made = rounds(found, result(0.5))
    rows = {row["op"]: row for row in ops.rows(made)}
    assert rows["fc, forward"]["of_roof"] == pytest.approx(0.2)
    assert (rows[ops.STEP]["of_roof"], ops.figures(result(0.5))["roof_s"]) == (None, {})


def test_an_op_of_one_tree_only_has_no_ratio():
    more = [{"op": "rounding", "phase": "forward", "time_s": 0.1, "blas": None, "flop": 0, "bytes": 8}]
    rows = {row["op"]: row for row in ops.rows(rounds(result(0.6, more), result(0.5)))}
    assert list(rows) == [ops.STEP, "fc, forward", "gelu, forward", "rounding, forward"]
    assert rows["gelu, forward"]["ratio"] == pytest.approx(1.2)
    assert rows["gelu, forward"]["ratio_interval"] == pytest.approx([1.2, 1.2])
    assert (rows["rounding, forward"]["ratio"], rows["rounding, forward"]["before_s"]) == (None, None)


def test_a_table_says_whether_losses_agree():
    same, other = result(0.5), result(0.5, losses=(1.1,))
    assert "losses are the same." in ops.table(record(HOURS[0], same, same))
    text = ops.table(record(HOURS[0], other, same))
    assert "losses are not the same." in text
    assert "during 6 of 12 processes." in text
    assert "| gelu, forward | 250 | 250 | - | 1.000 | 1.000 to 1.000 | 6 |" in text


def test_occasions_are_combined_by_op():
    made = [record(HOURS[0], result(0.6), result(0.5)), record(HOURS[1], result(0.55), result(0.5))]
    rows = {row["case"]: row for row in combined(made)}
    gelu = rows["tiny, gelu, forward, a1 against b2"]
    assert (gelu["variant"], gelu["rounds"]) == ("ours", [6, 6])
    assert gelu["ratio"] == pytest.approx((1.2 * 1.1) ** 0.5)
    figures = {row["figure"]: row["values"] for row in by_occasion(made)}
    assert figures["tiny: gelu, forward of a1"] == [pytest.approx(300), pytest.approx(275)]


def test_products_of_different_libraries_are_refused():
    found = {"ours": ops.figures(result(0.5)), "before": ops.figures(result(0.5, blas="mkl"))}
    with pytest.raises(SystemExit, match="different libraries for products: fc, forward"):
        ops.refuse_other_libraries(found)


def test_a_result_of_the_trainer_has_what_is_compared():
    settings = {"model": "tiny", "batch": 1, "seq": 16, "steps": 3, "warmup": 1, "threads": 1, "data": "synthetic"}
    found = ops.figures(Case("tiny", settings, "step", 0.0).run(ROOT))
    library = found["blas"]["fc, forward"].partition("/")[0]  # the node's choice, and perhaps columns per call
    assert library in {each.name for each in libraries.available()}
    assert 0 < sum(seconds for name, seconds in found["op_s"].items() if name != ops.STEP) < found["op_s"][ops.STEP]
    assert len(found["losses"]) == 3


@pytest.mark.parametrize(("option", "value", "message"), [
    ("--rounds", "0", "rounds = 0"), ("--shape", "x", "shape = 'x'"), ("--scheduler", "tasks", "scheduler"),
    ("--precision", "fp8", "precision"), ("--warmup", "6", "warmup"),
])  # fmt: skip
def test_bad_options_are_named(option, value, message, capsys):
    with pytest.raises(SystemExit):
        ops.main(["--before", "/nowhere", option, value])
    assert message in capsys.readouterr().err.splitlines()[-1]
