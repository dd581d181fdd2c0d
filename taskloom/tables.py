"""Answers as tables for people."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from gpt2core.spec.goals import LOSS
from gpt2core.spec.wording import counted, seconds
from taskloom.analysis.wording import told_apart

if TYPE_CHECKING:
    from datetime import datetime

    from taskloom.analysis.compared import Comparison, InstructionsRatio
    from taskloom.analysis.goals import GoalRow, Spent
    from taskloom.analysis.scaling import ScalingRow, ScalingTable
    from taskloom.analysis.statistics import Interval
    from taskloom.analysis.tuning.answer import Tuning
    from taskloom.contract.analysis import AlertSummary
    from taskloom.contract.artifacts import ArtifactList
    from taskloom.contract.commits import Commits
    from taskloom.contract.experiments import ExperimentSummary, StoppingState
    from taskloom.contract.keys import KeySummary
    from taskloom.contract.plans import DryRun, PlannedFamily, PlannedQuestion
    from taskloom.contract.runs import RunRow, RunSummary, SampleList, StateChange
    from taskloom.contract.webhooks import DeliverySummary, WebhookSummary
    from taskloom.contract.workers import WorkerSummary

NONE = "-"
SHORT_COMMIT = 10  # characters of a commit in tables


def number(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def interval(value: Interval) -> str:
    """A median with its 95 % interval, both in one unit."""
    unit, factor = ("s", 1.0) if value.median >= 1 else ("ms", 1e3)
    middle = f"{value.median * factor:.4g} {unit}"
    if value.low is None or value.high is None:
        return middle
    return f"{middle} [{value.low * factor:.4g}, {value.high * factor:.4g}]"


def variant(values: Mapping[str, Any]) -> str:
    """Format a run's values on the axes in one line."""
    shown = (f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in values.items())
    return " ".join(shown) or NONE


def new_table(title: str | None, *columns: str, left: int = 1) -> Table:
    """An empty table whose first columns are text and whose others are figures."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < left else "right")
    return table


def per_second(rows: Iterable[RunSummary | ScalingRow]) -> str:
    """Heading of rates: tokens/s, or images/s of networks that read them."""
    return ", ".join(sorted({row.unit for row in rows} or {"tokens"})) + "/s"


def runs(items: Iterable[RunSummary]) -> Table:
    listed = list(items)
    table = new_table(
        None, "run", "experiment", "variant", "state", "rep", "median step", per_second(listed), "final loss", left=4
    )
    for run in listed:
        table.add_row(
            str(run.id),
            str(run.experiment_id),
            variant(run.variant),
            run.state,
            str(run.repetition),
            seconds(run.median_step_s),
            number(run.tokens_per_s, 0),
            number(run.final_loss, 4),
        )
    return table


def experiments(items: Iterable[ExperimentSummary]) -> Table:
    listed = list(items)
    with_commit = ["commit"] if any(item.commit or item.branch for item in listed) else []
    table = new_table(None, "experiment", "name", "tags", *with_commit, "model", "axes", "nodes", "state",
                      "runs by state", "submitted, UTC", "ended, UTC", "submitted by", "runs",
                      left=11 + len(with_commit))  # fmt: skip
    for item in listed:
        states = " ".join(f"{state}={count}" for state, count in item.by_state.items() if count)
        ended = instant(item.finished_at)
        if item.finished_at is None and item.eta_s is not None:
            ended = f"in {duration(item.eta_s)}" + (" (a guess)" if item.eta_basis == "guess" else "")
        table.add_row(
            str(item.id),
            item.name or NONE,
            " ".join(item.tags) or NONE,
            *([commit(item)] if with_commit else []),
            item.model or NONE,
            ", ".join(item.axes) or NONE,
            " ".join(item.nodes) or NONE,
            item.state,
            states or NONE,
            instant(item.created_at),
            ended,
            item.submitter_name or item.submitter,
            str(item.runs),
        )
    return table


def commit(of: Commits) -> str:
    """The commit that a submitter named, with its branch."""
    named = (of.commit or "")[:SHORT_COMMIT] + ("+" if of.dirty else "")
    return " ".join(filter(None, (named, of.branch))) or NONE


def instant(at: datetime | None) -> str:
    return NONE if at is None else at.strftime("%Y-%m-%d %H:%M")


def duration(of_s: float) -> str:
    """Format a duration in coarse units: 40 s, 12 min, 3.5 h."""
    if of_s < 90:
        return f"{of_s:.0f} s"
    return f"{of_s / 60:.0f} min" if of_s < 5400 else f"{of_s / 3600:.1f} h"


def chosen(run: RunRow, names: Sequence[str]) -> dict[str, Any]:
    """The named values of a run: of its settings, its variant, and what its trainer chose. Raises ValueError for an
    unknown name."""
    from taskloom.contract.runs import resolved_columns

    shown = run.model_dump(mode="json")
    known = {**run.variant, **(shown["settings"] or {}), **resolved_columns(shown["resolved"]), **shown}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"run {run.id} has no {unknown[0]!r}; it has {', '.join(known)}")
    return {name: known[name] for name in names}


def plain(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table of the named values of each run."""
    table = new_table(None, *names, left=len(names))
    for row in rows:
        table.add_row(*(NONE if row[n] is None else str(row[n]) for n in names))
    return table


