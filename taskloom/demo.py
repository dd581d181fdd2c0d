"""`taskloom demo`: a server, a worker and two experiments on this machine, from start to verdicts."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt2core.process import launch
from gpt2core.spec.wording import counted
from taskloom import tables, watch
from taskloom.client import Client
from taskloom.commands.output import (
    console,
    error_console,
    print_json,
    say_warnings,
    shown_at,
    verdict_sentence,
)
from taskloom.contract.experiments import ExperimentDetail, ExperimentRequest
from taskloom.contract.options import DEFAULT_SERVER
from taskloom.errors import EXIT_WORK_FAILED, TaskloomError
from taskloom.processes import Processes

if TYPE_CHECKING:
    from taskloom.analysis.causes import EfficiencyRow
    from taskloom.screen import Screen

MODELS: dict[str, dict[str, Any]] = {
    "small": {"model": "small", "batch": 4, "seq": 64, "steps": 6, "batch_slice": 1, "token_slice": 32},
    "gpt2-124m": {"model": "gpt2-124m", "batch": 4, "seq": 64, "steps": 5, "batch_slice": 1, "token_slice": 64},
}

# Layers and chunks of time form a wavefront, which barriers after each layer's chunk hide: task is much faster.
FINDING: dict[str, Any] = {
    "model": {"network": "lstm", "embedding": 192, "hidden": 192, "layers": 8, "vocab": 256, "context": 64},
    "batch": 4, "seq": 64, "steps": 6, "batch_slice": 4, "token_slice": 16, "data": "stdlib",
}  # fmt: skip
MOST_FINDING_THREADS = 4  # its wavefront is 8 layers wide
FINDING_REPETITIONS = 8  # of 6 pairs none may contradict: one that a neighbour disturbs would leave it undecided


class DemoFailed(TaskloomError):
    """The demo failed."""

    exit_code = EXIT_WORK_FAILED


def request(model: str, cores: int, repetitions: int | None) -> ExperimentRequest:
    """Serial, fork-join and task on 1 core and on all, with the same tiles, so that a difference is the scheduling.

    The question is whether tasks on all cores are faster than on one; on a single core, whether task is faster than
    fork-join. repetitions: None: as many as can decide each comparison.
    """
    threads = sorted({1, cores})
    a, b = ("task", 1), ("task", cores)
    if cores == 1:
        a = ("fork-join", 1)
    return ExperimentRequest.model_validate(
        {
            "name": f"demo: {model}",
            "base": {**MODELS[model], "data": "stdlib"},
            "axes": {"scheduler": ["serial", "fork-join", "task"], "threads": threads},
            "exclude": [{"scheduler": "serial", "threads": each} for each in threads if each != 1],
            "primary": {side: {"scheduler": of[0], "threads": of[1]} for side, of in (("a", a), ("b", b))},
            **({} if repetitions is None else {"repetitions": repetitions}),
        }
    )


def finding_request(cores: int, repetitions: int | None) -> ExperimentRequest:
    """Fork-join and task on an LSTM whose layers and chunks of time form a wavefront, with the same tiles.

    Fork-join also runs the wavefront written by hand (diagonals), its best. Under task both orders are the same.
    """
    return ExperimentRequest.model_validate(
        {
            "name": "demo: an LSTM of 8 layers",
            "base": {**FINDING, "threads": min(cores, MOST_FINDING_THREADS)},
            "axes": {"scheduler": ["fork-join", "task"], "op_order": ["layers", "diagonals"]},
            "exclude": [{"scheduler": "task", "op_order": "diagonals"}],
            "primary": {"a": {"scheduler": "fork-join", "op_order": "layers"}, "b": {"scheduler": "task"}},
            "trace": "first",
            "repetitions": repetitions or FINDING_REPETITIONS,
        }
    )


def waiting_shares(rows: Sequence[EfficiencyRow]) -> dict[str, float]:
    """Share of the threads' time in which they wait for others, at barriers or without a ready task, by variant."""
    found = {}
    for row in rows:
        if row.waiting is not None:
            parts = dataclasses.asdict(row.waiting)
            waited_s = parts["serial_s"] + parts["load_balance_s"]
            by = " by diagonals" if row.variant.variant.get("op_order") == "diagonals" else ""
            found[f"{row.variant.scheduler}{by}"] = waited_s / (waited_s + parts["useful_s"] + parts["scheduling_s"])
    return found


