"""The benchmark of matrix products: which it measures, how it checks them, and what it shows."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from bench import products
from bench.combine import by_occasion, combined
from gpt2core.compile.jit import entry
from gpt2core.gemm import libraries
from gpt2core.gemm.multiply import OF_PRODUCT
from gpt2core.gemm.sizes import PANEL
from gpt2core.spec.config import TrainConfig
from gpt2core.step.ops import Product

HOURS = ("2026-11-24T18:00:00+00:00", "2026-11-24T20:00:00+00:00")


def tiny(precision: str) -> TrainConfig:
    return TrainConfig.from_dict({"model": "tiny", "batch": 2, "seq": 64, "precision": precision, "threads": 1,
                                  "data": "synthetic"})  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_products_are_those_of_the_step_and_know_their_weights(precision):
    found = products.products_of(tiny(precision))
    of_op = {op: (product, weight) for (product, weight), ops in found.items() for op in ops}
    assert {"qkv", "qkv_dinp", "fc_dweight", "logits", "logits_dinp", "logits_dweight"} <= of_op.keys()
    assert {op for op, (_, weight) in of_op.items() if weight and op.endswith("_dweight")} == set()
    assert {op for op, (_, weight) in of_op.items() if not weight and not op.endswith("_dweight")} <= {"attention"}
    assert (of_op["logits_dinp"][0].half_a == 1) is (precision == "bf16")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_round_has_every_candidate_of_every_product(precision):
    names = ["own", "mkl", "openblas", "mkl/32"]
    asked = {"model": "tiny", "shape": "2x64", "threads": 1, "candidates": names, "precision": precision, "round": 0,
             "seed": 1}  # fmt: skip
    found = products.process(asked)
    measured = [name for name, _, _ in products.candidates(names, precision)]
    assert measured[0] == "own"
    assert ("mkl/32" in measured) is (precision == "fp32" and "mkl" in measured)
    assert [each["product"] for each in found["products"]] == [
        str(product) for product, _ in products.products_of(tiny(precision))
    ]
    for each in found["products"]:
        assert list(each["seconds"]) == measured
        rates = [each["flop"] / seconds / 1e9 for seconds in each["seconds"].values()]
        assert all(0 < rate < 3 * found["registers_gflop_per_s"] for rate in rates)
    shown = products.rows([{"precision": precision, "round": 0, "others": 0.0, **found}], precision)
    assert {next(iter(row["gflop_per_s"])) for row in shown} == {"own"}


def wrong_library(name, writes):
    """Our own product of rounded operands, or one that writes nothing."""
    own = libraries.ours()
    entry: Any = libraries.rounded().entry if writes else SimpleNamespace(address=nothing.address)
    return (name, dataclasses.replace(own, entry=entry), 0)


@entry(OF_PRODUCT)
def nothing(x):
    """A product that writes nothing."""


@pytest.mark.parametrize("writes", [True, False])
def test_a_wrong_product_is_found_also_behind_a_right_one(writes):
    right, wrong = ("own", libraries.ours(), 0), wrong_library("other", writes)
    product = Product(0, 1, 64, 96, 64)
    products.check(product, [right], "fp32")
    with pytest.raises(SystemExit, match="64x96x64 nt by other is wrong"):
        products.check(product, [right, wrong], "fp32")


@pytest.mark.parametrize(("weight", "copies"), [(True, 3), (False, 1)])
def test_a_weight_is_read_from_other_memory_each_time(monkeypatch, weight, copies):
    seen = []

    def note(*arguments):
        *_, a, b, c, fetches = arguments
        seen.append((b.ctypes.data, a.ctypes.data, c.ctypes.data, fetches))
        return 1

    monkeypatch.setattr(products, "time_product", note)
    found = [(name, libraries.ours(), 0) for name in ("own", "other")]
    ticks = products.timed(Product(0, 1, 512, 1024, 1024), copies, weight, found, lambda given, _: list(given[::-1]))
    assert list(ticks) == ["own", "other"]
    repetitions = {name: len(each) for name, each in ticks.items()}
    assert repetitions["own"] == repetitions["other"] >= products.FEWEST
    assert repetitions["own"] % 2 == 0
    at_b, at_a, at_c, fetches = zip(*seen, strict=True)
    assert len(set(at_b)) == copies
    assert (len(set(at_a)), len(set(at_c)), set(fetches)) == (1, 1, {1})
    if weight:  # one after the other, a panel and more apart
        assert at_b[:3] == tuple(sorted(set(at_b)))
        assert at_b[1] - at_b[0] >= 4 * 1024 * (1024 + PANEL)
    else:  # each timed product has been computed once before
        assert len(seen) == 2 * sum(repetitions.values())


@pytest.mark.parametrize(("option", "value", "message"), [
    ("--others", "mlk", "others = 'mlk'"), ("--others", "own/1536", "others = 'own/1536'"),
    ("--others", "mkl/x", "others = 'mkl/x'"), ("--precisions", "fp8", "precisions = 'fp8'"),
    ("--rounds", "0", "rounds = 0"), ("--shape", "4", "shape = '4'"), ("--model", "gpt9", "model = 'gpt9'"),
])  # fmt: skip
def test_bad_options_are_named(option, value, message, capsys):
    with pytest.raises(SystemExit):
        products.main([option, value])
    assert message in capsys.readouterr().err.splitlines()[-1]


def record(at, *ratios):
    """Six rounds of two candidates; `ratios` repeats in turn. The first takes 1 ms for 0.2 GFLOP, half the rate of
    the registers."""
    rounds = [
        {"precision": "fp32", "round": i, "registers_gflop_per_s": 400.0, "products": [
            {"product": "1x2x3 nt", "ops": ["fc", "qkv"], "flop": 200_000_000, "copies": 7,
             "seconds": {"own": 1e-3, "mkl": 1e-3 * ratios[i % len(ratios)]}},
        ], "versions": {"own": "avx512", "mkl": "2026.0"}, "others": 0.1 * (i == 3)}
        for i in range(6)
    ]  # fmt: skip
    machine = {"cpu_model": "CPU", "cores": 2, "kernel": "6", "load_average": [0.0], "load_average_after": [0.0]}
    return {"schema": "taskloom.bench.products/1", "at": at, "machine": machine, "command": [], "model": "tiny",
            "shape": "1x2", "rounds": rounds, "rows": products.rows(rounds, "fp32")}  # fmt: skip


def test_rates_shares_and_ratios_are_shown():
    text = products.document(record(HOURS[0], 1.25))
    assert "| 1x2x3 nt | fc, qkv | 7 | 200 | 50% | 160 | 1.25 (1.25 to 1.25) |" in text
    assert "own: avx512; mkl: 2026.0." in text
    assert "during 1 of 6 processes." in text


def test_occasions_are_combined_against_our_own():
    made = [record(HOURS[0], 1.2), record(HOURS[1], 1.3)]
    (row,) = combined(made)
    assert (row["case"], row["variant"]) == ("1x2x3 nt (fc, qkv), fp32", "mkl")
    assert (row["rounds"], row["ratio"]) == ([6, 6], pytest.approx((1.2 * 1.3) ** 0.5))
    figures = {row["figure"]: row["values"] for row in by_occasion(made)}
    assert figures["1x2x3 nt (fc, qkv), fp32: own"] == [pytest.approx(200)] * 2
    assert figures["1x2x3 nt (fc, qkv), fp32: own, of the registers' rate"] == [pytest.approx(50)] * 2
