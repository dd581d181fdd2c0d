"""The analyses of the Python client: one method for each question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from taskloom.connection import Connection, Query, parameters, understood
from taskloom.contract.analysis import AlertPage, AlertState, AlertSummary
from taskloom.contract.series import SeriesPage, SeriesRow, SeriesRun, SeriesRunPage
from taskloom.contract.thresholds import SeriesThreshold, ThresholdRequest

if TYPE_CHECKING:  # these load NumPy, which few methods need
    from taskloom.analysis.calibration import Calibration
    from taskloom.analysis.causes import EfficiencyRow, RooflineRow
    from taskloom.analysis.compared import Comparison
    from taskloom.analysis.growth import Growth
    from taskloom.analysis.history import Series, SeriesChanges
    from taskloom.analysis.memory import MemoryRow
    from taskloom.analysis.outlook import Outlook
    from taskloom.analysis.report import Report, ReportCard
    from taskloom.analysis.scaling import ScalingTable
    from taskloom.analysis.sweep import Sweep
    from taskloom.analysis.workload import Workload

T = TypeVar("T")


class Analyses(Connection):
    """What a client asks about the results of runs."""

    def compare(self, a: str, b: str, noise_floor: float | None = None, leave_out_flagged: bool = False) -> Comparison:
        """Compare B with A: two runs, or two selections of runs. noise_floor: declared beforehand, relative."""
        query: dict[str, Any] = {"a": a, "b": b} | ({} if noise_floor is None else {"noise_floor": noise_floor})
        if leave_out_flagged:
            query["flagged"] = "leave-out"
        from taskloom.analysis.compared import Comparison

        return self._analysis("compare", Comparison, **query)

    def scaling(self, experiment_id: int) -> ScalingTable:
        """Step time, speedup and efficiency of every variant of an experiment."""
        from taskloom.analysis.scaling import ScalingTable

        return self._analysis("scaling", ScalingTable, experiment_id=experiment_id)

    def sweep(self, experiment_id: int, axis: str | None = None) -> Sweep:
        """Compare the values of one axis with everything else equal, adjusted for multiple comparisons."""
        from taskloom.analysis.sweep import Sweep

        return self._analysis("sweep", Sweep, experiment_id=experiment_id, axis=axis)

    def efficiency(self, experiment_id: int) -> list[EfficiencyRow]:
        """Return the use of the threads' time for every variant."""
        from taskloom.analysis.causes import EfficiencyRow

        return self._rows("efficiency", EfficiencyRow, experiment_id=experiment_id)

    def roofline(self, experiment_id: int) -> list[RooflineRow]:
        """Return each op's share of the node's peak, and whether phases are memory-bound."""
        from taskloom.analysis.causes import RooflineRow

        return self._rows("roofline", RooflineRow, experiment_id=experiment_id)

    def forecast(self, experiment_id: int, cores: str | None = None) -> Outlook:
        """Return forecast steps on more cores, and with more ranks. cores: such as "1,2,4,8"."""
        from taskloom.analysis.outlook import Outlook

        return self._analysis("forecast", Outlook, experiment_id=experiment_id, cores=cores)

    def memory(self, experiment_id: int) -> list[MemoryRow]:
        """Return the memory of every variant and how it grows."""
        from taskloom.analysis.memory import MemoryRow

        return self._rows("memory", MemoryRow, experiment_id=experiment_id)

    def memory_growth(self, experiment_id: int) -> list[Growth]:
        """Return the memory of training beside inference against batch, length and side of images."""
        from taskloom.analysis.growth import Growth

        answer = self._ask_analysis("memory", {"experiment_id": experiment_id})
        return understood(answer, list[Growth], understood(answer, dict[str, Any]).get("growth"))

    def workload(self, experiment_id: int) -> Workload:
        """Return time, memory, rates and counters of each network of an experiment."""
        from taskloom.analysis.workload import Workload

        return understood(self._send("GET", f"/experiments/{experiment_id}/workload"), Workload)

    def report(self, experiment_id: int, leave_out_disturbed: bool = False) -> Report:
        """Return the report of an experiment; `analysis.report.page` renders it."""
        from taskloom.analysis.report import Report

        disturbed = "leave-out" if leave_out_disturbed else None
        return self._analysis("report", Report, experiment_id=experiment_id, disturbed=disturbed)

    def report_card(self, experiment_id: int) -> ReportCard:
        """Return the report card of an experiment, and its environment: two parts of its report."""
        from taskloom.analysis.report import ReportCard

        return self._analysis("card", ReportCard, experiment_id=experiment_id)

    def calibrations(self) -> list[Calibration]:
        """Return the smallest difference that each node can detect, by its latest A/A experiment."""
        from taskloom.analysis.calibration import Calibration

        return self._rows("calibration", Calibration)

    def history(self, run_id: int | None = None) -> list[Series]:
        """Return every series of the latest runs, or the series of one run, with changes and alerts."""
        from taskloom.analysis.history import Series

        return self._rows("history", Series, run_id=run_id)

    def series(self, **filters: Any) -> Iterator[SeriesRow]:
        """Series of the history without points, newest first. filters: `node`, `filter`, `alert`,
        `threshold` (true: only with one), `run_id`, `sort`."""
        return self._pages(lambda each: self._page("/analysis/history/series", SeriesPage, each), parameters(filters))

    def series_points(self, series_id: int, **filters: Any) -> Iterator[SeriesRun]:
        """A series' runs, oldest first; instants and `sort` as of `runs`."""
        path = f"/analysis/history/series/{series_id}/points"
        return self._pages(lambda each: self._page(path, SeriesRunPage, each), parameters(filters))

    def series_changes(self, series_id: int) -> SeriesChanges:
        """Return the changes of a series, and the results of fresh runs."""
        from taskloom.analysis.history import SeriesChanges

        return self._analysis(f"history/series/{series_id}/changes", SeriesChanges)

    def set_threshold(self, series_id: int, request: ThresholdRequest) -> SeriesThreshold:
        """Set the threshold of a series, or replace it."""
        return self._ask("PUT", f"/analysis/history/series/{series_id}/threshold", SeriesThreshold, body=request)

    def delete_threshold(self, series_id: int) -> None:
        """Delete the threshold of a series; its open alert is dismissed."""
        self._send("DELETE", f"/analysis/history/series/{series_id}/threshold")

    def alerts(self, state: AlertState | None = None, mode: str | None = None) -> Iterator[AlertSummary]:
        """Iterate over changes to slower steps and runs outside thresholds, newest first. mode: of runs in it."""
        query = {name: value for name, value in (("state", state), ("mode", mode)) if value is not None}
        return self._pages(lambda each: self._page("/analysis/alerts", AlertPage, each), query)

    def _rows(self, name: str, kind: type[T], **query: Any) -> list[T]:
        """The `rows` or `items` of an analysis's answer."""
        answer = self._ask_analysis(name, query)
        found = understood(answer, dict[str, Any])
        return understood(answer, list[kind], found.get("rows", found.get("items")))  # type: ignore[valid-type]

    def _analysis(self, name: str, kind: type[T], **query: Any) -> T:
        return understood(self._ask_analysis(name, query), kind)

    def _ask_analysis(self, name: str, query: Query) -> httpx.Response:
        return self._send("GET", f"/analysis/{name}", query={k: v for k, v in query.items() if v is not None})
