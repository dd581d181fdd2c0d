"""A benchmark's variants run in a balanced order."""

import itertools

import pytest

from bench.rounds import round_order


@pytest.mark.parametrize("case", ["", "stencil_1d"])
@pytest.mark.parametrize("variants", [["ours", "before"], ["task", "fork-join", "omp-for"]])
def test_of_any_two_variants_each_runs_first_in_half_of_the_rounds(variants: list[str], case: str) -> None:
    orders = [round_order(variants, number, case, seed=1) for number in range(12)]
    assert all(sorted(order) == sorted(variants) for order in orders)
    for one, other in itertools.combinations(variants, 2):
        assert sum(order.index(one) < order.index(other) for order in orders) == 6
    assert len({tuple(order) for order in orders[::2]}) > 1


def test_the_seed_and_the_case_decide_the_order() -> None:
    variants = list(range(10))
    assert round_order(variants, 0, seed=1) != round_order(variants, 0, seed=2)
    assert round_order(variants, 0, "fft") != round_order(variants, 0, "tree")
