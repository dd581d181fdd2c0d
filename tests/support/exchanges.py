"""The communication of a result, of known times."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20


def exchanged(*ranks: tuple[float, float, float], warmup: int = 1, timed: int = 2) -> list[dict[str, Any]]:
    """Each rank's seconds in calls, in flight and exposed in a timed step, half of it of each of two kinds that are in
    flight one after the other; the steps are 1 % shorter and longer in turn. Of a step, rank 0 sends 3 MiB and
    receives 1. Warm-up steps take 9 s."""
    found = []
    for number, (calls_s, in_flight_s, exposed_s) in enumerate(ranks):
        sent, received = (3, 1) if number == 0 else (1, 3)
        half = {
            "calls_s": calls_s * timed / 2, "in_flight_s": in_flight_s * timed / 2, "exposed_s": exposed_s * timed / 2,
            "bytes_sent": sent * MIB * timed // 2, "bytes_received": received * MIB * timed // 2,
        }  # fmt: skip
        turns = [1 + 0.01 * (-1) ** (i + 1) for i in range(timed)]
        found.append({
            "rank": number,
            "exchanges": [{"exchange": kind, **half} for kind in ("gradients", "weights")],
            "calls_s": [9.0] * warmup + [calls_s * turn for turn in turns],
            "in_flight_s": [9.0] * warmup + [in_flight_s * turn for turn in turns],
            "exposed_s": [9.0] * warmup + [exposed_s * turn for turn in turns],
        })  # fmt: skip
    return found
