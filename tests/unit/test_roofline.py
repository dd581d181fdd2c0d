import dataclasses
from typing import Any

import pytest

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import LOGITS
from gpt2core.spec.models import model_from
from taskloom.analysis.roofline import Peaks, memory_bound, model_flop, peaks_of, roofline

PEAKS = Peaks(2, 400.0, 20.0)  # the ridge is at 20 flop a byte


def op(name, phase, time_s, flop, size):
    return {"op": name, "phase": phase, "calls": 1, "time_s": time_s, "flop": flop, "bytes": size}


def test_a_roof_worked_by_hand():
    # 4 s of two threads are 2 s elapsed: 400 Gflop in them are 200 GFLOP/s, 40 GB 20 GB/s.
    (found,) = roofline([op("fc", "forward", 4.0, 400e9, 40e9)], PEAKS)
    assert found.intensity == pytest.approx(10)
    assert found.achieved_gflop_per_s == pytest.approx(200)
    assert found.achieved_gb_per_s == pytest.approx(20)
    assert found.attainable_gflop_per_s == pytest.approx(200)  # 10 x 20, below the peak
    assert found.share == pytest.approx(1)
    assert found.bound == "memory"


def test_above_the_ridge_the_peak_is_the_limit():
    (found,) = roofline([op("fc", "forward", 4.0, 400e9, 4e9)], PEAKS)
    assert (found.attainable_gflop_per_s, found.bound) == (400, "compute")
    assert found.share == pytest.approx(0.5)


def test_an_op_without_flop_is_held_against_the_bandwidth():
    (found,) = roofline([op("tokens", "data", 2.0, 0, 10e9)], PEAKS)
    assert (found.intensity, found.attainable_gflop_per_s, found.bound) == (None, None, "memory")
    assert found.share == pytest.approx(0.5)


def test_shares_of_registers_stand_beside_those_of_the_product():
    """At 408 GFLOP/s an op is above the product's 400 and at 85 % of the registers' 480."""
    peaks = Peaks(2, 400.0, 20.0, 480.0)
    ops = [op("fc", "forward", 4.0, 816e9, 4e9), op("tokens", "data", 2.0, 0, 10e9)]
    product, tokens = roofline(ops, peaks)
    assert (product.share, product.registers_share) == (pytest.approx(1.02), pytest.approx(0.85))
    assert tokens.registers_share is None
    assert roofline(ops, PEAKS)[0].registers_share is None


def test_costliest_first_and_what_took_no_time_is_left_out():
    found = roofline([op("a", "forward", 1.0, 1, 1), op("b", "forward", 3.0, 1, 1), op("c", "loss", 0.0, 0, 0)], PEAKS)
    assert [(roof.op, roof.time_share) for roof in found] == [("b", 0.75), ("a", 0.25)]


@pytest.mark.parametrize(
    ("low_s", "high_s", "scalability", "answer"),
    [(9, 1, 0.6, "yes"), (1, 9, 0.97, "no"), (9, 1, 0.97, "partly"), (1, 9, 0.6, "partly"), (9, 1, None, "yes"),
     (1, 9, None, "no")],
)  # fmt: skip
def test_memory_bound_takes_both_tests(low_s, high_s, scalability, answer):
    roofs = roofline([op("low", "update", low_s, 1e9, 1e9), op("high", "update", high_s, 1e12, 1e9)], PEAKS)
    (found,) = memory_bound(roofs, {} if scalability is None else {"update": scalability}, PEAKS)
    assert found.answer == answer
    assert found.memory_time_share == pytest.approx(low_s / 10)


def test_a_phases_rates_are_its_work_over_its_time():
    # 1.001e12 flop and 2e9 bytes in 10 s of two threads, 5 s elapsed.
    roofs = roofline([op("low", "update", 9, 1e9, 1e9), op("high", "update", 1, 1e12, 1e9)], PEAKS)
    (found,) = memory_bound(roofs, {}, PEAKS)
    assert found.achieved_gflop_per_s == pytest.approx(200.2)
    assert found.achieved_gb_per_s == pytest.approx(0.4)
    assert found.bandwidth_share == pytest.approx(0.02)
    assert found.intensity == pytest.approx(500.5)


def test_model_flop_of_gpt2_by_hand():
    """12 layers of 12 x 768^2 and 50304 x 768: 123.57 M parameters in products; 256 tokens, T 64."""
    by_hand = 6 * (84_934_656 + 38_633_472) * 256 + 6 * 12 * 768 * 64 * 256
    assert model_flop(TrainConfig(model=model_from("gpt2-124m"), batch=4, seq=64).to_dict()) == by_hand


def test_model_flop_of_a_step_counts_all_micro_batches():
    one = TrainConfig(model=model_from("tiny"), batch=2, seq=16).to_dict()
    assert model_flop({**one, "grad_accum": 3}) == 3 * model_flop(one)
    assert model_flop({name: value for name, value in one.items() if name != "grad_accum"}) == model_flop(one)


def test_model_flop_of_inference_is_that_of_the_forward_pass():
    """A third of training's; with the last logits alone, the head's product has a row for each sequence."""
    train = TrainConfig(model=model_from("gpt2-124m"), batch=4, seq=64)
    infer = {logits: dataclasses.replace(train, mode="infer", logits=logits).to_dict() for logits in LOGITS}
    assert model_flop(infer["all"]) == model_flop(infer["none-kept"]) == model_flop(train.to_dict()) / 3
    assert model_flop(infer["all"]) - model_flop(infer["last"]) == 2 * 50304 * 768 * (4 * 64 - 4)
    image = TrainConfig.from_dict({"model": "resnet14-cifar", "mode": "infer", "batch": 3, "logits": "last"}).to_dict()
    convolutions = 2 * (27 * 16 * 1024 + 4 * 144 * 16 * 1024 + (144 * 32 + 3 * 288 * 32 + 16 * 32) * 256
                        + (288 * 64 + 3 * 576 * 64 + 32 * 64) * 64)  # fmt: skip
    assert model_flop(image) == 3 * (convolutions + 2 * 10 * 64)
    lstm = {"network": "lstm", "embedding": 6, "hidden": 5, "layers": 2, "vocab": 7}
    cell = TrainConfig.from_dict({"model": lstm, "mode": "infer", "batch": 3, "seq": 4, "logits": "last"}).to_dict()
    assert model_flop(cell) == 12 * 2 * 4 * 5 * (6 + 5 + 5 + 5) + 3 * 2 * 7 * 5


def test_peaks_are_those_of_equally_many_threads():
    environment: dict[str, Any] = {"peaks": {"threads": {"1": {"gflop_per_s": 200.0, "triad_gb_per_s": 13.0}}}}
    assert peaks_of(environment, 1) == Peaks(1, 200.0, 13.0)
    assert peaks_of(environment, 2) is None
    assert peaks_of(environment, 1, "bf16") is None
    environment["peaks"]["threads"]["1"]["bf16_gflop_per_s"] = 380.0
    assert peaks_of(environment, 1, "bf16") == Peaks(1, 380.0, 13.0)
    environment["peaks"]["threads"]["1"] |= {"registers_gflop_per_s": 230.0, "bf16_registers_gflop_per_s": None}
    assert peaks_of(environment, 1) == Peaks(1, 200.0, 13.0, 230.0)
    assert peaks_of(environment, 1, "bf16") == Peaks(1, 380.0, 13.0, None)
    assert peaks_of({}, 1) is None
    assert peaks_of({"peaks": None}, 1) is None
