"""The table of ops of `taskloom train`: rates of all threads together, and their share of the node's roof."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from taskloom import train_tables

PHASES = ("data", "forward", "loss", "backward", "update")


def printed(peaks: dict[str, Any] | None, network: str = "gpt2", **more: Any) -> list[str]:
    """The lines for two threads that spent 4 s on one op of 400 Gflop and 4 GB, and 2 s on one of 10 GB."""
    by_phase = {phase: [0.1, 0.2] for phase in PHASES}
    found = {
        "config": {"model": {"name": "tiny", "network": network}, "scheduler": "task", "threads": 2, "batch": 2,
                   "seq": 8, "warmup": 0, "batch_slice": 1, "token_slice": 8, "precision": "fp32", "save": None},
        "environment": {"peaks": peaks},
        "step_s": [1.0, 2.0], "losses": [5.0, 4.0], "phase_s": by_phase, "phase_busy_s": by_phase,
        "ops": [
            {"op": "tokens", "phase": "data", "calls": 3, "time_s": 2.0, "flop": 0, "bytes": 10**10},
            {"op": "fc", "phase": "forward", "calls": 2, "time_s": 4.0, "flop": 4 * 10**11, "bytes": 4 * 10**9},
        ],
        "memory_bytes": {"weights": 1 << 20}, "summary": {"gflop_per_s": 1.0}, "warnings": [], **more,
    }  # fmt: skip
    console = Console(width=200)
    with console.capture() as capture:
        console.print(*train_tables.result(found), sep="\n")
    return capture.get().splitlines()


def cells(lines: list[str], op: str) -> list[str]:
    (line,) = [line for line in lines if line.split()[:1] == [op]]
    return line.split()


def test_ops_stand_beside_the_roof_of_as_many_threads() -> None:
    lines = printed({"threads": {"1": {"gflop_per_s": 1.0, "triad_gb_per_s": 1.0},
                                 "2": {"gflop_per_s": 400.0, "triad_gb_per_s": 20.0,
                                       "registers_gflop_per_s": 500.0}}})  # fmt: skip
    assert cells(lines, "fc") == ["fc", "forward", "2", "4", "s", "200.0", "2.0", "50%", "40%", "compute"]
    assert cells(lines, "tokens") == ["tokens", "data", "3", "2", "s", "0.0", "10.0", "50%", "-", "memory"]
    assert any("500 GFLOP/s of multiply-adds" in line for line in lines)
    assert any("400 GFLOP/s" in line and "20.0 GB/s" in line for line in lines)


def test_without_measured_peaks_it_says_how_to_measure_them() -> None:
    for peaks in (None, {"threads": {"1": {"gflop_per_s": 1.0, "triad_gb_per_s": 1.0}}}):
        lines = printed(peaks)
        assert cells(lines, "fc") == ["fc", "forward", "2", "4", "s", "200.0", "2.0"]
        assert any("taskloom doctor --peaks" in line for line in lines)


def test_of_a_network_with_classes_images_and_accuracy_are_shown() -> None:
    lines = printed(None, "resnet", accuracy=[0.125, 0.5])
    assert any("images/s" in line for line in lines)
    assert any("accuracy" in line and "12.5% to 50.0%" in line for line in lines)
    plain = printed(None)
    assert any("tokens/s" in line for line in plain)
    assert not any("accuracy" in line for line in plain)


def test_the_first_and_the_last_evaluation_are_shown() -> None:
    found = [{"step": step, "loss": 4 / step, "accuracy": step / 8} for step in (2, 4, 6)]
    (line,) = [line for line in printed(None, "resnet", evaluations=found) if "val loss" in line]
    assert "val loss and accuracy, after step 2 and 6" in line
    assert "2.00000 25.0% and 0.66667 75.0%" in line


def test_each_ranks_communication_is_that_of_the_mean_timed_step() -> None:
    gradients = {"exchange": "gradients", "calls_s": 0.2, "in_flight_s": 1.0, "exposed_s": 0.5,
                 "bytes_sent": 4 << 20, "bytes_received": 8 << 20}  # fmt: skip
    ranks = [
        {"rank": number, "exchanges": [gradients, {**gradients, "exchange": "weights"}], "calls_s": [0.2, 0.2],
         "in_flight_s": [0.5, 0.7], "exposed_s": [0.5, 0.5]} for number in range(2)
    ]  # fmt: skip
    lines = printed(None, communication=ranks)
    assert any("communication, mean of a timed step" in line for line in lines)
    rows = [line.split() for line in lines if line.split()[:1] in (["0"], ["1"])]
    assert rows[0] == ["0", "gradients", "100", "ms", "500", "ms", "250", "ms", "2.000", "4.000"]
    assert rows[2] == ["0", "together", "200", "ms", "600", "ms", "500", "ms", "4.000", "8.000"]
    assert [row[:2] for row in rows[3:]] == [["1", kind] for kind in ("gradients", "weights", "together")]
    assert not any("communication" in line for line in printed(None))


def test_weights_of_a_generation_stand_beside_the_bandwidth_or_the_reason() -> None:
    config = {"model": {"name": "tiny", "network": "gpt2"}, "mode": "infer", "generate": 3, "prompt": [5, 7],
              "scheduler": "task", "threads": 2, "batch": 1, "seq": 1, "warmup": 0, "batch_slice": 1, "token_slice": 1,
              "precision": "fp32", "save": None}  # fmt: skip
    rates = {"gflop_per_s": 1.0, "weights_gb_per_s": 5.0, "triad_gb_per_s": 20.0}
    why = "the bandwidth of the node is measured with 1 thread, not with 2"
    found: dict[str, Any] = {"config": config, "tokens": [1, 2, 3], "time_to_first_token_s": 0.5}
    for summary, text in (
        (rates, "5.0 GB/s; 25% of the triad's 20.0 GB/s"),
        ({**rates, "triad_gb_per_s": None, "triad_missing": why}, f"5.0 GB/s; {why}"),
        ({**rates, "triad_gb_per_s": None}, "5.0 GB/s; not measured"),  # a result of an earlier trainer
    ):
        assert any("weights read" in line and text in line for line in printed(None, **found, summary=summary))
