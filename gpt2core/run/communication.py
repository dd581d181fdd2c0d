"""What a rank's exchanges with the others took: time in calls of the library, in flight and exposed, and bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpt2core.ranks.cells import CALLS, ELAPSED, HELD, HOLDING, IN_FLIGHT, TRAFFIC_CELLS
from gpt2core.ranks.layout import Layout
from gpt2core.run.execute import Measured
from gpt2core.spec import schedulers
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.result import ExchangeStat, RankStat


def new_traffic(config: TrainConfig, layout: Layout) -> NDArray[np.int64]:
    """The array in which tasks note the times of exchanges (ranks/cells.py)."""
    return np.zeros((config.steps * (len(layout.kinds) + 1), TRAFFIC_CELLS), np.int64)


def communication(
    measured: Measured, layout: Layout, traffic: NDArray[np.int64], useful_s: Sequence[float],
    link: tuple[float, float] | None,
) -> RankStat:  # fmt: skip
    """What the exchanges of this rank took. useful_s: of each of its threads; link: with rank 0 (World.link)."""
    kinds, done = layout.kinds, measured.done
    warmup, scale = measured.config.warmup_steps, measured.calibration.seconds_per_tick
    rows = traffic.reshape(-1, len(kinds) + 1, TRAFFIC_CELLS)[:done]
    calls_s, in_flight_s = rows[:, :-1, CALLS] * scale, rows[:, :, IN_FLIGHT + ELAPSED] * scale
    exposed_s = _exposed(measured, layout, rows[:, :-1]) * scale
    stats = []
    for number, kind in enumerate(kinds):
        sent, received = layout.bytes_of(kind)
        stats.append(ExchangeStat(
            exchange=kind,
            calls_s=float(calls_s[warmup:, number].sum()),
            in_flight_s=float(in_flight_s[warmup:, number].sum()),
            exposed_s=float(exposed_s[warmup:, number].sum()),
            bytes_sent=sent * (done - warmup),
            bytes_received=received * (done - warmup),
        ))  # fmt: skip
    return RankStat(
        rank=layout.rank.number,
        exchanges=stats,
        calls_s=calls_s.sum(axis=1).tolist(),
        in_flight_s=in_flight_s[:, -1].tolist(),
        exposed_s=exposed_s.sum(axis=1).tolist(),
        useful_s=useful_s,
        latency_s=link[0] if link else None,
        bytes_per_s=link[1] if link else None,
    )


def _exposed(measured: Measured, layout: Layout, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """(steps, kinds) ticks, the mean over the threads: of what they wait without a ready task where a waiting task
    holds no thread; of what tasks hold them where others may run beside; else while any task waits, since then all
    threads do.
    """
    who, threads = schedulers.scheduler(measured.config.scheduler), measured.config.threads
    if who.second_moment:
        at = [measured.bound.waits.index(f"{kind}_arrived") for kind in layout.kinds]
        without: NDArray[np.int64] = measured.record.exposed[:, : len(rows), at].sum(axis=0)
        return without / threads
    if who.holds_threads:
        return rows[..., HOLDING] / threads
    return rows[..., HELD + ELAPSED].astype(np.float64)
