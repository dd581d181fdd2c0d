"""Time of a step beside its products: the host's speed cancels out, other work does not."""

from __future__ import annotations

from typing import Any

import pytest

from bench.overhead import figures, row


def result(slower: float = 1.0, other_s: float = 0.2, blas: str = "own") -> dict[str, Any]:
    """A result of two timed steps on two threads; `slower` scales all times, as a busy host does."""
    times = {"fc": 2.0, "attention": 0.4, "gelu": other_s}
    ops = [{"op": name, "phase": "forward", "time_s": slower * s, "blas": "" if name == "gelu" else blas}
           for name, s in times.items()]  # fmt: skip
    step_s = slower * sum(times.values()) / 2 / 2
    return {"config": {"warmup": 1}, "step_s": [9.0, step_s, step_s], "threads": [{}, {}], "ops": ops, "losses": [1.0]}


def rounds(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"variant": "v", "of": {"ours": figures(ours), "before": figures(before)}} for ours, before in pairs]


def test_a_slower_host_changes_no_figure_and_other_work_does() -> None:
    assert figures(result())["overhead"] == pytest.approx(1.3)  # (2 + 0.4 + 0.2) / 2
    assert figures(result(slower=1.5))["overhead"] == pytest.approx(1.3)
    assert figures(result(other_s=0.4))["overhead"] == pytest.approx(1.4)


def test_the_ratio_is_over_rounds() -> None:
    of = row("v", rounds(*[(result(slower, other_s=0.46), result()) for slower in (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)]))
    assert of["ratio"] == pytest.approx(1.43 / 1.3)
    assert of["ratio_interval"] == pytest.approx([1.1, 1.1])
    assert (of["rounds"], of["same_losses"]) == (6, True)


def test_products_of_different_libraries_are_not_compared() -> None:
    with pytest.raises(SystemExit, match="different libraries"):
        row("v", rounds((result(blas="mkl"), result())))
