"""Memory of training beside inference along an axis."""

import pytest

from taskloom.analysis.growth import MIB, Peak, growth

SHAPE, LIMITS = {"batch": 4, "seq": 8}, {"batch": (1, 1000), "seq": (1, 20)}


def sizes_of(mode, shape):
    of_mode = {"train": 3, "infer": 1}[mode]
    return {
        "weights": 60 * MIB, "gradients": 60 * MIB * (of_mode - 1),
        "activations": of_mode * shape["batch"] * shape["seq"] * MIB,
    }  # fmt: skip


def test_lines_are_the_formula_and_points_the_runs_of_the_same_other_sizes():
    peaks = [
        Peak("train", SHAPE, 300 * MIB), Peak("train", SHAPE, 310 * MIB), Peak("infer", SHAPE, 124 * MIB),
        Peak("infer", {"batch": 7, "seq": 8}, 150 * MIB), Peak("infer", {"batch": 7, "seq": 9}, 999 * MIB),
    ]  # fmt: skip
    by_batch, by_seq = growth(SHAPE, LIMITS, "last", sizes_of, peaks)
    assert (by_batch.axis, by_batch.size, by_batch.fixed) == ("batch", 4, {"seq": 8})
    assert [point.size for point in by_batch.points] == [1, 2, 4, 7, 8, 16, 32, 64]
    here, beside = by_batch.points[2], by_batch.points[3]
    assert (here.train_bytes, here.infer_bytes, here.weights_bytes) == (276 * MIB, 92 * MIB, 60 * MIB)
    assert (here.train_peak_bytes, here.infer_peak_bytes) == (310 * MIB, 124 * MIB)
    assert (beside.train_peak_bytes, beside.infer_peak_bytes) == (None, 150 * MIB)
    assert by_batch.ratio == pytest.approx(92 / 276)
    assert [point.size for point in by_seq.points] == [1, 2, 4, 8, 16]  # 32 is more than the context


def test_the_sentence_states_the_ratio_and_where_the_weights_dominate():
    peaks = [Peak("train", SHAPE, 310 * MIB), Peak("infer", SHAPE, 124 * MIB)]
    by_batch, by_seq = growth(SHAPE, LIMITS, "last", sizes_of, peaks)
    assert (by_batch.weights_until, by_seq.weights_until) == (7, 15)  # 7 * 8, 4 * 15 of 60
    assert by_batch.sentence == (
        "At batch 4 and seq 8, the arenas of inference (logits last) have 92.0 MiB, 33% of training's 276.0 MiB. "
        "Peaks of the processes: 124 MiB, 40% of 310 MiB. "
        "The weights are at least half of inference's arenas up to batch 7."
    )
    (long,) = growth({"batch": 1, "seq": 1}, {"seq": (1, 20)}, "all", sizes_of)
    assert long.weights_until == 16
    assert long.sentence.endswith("at every seq up to 16.")
    assert "Peaks" not in long.sentence
    (wide,) = growth({"batch": 70, "seq": 1}, {"seq": (1, 20)}, "all", sizes_of)
    assert wide.weights_until is None
    assert wide.sentence.endswith("at no seq from 1 on.")