def database_url(folder: Path) -> str:
    """URL of the database in a folder."""
    return f"sqlite:///{folder / 'taskloom.db'}"


def start(folder: Path, processes: Processes, peaks: str = "once") -> str:
    """Start a server and a worker whose files are in a folder; return the server's URL. Raises ProcessEnded."""
    worker = ["--spool", str(folder / "spool"), "--drain", "release", "--peaks", peaks]
    return processes.start_both(["--port", "0", "--database-url", database_url(folder)], worker)


def carry_out(
    model: str, repetitions: int | None, folder: Path, processes: Processes, as_json: bool, verbose: bool
) -> int:
    """Run the demo and return its exit code."""
    out, notes = console(), error_console()
    began = time.monotonic()
    url = start(folder, processes, peaks="idle")
    cores = launch.allowed_cores()
    wait = partial(_finished, notes=notes, folder=folder, check=processes.check)
    with Client(url) as client:
        notes.say(f"server {url}, worker on cores {','.join(map(str, cores))}")
        finished = wait(client, request(model, len(cores), repetitions))
        table = client.scaling(finished.id)
        elapsed_s, found, waiting = time.monotonic() - began, None, {}
        answered = f"the first answer, after {elapsed_s:.0f} s: {verdict_sentence(finished)}"
        notes.say(answered)
        if len(cores) > 1:  # on one core nothing waits for another thread
            found = wait(client, finding_request(len(cores), repetitions))
            waiting = waiting_shares(client.efficiency(found.id))
    scaling = dataclasses.asdict(table)
    (folder / "scaling.json").write_text(json.dumps(scaling, indent=2) + "\n")
    if as_json:
        document = {"folder": str(folder), "experiment_id": finished.id, "scaling": scaling}
        other = found and {"experiment_id": found.id, "verdict": _verdict(found), "waiting_shares": waiting}
        print_json({**document, "verdict": _verdict(finished), "finding": other})
        return 0
    rows = f"{counted(finished.runs // len(table.rows), 'process')} a row"
    out.print(tables.scaling(table, f"{model}: {counted(finished.runs, 'run')} in {elapsed_s:.0f} s, {rows}"))
    out.say(table.base)
    say_warnings(out, table.warnings, table.brief, verbose)
    ended = [each for each in (finished, found) if each is not None]
    lines = [
        "",
        f"this table as JSON: {folder / 'scaling.json'}",
        f"to see these results: taskloom up --database-url {database_url(folder)}",
        *(shown_at(each, DEFAULT_SERVER) for each in ended),
    ]
    if found is not None:
        lines.append(f"the second experiment, an LSTM of {FINDING['model']['layers']} layers: {found.runs} runs")
    if waiting:
        ordered = sorted(waiting.items(), key=lambda each: -each[1])
        parts = ", ".join(f"{share:.0%} under {name}" for name, share in ordered)
        lines.append(f"share of the time in which its threads wait for each other: {parts}")
    out.say(*lines, *(f"verdict: {verdict_sentence(each)}" for each in ended))
    return 0


def _finished(
    client: Client, request: ExperimentRequest, notes: Screen, folder: Path, check: Callable[[], None]
) -> ExperimentDetail:
    """An experiment once all its runs have succeeded. Raises DemoFailed."""
    experiment = client.submit(request)
    notes.say(f"experiment {experiment.id}: {counted(experiment.runs, 'run')}")
    finished = watch.until_finished(client, experiment.id, notes, check=check)
    lost = experiment.runs - finished.by_state.get("succeeded", 0)
    if lost:
        console().print(tables.runs(client.runs(experiment.id)))
        raise DemoFailed(f"{lost} of {experiment.runs} runs did not succeed; logs and database are in {folder}")
    return finished


def _verdict(experiment: ExperimentDetail) -> dict[str, Any] | None:
    return None if experiment.verdict is None else experiment.verdict.model_dump(mode="json")
