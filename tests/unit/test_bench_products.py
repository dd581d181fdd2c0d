"""The benchmark of matrix products: which it measures, how it checks them, and what it shows."""

from __future__ import annotations

import pytest

from bench import products
from bench.combine import by_occasion, combined
from gpt2core.gemm import libraries
from gpt2core.spec.config import TrainConfig
from gpt2core.step.ops import Product

HOURS = ("2026-11-24T18:00:00+00:00", "2026-11-24T20:00:00+00:00")


def tiny(precision: str) -> TrainConfig:
    return TrainConfig.from_dict({"model": "tiny", "batch": 2, "seq": 64, "precision": precision, "threads": 1,
                                  "data": "synthetic"})  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_products_are_those_of_the_step_and_know_their_weights(precision):
    found = products.products_of(tiny(precision))
    of_op = {op: (product, used.weight) for product, used in found.items() for op in used.ops}
    assert {"qkv", "qkv_dinp", "fc_dweight", "logits", "logits_dinp", "logits_dweight"} <= of_op.keys()
    assert {op for op, (_, weight) in of_op.items() if weight and op.endswith("_dweight")} == set()
    assert {op for op, (_, weight) in of_op.items() if not weight and not op.endswith("_dweight")} <= {"attention"}
    assert (of_op["logits_dinp"][0].half_a == 1) is (precision == "bf16")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_round_has_every_candidate_of_every_product(precision):
    names = ["own", "mkl", "openblas", "nothing", "mkl/32"]
    found = products.process(
        {"model": "tiny", "shape": "2x64", "candidates": names, "precision": precision, "round": 0}
    )
    measured = [name for name, _, _ in products.candidates(names, precision)]
    assert measured[0] == "own"
    assert "nothing" not in measured
    assert ("mkl/32" in measured) is (precision == "fp32" and "mkl" in measured)
    assert [each["product"] for each in found["products"]] == [
        str(product) for product in products.products_of(tiny(precision))
    ]
    for each in found["products"]:
        assert list(each["seconds"]) == measured
        rates = [each["flop"] / seconds / 1e9 for seconds in each["seconds"].values()]
        assert all(0 < rate < 3 * found["registers_gflop_per_s"] for rate in rates)


def test_a_wrong_product_is_not_timed():
    rounded = [("own-rounded", libraries.rounded(), 0)]
    product = Product(0, 1, 64, 96, 64)
    assert products.timed(product, False, rounded, 0, "bf16")["copies"] == 1
    with pytest.raises(SystemExit, match="64x96x64 nt by own-rounded is wrong"):
        products.timed(product, False, rounded, 0, "fp32")


def test_a_weight_is_read_from_memory():
    own = [("own", libraries.own(), 0)]
    found = products.timed(Product(0, 1, 8, 1024, 1024), True, own, 0, "fp32")
    assert found["copies"] * 4 * 1024 * 1024 == products.COLD_BYTES


def record(at, *ratios):
    """Six rounds of two candidates; `ratios` repeats in turn. The first takes 1 ms for 0.2 GFLOP, half the rate of
    the registers."""
    rounds = [
        {"precision": "fp32", "round": i, "registers_gflop_per_s": 400.0, "products": [
            {"product": "1x2x3 nt", "ops": ["fc", "qkv"], "flop": 200_000_000, "copies": 7,
             "seconds": {"own": 1e-3, "mkl": 1e-3 * ratios[i % len(ratios)]}},
        ]}
        for i in range(6)
    ]  # fmt: skip
    machine = {"cpu_model": "CPU", "cores": 2, "kernel": "6", "load_average": [0.0], "load_average_after": [0.0]}
    return {"schema": "taskloom.bench.products/1", "at": at, "machine": machine, "command": [], "model": "tiny",
            "shape": "1x2", "rounds": rounds, "rows": products.rows(rounds, "fp32")}  # fmt: skip


def test_rates_shares_and_ratios_are_shown():
    text = products.document(record(HOURS[0], 1.25))
    assert "| 1x2x3 nt | fc, qkv | 7 | 200 | 50% | 160 | 1.25 (1.25 to 1.25) |" in text


def test_occasions_are_combined_against_our_own():
    made = [record(HOURS[0], 1.2), record(HOURS[1], 1.3)]
    (row,) = combined(made)
    assert (row["case"], row["variant"]) == ("1x2x3 nt (fc, qkv), fp32", "mkl")
    assert (row["rounds"], row["ratio"]) == ([6, 6], pytest.approx((1.2 * 1.3) ** 0.5))
    figures = {row["figure"]: row["values"] for row in by_occasion(made)}
    assert figures["1x2x3 nt (fc, qkv), fp32: own"] == [pytest.approx(200)] * 2
    assert figures["1x2x3 nt (fc, qkv), fp32: own, of the registers' rate"] == [pytest.approx(50)] * 2
