"""`taskloom demo`: a server, a worker and one experiment on this machine, from start to verdict."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gpt2core.process import launch
from taskloom import DEFAULT_SERVER, tables, watch
from taskloom.analysis.wording import counted
from taskloom.client import Client
from taskloom.commands.output import console, error_console, print_json, say_verdict, say_warnings
from taskloom.contract.experiments import ExperimentRequest
from taskloom.errors import EXIT_WORK_FAILED, TaskloomError
from taskloom.processes import Processes

MODELS: dict[str, dict[str, Any]] = {
    "small": {"model": "small", "batch": 4, "seq": 128, "steps": 10, "batch_slice": 1, "token_slice": 64},
    "gpt2-124m": {"model": "gpt2-124m", "batch": 4, "seq": 64, "steps": 5, "batch_slice": 1, "token_slice": 64},
}


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
    with Client(url) as client:
        experiment = client.submit(request(model, len(cores), repetitions))
        text = f"server {url}, worker on cores {','.join(map(str, cores))}, experiment {experiment.id}: "
        notes.print(text + counted(experiment.runs, "run"), highlight=False, soft_wrap=True)
        finished = watch.until_finished(client, experiment.id, notes, check=processes.check)
        lost = experiment.runs - finished.by_state.get("succeeded", 0)
        if lost:
            out.print(tables.runs(client.runs(experiment.id)))
            raise DemoFailed(f"{lost} of {experiment.runs} runs did not succeed; logs and database are in {folder}")
        table = client.scaling(experiment.id)
    (folder / "scaling.json").write_text(table.model_dump_json(indent=2) + "\n")
    if as_json:
        told = {"folder": str(folder), "experiment_id": experiment.id, "scaling": table.model_dump(mode="json")}
        print_json({**told, "verdict": finished.verdict and finished.verdict.model_dump(mode="json")})
        return 0
    rows = f"{counted(finished.runs // len(table.rows), 'process')} a row"
    title = f"{model}: {counted(finished.runs, 'run')} in {time.monotonic() - began:.0f} s, {rows}"
    out.print(tables.scaling(table, title))
    out.print(table.base, markup=False, highlight=False, soft_wrap=True)
    say_warnings(out, table.warnings, table.brief, verbose)
    for line in (
        "",
        f"this table as JSON: {folder / 'scaling.json'}",
        f"to see these results: taskloom up --database-url {database_url(folder)}",
    ):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    say_verdict(out, finished, DEFAULT_SERVER)
    return 0
