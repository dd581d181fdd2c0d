"""Registry of the questions of the analysis pool: name, function, and serialisation of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from taskloom.analysis.calibration import CalibrationList
from taskloom.analysis.causes import EfficiencyTable, RooflineTable
from taskloom.analysis.compared import Comparison
from taskloom.analysis.history import SeriesChanges, SeriesList
from taskloom.analysis.memory import MemoryTable
from taskloom.analysis.outlook import Outlook
from taskloom.analysis.report import Report, ReportCard
from taskloom.analysis.report import page as report_page
from taskloom.analysis.scaling import ScalingTable
from taskloom.analysis.sweep import Sweep
from taskloom.analysis.tuning.answer import Tuning
from taskloom.analysis.workload import Workload
from taskloom.contract.experiments import ExperimentRequest, Verdict
from taskloom.contract.plans import DryRun
from taskloom.contract.samples import SamplesPage
from taskloom.contract.variants import VariantTable
from taskloom.server.db import Database
from taskloom.server.read.analysis import alerts, analyses
from taskloom.server.read.analysis.selection import parse
from taskloom.server.read.analysis.thresholds import Judgement, judgements, newest
from taskloom.server.read.experiments.variants import variants
from taskloom.server.read.experiments.verdict import verdict
from taskloom.server.read.history.listing import changes
from taskloom.server.read.plans import plan
from taskloom.server.read.samples import raw_samples
from taskloom.server.read.sources import Sources
from taskloom.server.read.traces.conversion import trace
from taskloom.server.read.tuning import search


@dataclass(frozen=True)
class Question:
    """A question: `find` computes an answer of this type from the sources and its arguments."""

    find: Callable[..., Any]
    type: Any

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.type)

    def answer(self, sources: Sources, args: tuple[Any, ...]) -> Iterable[bytes]:
        """The serialised answer in pieces."""
        found = self.find(sources, *args)
        if isinstance(found, Iterator):
            return found
        return [found if isinstance(found, bytes) else self._adapter.dump_json(found)]


def _compare(sources: Sources, a: str, b: str, noise_floor: float, leave_out_flagged: bool) -> Comparison:
    return analyses.compare(sources.database, parse(a, "a"), parse(b, "b"), noise_floor, leave_out_flagged)


def _report(sources: Sources, experiment_id: int, leave_out_disturbed: bool) -> Report:
    return analyses.report(sources.database, sources.store, experiment_id, leave_out_disturbed)


def _page(sources: Sources, experiment_id: int) -> bytes:
    return report_page(_report(sources, experiment_id, False)).encode()


def _history(sources: Sources, noise_floor: float, limit: int, run_id: int | None, commits_url: str) -> SeriesList:
    if run_id is None:
        return SeriesList(analyses.history(sources.database, noise_floor, limit, None, commits_url))
    return SeriesList(analyses.history_of(sources.database, noise_floor, limit, run_id, commits_url))


def _samples(sources: Sources, runs: str, cursor: str | None, limit: int) -> SamplesPage:
    return raw_samples.page(sources.database, parse(runs, "runs"), cursor, limit, sources.settings.max_samples)


def _confirmation(sources: Sources, run_id: int) -> bytes:
    return analyses.confirmation(sources.database, run_id).model_dump_json(exclude_unset=True).encode()


def _plan(sources: Sources, request: str) -> DryRun:
    return plan(sources.database, sources.settings, ExperimentRequest.model_validate_json(request))


def _of(table: Callable[..., Any], rows: Callable[[Database, int], Any]) -> Callable[[Sources, int], Any]:
    """A function that finds an experiment's rows and returns them as a table."""
    return lambda sources, experiment_id: table(experiment_id, rows(sources.database, experiment_id))


QUESTIONS: Mapping[str, Question] = {
    "compare": Question(_compare, Comparison),
    "scaling": Question(lambda s, *args: analyses.scaling(s.database, *args), ScalingTable),
    "sweep": Question(lambda s, *args: analyses.sweep(s.database, *args), Sweep),
    "efficiency": Question(_of(EfficiencyTable, analyses.efficiency), EfficiencyTable),
    "roofline": Question(_of(RooflineTable, analyses.roofline), RooflineTable),
    "forecast": Question(lambda s, *args: analyses.forecast(s.database, s.store, *args), Outlook),
    "memory": Question(lambda s, experiment_id: analyses.memory(s.database, experiment_id), MemoryTable),
    "workload": Question(lambda s, experiment_id: analyses.workload(s.database, experiment_id), Workload),
    "history": Question(_history, SeriesList),
    "series": Question(lambda s, *args: changes(s.database, *args), SeriesChanges),
    "calibration": Question(lambda s: CalibrationList(analyses.calibrations(s.database)), CalibrationList),
    "suspects": Question(lambda s, *args: alerts.suspects(s.database, *args), list[alerts.Suspect]),
    "judgements": Question(lambda s, *args: judgements(s.database, *args), list[Judgement]),
    "newest": Question(lambda s, *args: newest(s.database, *args), list[Judgement]),
    "confirmation": Question(_confirmation, bytes),
    "report": Question(_report, Report),
    "card": Question(lambda s, *args: analyses.card(s.database, *args), ReportCard),
    "page": Question(_page, bytes),
    "verdict": Question(lambda s, experiment_id, _: verdict(s.database, experiment_id), Verdict),
    "variants": Question(lambda s, *args: variants(s.database, *args), VariantTable),
    "samples": Question(_samples, SamplesPage),
    "trace": Question(trace, bytes),
    "tune": Question(lambda s, *args: search.following(s.database, *args), dict[str, Any]),
    "tuning": Question(lambda s, *args: search.tuning(s.database, *args), Tuning),
    "kept": Question(lambda s, *args: search.kept(s.database, *args), dict[str, Any] | None),
    "plan": Question(_plan, DryRun),
}
