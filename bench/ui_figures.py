"""Figures of the dashboard and their budgets, from a report of bench.ui."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """Values of one figure. most: its budget at the 95th percentile; None has none."""

    name: str
    values: list[float]
    most: float | None = None
    unit: str = "ms"

    @property
    def p95(self) -> float:
        return sorted(self.values)[min(len(self.values) - 1, round(0.95 * len(self.values)))]

    @property
    def missed(self) -> bool:
        return self.most is not None and self.p95 > self.most

    def row(self) -> str:
        """The figure as a line of a Markdown table."""
        median, high = (f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in
                        (statistics.median(self.values), self.p95))  # fmt: skip
        budget = "" if self.most is None else f"{self.most:,g} {self.unit}{', **missed**' if self.missed else ''}"
        return f"| {self.name} | {median} {self.unit} | {high} {self.unit} | {budget} |"


def figures(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Every figure that was measured, with its budget."""
    for name, found in report["pages"].items():
        if found:
            yield Figure(f"{name}: first paint", found["first_paint_ms"], 300)
            yield Figure(f"{name}: data shown", found["data_shown_ms"], 700)
            yield Figure(f"{name}: data shown, asked for the first time", [found["data_shown_first_ms"]])
    for name, found in report["lists"].items():
        if found:
            if found["next_page_ms"]:
                yield Figure(f"next page of {name}", found["next_page_ms"], 150)
            yield Figure(f"a letter typed above {name}, to the next paint", found["input_to_paint_ms"], 100)
    if report.get("change_to_screen_ms"):
        yield Figure("submitted elsewhere, to the screen", report["change_to_screen_ms"], 1000)
    for spans, found in report["traces"].items():
        if found:
            several = f"{int(spans):,} spans"
            yield Figure(f"a trace of {several}, opened", found["open_ms"], 500 if int(spans) < 100_000 else 3000)
            yield Figure(f"a frame of its zoom: work, all of {several}", found["frame_ms"], 16)
            yield Figure("from the event to its picture", found["input_to_picture_ms"])
    if sent := report.get("sizes_bytes"):
        yield Figure("scripts and styles of the first page, as sent", [sent["first_page"] / 1e3], 45, "kB")
        yield Figure("all scripts and styles, as sent", [sent["everything"] / 1e3], 120, "kB")
    if tab := report.get("idle"):
        shares = {name: [100 * share for share in of["server_cpu_share"]] for name, of in tab.items()}
        for name, title, most in (("seen", "an idle tab that is seen", 0.5), ("hidden", "a hidden tab", None)):
            extra = [mine - none for mine, none in zip(shares[name], shares["none"], strict=True)]
            error = statistics.stdev(extra) / math.sqrt(len(extra))
            yield Figure(f"server's CPU for {title}, mean", [statistics.mean(extra)], most, "% of a core")
            yield Figure(f"server's CPU for {title}, standard error of the mean", [error], None, "% of a core")
        yield Figure("server's CPU without a tab, by turn", shares["none"], None, "% of a core")
        yield Figure("requests of a hidden tab, by turn", tab["hidden"]["requests"], 0, "requests")