def stopping(state: StoppingState) -> str:
    """State of an experiment with a stopping rule, in one line."""
    width = "no interval yet" if state.rel_ci is None else f"widest interval +-{state.rel_ci:.2%}"
    ended = "continues" if state.reason is None else f"ended ({state.reason})"
    spent = f"{counted(state.repetitions, 'repetition')} and {state.spent_s:.0f} s of workers' time"
    return f"stopping rule: {ended} after {spent}; {width}"


def tuning(found: Tuning) -> list[str]:
    """State and answer of a tuning, in lines; without its sentence."""
    state = found.phase if found.phase != "ended" else f"ended ({found.reason or 'cancelled'})"
    spent = f"{found.spent_runs} of at most {found.planned_runs} runs and {found.spent_s:.0f} s of workers' time"
    grid = ", measured as a grid" if found.sampler == "grid" else ""
    lines = [f"tuning: {state} after {spent}; {counted(found.space.valid, 'valid setting')}{grid}"]
    lines += [f"missing: {each}" for each in found.missing]
    if found.importance:
        effects = ", ".join(f"{each.setting} {100 * math.expm1(each.effect):.1f} %" for each in found.importance)
        lines.append(f"mean effect of each setting's values on the step time, over {found.importance[0].n} trials "
                     f"(exploratory): {effects}")  # fmt: skip
    if found.base is not None:
        lines.append(f"best setting, for submit: {json.dumps({'base': found.base})}")
    return lines


def changes(items: Iterable[StateChange]) -> Table:
    """Table of a history, with one row for each change."""
    table = new_table(None, "at, UTC", "run", "change", "state of run", "attempt", "by", "reason", left=7)
    for item in items:
        attempt = NONE if item.attempt_no is None else f"{item.attempt_no} {item.attempt_state}"
        at = f"{item.at:%Y-%m-%d %H:%M:%S}"
        table.add_row(at, str(item.run_id), item.verb, item.state, attempt, item.actor, item.reason or NONE)
    return table


def alerts(items: Iterable[AlertSummary]) -> Table:
    """Table of alerts: changes to slower steps, and runs outside a threshold."""
    table = new_table(None, "alert", "kind", "from run", "mode", "state", "since, UTC", "reason", "longer by", left=7)
    for item in items:
        since, longer = f"{item.changed_at:%Y-%m-%d %H:%M}", f"{item.ratio - 1:.1%}"
        row = (str(item.id), item.kind, str(item.run_id), item.mode, item.state, since, item.reason, longer)
        table.add_row(*row)
    return table


