"""Answers of a workload in words, made from its typed values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpt2core.spec.wording import counted, enumerated, seconds

if TYPE_CHECKING:
    from taskloom.analysis.workload import ModeRatio, SchedulerRatio, WorkNetwork, WorkRow

MODES = {"train": "Training", "infer": "Inference"}
LEAST_SHARE = 0.01  # of a step, for a phase to be named among several networks
Named = tuple[str, str]  # a network's model, and what is said of it


def of_several(networks: Sequence[WorkNetwork]) -> list[str]:
    """The answers of several networks together: of one kind of question a sentence each."""
    return [*_bounds_of_all(networks), *_schedulers_of_all(networks), *_inference_of_all(networks),
            *_data_of_all(networks)]  # fmt: skip


def bound_phases(row: WorkRow, answer: str) -> list[str]:
    """The phases of a row of which this is the answer, those that take LEAST_SHARE of its step."""
    return [each.phase for each in row.phases if each.memory_bound == answer and each.share >= LEAST_SHARE]


def _all_named(named: Sequence[Named]) -> str:
    return enumerated(f"{model} ({what})" for model, what in named)


def _bounds_of_all(networks: Sequence[WorkNetwork]) -> Iterator[str]:
    for mode, name in MODES.items():
        rows = [(of.model, of.rows[place]) for of in networks for place in of.typical if of.rows[place].mode == mode]
        judged = [(model, row) for model, row in rows if any(each.memory_bound for each in row.phases)]
        found = {answer: [(model, enumerated(phases)) for model, row in judged if (phases := bound_phases(row, answer))]
                 for answer in ("yes", "partly")}  # fmt: skip
        if not judged:
            continue
        said = [f"{'partly ' * (answer == 'partly')}memory-bound are {_all_named(named)}"
                for answer, named in found.items() if named]  # fmt: skip
        free = {model for model, _ in judged} - {model for named in found.values() for model, _ in named}
        said += [f"nothing of {enumerated(sorted(free))} is"] if free else []
        unknown = sorted({model for model, _ in rows} - {model for model, _ in judged})
        said += [f"of {enumerated(unknown)} it is unknown"] if unknown else []
        yield f"{name}: {'; '.join(said)}. Phases below {LEAST_SHARE:.0%} of a step are left out."


def _schedulers_of_all(networks: Sequence[WorkNetwork]) -> Iterator[str]:
    for mode, name in MODES.items():
        pairs: dict[tuple[str, str], dict[str, list[Named]]] = {}
        for of in networks:
            for row in of.schedulers:
                if row.mode == mode:
                    pairs.setdefault((row.a, row.b), {}).setdefault(row.verdict, []).append((of.model, _ratio(row)))
        for (a, b), verdicts in pairs.items():
            said = [f"{b} is {verdict} with {_all_named(verdicts.pop(verdict))}"
                    for verdict in ("faster", "slower") if verdict in verdicts]  # fmt: skip
            said += [f"{verdict} with {_all_named(named)}" for verdict, named in verdicts.items()]
            yield f"{name}, {a} time / {b} time: {'; '.join(said)}."


def _ratio(row: SchedulerRatio) -> str:
    if row.ratio is None:
        return "no ratio"
    low, high = row.ratio_low, row.ratio_high
    return f"{row.ratio:.3f}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]")


def _smallest_batch(of: WorkNetwork) -> ModeRatio:
    return max(reversed(of.modes), key=lambda each: (each.threads, -each.batch))


def _inference_of_all(networks: Sequence[WorkNetwork]) -> Iterator[str]:
    ratios = [(of.model, _smallest_batch(of)) for of in networks if of.modes]
    if not ratios:
        return
    ratios.sort(key=lambda each: each[1].arenas)
    arenas = _all_named([(model, f"{each.arenas:.0%}") for model, each in ratios])
    times = sorted(each.time for _, each in ratios)
    peaks = sorted(each.peak for _, each in ratios if each.peak is not None)
    whole = f", and {_range(peaks)} of a process's peak memory" if peaks else ""
    yield (
        f"Inference needs this share of the arenas of training: {arenas}. It takes {_range(times)} of the time of a "
        f"training step{whole} (ratios of medians, not tested)."
    )


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.0%}" for value in (values[0], values[-1])))


def _data_of_all(networks: Sequence[WorkNetwork]) -> Iterator[str]:
    times = sorted((row.time, of.model) for of in networks for row in of.data)
    if times:
        said = enumerated(f"{time:.3f} ({model})" for time, model in times)
        yield f"With real data a training step takes {said} times as long as with generated data (not tested)."


def answers(of: WorkNetwork) -> list[str]:
    """One sentence each: what is memory-bound, which scheduler is faster, what inference needs, what data cost."""
    return [*_bounds(of), *_schedulers(of), *_inference(of), *_data(of)]


def _where(scheduler: str, threads: int) -> str:
    return f"{scheduler}, {counted(threads, 'thread')}"


def _bounds(of: WorkNetwork) -> Iterator[str]:
    for row in (of.rows[place] for place in of.typical):
        name = MODES.get(row.mode, row.mode)
        where = _where(row.variant.scheduler, row.variant.threads)
        op = row.ops[0] if row.ops else None
        costly = "" if op is None else f" Its costliest op is {op.op} ({op.phase}), {op.share:.0%} of the ops' time."
        judged = [phase for phase in row.phases if phase.memory_bound is not None]
        if not judged:
            reasons = "; ".join(row.missing) or "no op was timed"
            yield f"It is unknown whether {name.lower()} is memory-bound ({where}): {reasons}.{costly}"
            continue
        words = {"yes": "memory-bound", "partly": "partly memory-bound", "no": "not memory-bound"}
        parts = [f"{enumerated(phases)} {'is' if len(phases) == 1 else 'are'} {words[answer]}"
                for answer in words if (phases := [p.phase for p in judged if p.memory_bound == answer])]  # fmt: skip
        yield f"{name} ({where}): {'; '.join(parts)}.{costly}"


def _schedulers(of: WorkNetwork) -> Iterator[str]:
    for row in of.schedulers:
        yield f"{MODES.get(row.mode, row.mode)}: {row.sentence}"


def _inference(of: WorkNetwork) -> Iterator[str]:
    if not of.modes:
        return
    most = _smallest_batch(of)
    peak = "" if most.peak is None else f", and its process's peak is {most.peak:.0%}"
    yield (
        f"A step of inference ({_where(most.scheduler, most.threads)}, batch {most.batch}) takes {most.time:.0%} of "
        f"the time of a training step (ratio of medians, not tested); its arenas have {most.arenas:.0%} of the "
        f"size{peak}."
    )


def _data(of: WorkNetwork) -> Iterator[str]:
    for row in of.data:
        yield (
            f"With real data ({row.real}) a training step ({_where(row.scheduler, row.threads)}) takes "
            f"{row.time:.3f} times as long as with generated data (ratio of medians, not tested); reading takes "
            f"{seconds(row.real_data_s)} against {seconds(row.generated_data_s)}."
        )