def artifacts(answer: ArtifactList) -> Table:
    table = new_table(None, "name", "kind", "SHA-256", "attempt", "bytes", left=3)
    for item in answer.items:
        no = f"{item.attempt_no}" if item.chosen else f"{item.attempt_no} (not chosen)"
        table.add_row(item.name, item.media_type, item.sha256[:12], no, f"{item.size_bytes:,}")
    return table


OF_CLASSES = ("accuracy", "evaluation_loss", "evaluation_accuracy")


def samples(answer: SampleList) -> Table:
    phases = list(answer.items[0].phase_s) if answer.items else []
    known = [name for name in OF_CLASSES if any(getattr(item, name) is not None for item in answer.items)]
    columns = [name.replace("_", " ") for name in known]
    table = new_table(None, "step", "", "loss", *columns, "step time", *phases, left=2)
    for item in answer.items:
        found = [number(getattr(item, name), 5) for name in known]
        times = [seconds(item.phase_s.get(phase)) for phase in phases]
        mark = "warm-up" if item.warmup else ""
        table.add_row(str(item.step), mark, number(item.loss, 5), *found, seconds(item.step_s), *times)
    return table


def dry_run(plan: DryRun) -> Table:
    title = f"{counted(plan.runs, 'run')} of {counted(plan.variants, 'variant')}"
    title += f"; largest run: {plan.memory_bytes / 2**20:,.0f} MiB"
    if plan.estimated_s is not None:
        title += f"; estimated time: {estimated(plan)}"
    for detectable in plan.detectable:
        text = "no difference" if detectable.relative is None else f"a difference of {detectable.relative:.2%}"
        title += f"; {counted(detectable.pairs, 'pair')} on {detectable.node} can detect {text}"
    table = new_table(title, "position", "block", "repetition", "variant", left=4)
    for run in plan.order:
        table.add_row(str(run.position), str(run.block), str(run.repetition), variant(run.variant))
    return table


def estimated(plan: DryRun) -> str:
    """The estimated time on one worker, and whether it is a guess."""
    guess = " (a guess: not all of these shapes have run)" if plan.estimate_basis == "guess" else ""
    return "unknown" if plan.estimated_s is None else duration(plan.estimated_s) + guess


def decidable(plan: DryRun) -> list[str]:
    """Lines: what the planned repetitions can decide, and how many would suffice."""
    lines = []
    if (primary := plan.primary) is not None:
        lines.append(f"the question ({primary.b} against {primary.a}): {_decides(primary)}")
    if (family := plan.family) is not None:
        counts = [counted(family.comparisons, "comparison")] if family.comparisons else []
        counts += [counted(family.pooled, "pooled ratio")] if family.pooled else []
        several = family.comparisons + family.pooled > 1
        rest = "other " if primary is not None else ""
        which = f"each of {' and '.join(counts)} alone" if several else f"the {rest}comparison"
        lines.append(f"{which}: {_decides(family)}")
    return lines


def _decides(found: PlannedFamily | PlannedQuestion) -> str:
    if found.pairs == 0:
        return "cannot be decided, because the order sequential makes no pairs"
    pairs = counted(found.pairs, "pair")
    if found.decidable:
        return f"{pairs} can decide it; {found.needed} suffice"
    return f"{pairs} cannot decide it, whatever the times; at least {found.needed} repetitions can"


def scaling(answer: ScalingTable, title: str | None = None) -> Table:
    """Scheduler, threads, slices, median step with its interval and spread, speedup and efficiencies."""
    table = new_table(
        title, "scheduler", "threads", "slices BxT", "median step [95 %]", "CV", per_second(answer.rows), "speedup"
    )
    for column in ("efficiency fwd", "efficiency bwd", "SD process, step", "final loss"):
        table.add_column(column, justify="right")
    for row in answer.rows:
        levels = () if row.levels is None else (row.levels.process, row.levels.step)
        table.add_row(
            row.scheduler,
            str(row.threads),
            told_apart(row),
            interval(row.step_s),
            NONE if row.step_s.cv is None else f"{row.step_s.cv:.1%}",
            number(row.tokens_per_s, 0),
            number(row.speedup),
            number(row.efficiency_forward),
            number(row.efficiency_backward),
            ", ".join(NONE if each is None else f"{each:.1%}" for each in levels) or NONE,
            number(row.final_loss, 4) + ("" if row.agrees else " (differs)"),
        )
    return table


def goals(rows: Sequence[GoalRow]) -> Table:
    """Steps, time and energy until the runs of each variant reached their goal."""
    table = new_table(
        "goal", "scheduler", "threads", "variant", "goal", "reached", "steps [95 %]", "time [95 %]", "energy [95 %]",
        "values", left=4,
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.scheduler,
            str(row.threads),
            variant(row.variant),
            f"{row.metric} {'at most' if row.metric == LOSS else 'at least'} {row.value:g}",
            f"{row.reached} of {row.runs}",
            _spent(row.steps, lambda steps: f"{steps:g}"),
            _spent(row.time_s, seconds),
            _spent(row.energy_j, lambda used_j: f"{used_j:.4g} J"),
            f"{row.n} {row.over}",
        )
    return table


def _spent(found: Spent | None, text: Callable[[float], str]) -> str:
    if found is None:
        return NONE
    bounds = "" if found.low is None or found.high is None else f"  [{text(found.low)}, {text(found.high)}]"
    return text(found.median) + bounds


def comparison(answer: Comparison) -> Table:
    table = new_table(None, "side", "runs", "variant", "median step [95 %]", "values", "processes", left=3)
    for name, side in (("A", answer.a), ("B", answer.b)):
        ids = ",".join(map(str, side.runs))
        counts = (str(side.step_s.n), str(side.step_s.processes))
        table.add_row(name, ids, variant(side.variant), interval(side.step_s), *counts)
    return table


def instructions(found: InstructionsRatio | None) -> list[str]:
    """The second metric of a comparison as lines of text."""
    if found is None:
        return []
    if found.ratio is None:
        return [f"instructions: unknown ({found.reason})"]
    bounds = "" if found.ratio_low is None else f" [{found.ratio_low:.4f}, {found.ratio_high:.4f}]"
    return [f"instructions of A / instructions of B: {found.ratio:.4f}{bounds}"]


def webhooks(items: Iterable[WebhookSummary]) -> Table:
    table = new_table(None, "webhook", "URL", "events", "created by", "created, UTC", left=5)
    for item in items:
        table.add_row(str(item.id), item.url, " ".join(item.events), item.owner, instant(item.created_at))
    return table


def workers(items: Iterable[WorkerSummary]) -> Table:
    table = new_table(None, "worker", "node", "cores", "state", "run", "last message, UTC", left=5)
    for item in items:
        run = NONE if item.current is None else str(item.current.run_id)
        cores = ",".join(map(str, item.cores))
        table.add_row(item.worker_id, item.node, cores, item.state or NONE, run, instant(item.seen_at))
    return table


def deliveries(items: Iterable[DeliverySummary]) -> Table:
    table = new_table(None, "delivery", "event", "state", "created, UTC", "next try, UTC", "error", "tries", left=6)
    for item in items:
        row = (str(item.id), item.event, item.state, instant(item.created_at), instant(item.next_at))
        table.add_row(*row, item.error or NONE, str(item.tries))
    return table


def keys(items: Iterable[KeySummary]) -> Table:
    table = new_table("times in UTC", "key", "name", "scope", "group", "created", "expires", "last used", "revoked",
                      left=8)  # fmt: skip
    for key in items:
        instants = (key.created_at, key.expires_at, key.last_used_at, key.revoked_at)
        table.add_row(
            str(key.id),
            key.name or NONE,
            key.scope,
            key.group or NONE,
            *(NONE if at is None else at.strftime("%Y-%m-%d %H:%M") for at in instants),
        )
    return table
