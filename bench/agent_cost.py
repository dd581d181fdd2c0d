"""Cost of heartbeats: the same run with fifteen times the usual number of heartbeats, and with none.

    python -m bench.agent_cost --rounds 16

The cost of one heartbeat in 15 s is too small to be measured, so the usual cost is a fifteenth of the measured excess.
Each arm has its own server and worker, which wait while another arm runs. In each round every arm runs once, in a
random order. A run is a fresh trainer on all cores, so that the agent has no core to itself. The figure of a run is the
total of its timed steps, since a heartbeat disturbs few steps and a median would not show it. Arms are compared by the
ratios of their rounds, with an exact interval from six rounds on. The agent's processor time is reported too. Raw
samples, the machine and a table are written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.ratios import HOW, limits, ratio
from bench.record import ROOT, Measured, head, machine, out_option, save
from bench.rounds import round_order
from gpt2core.process import launch
from gpt2core.spec.result import median
from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest

ARMS = {"none": 3600.0, "many": 1.0}  # seconds between heartbeats
USUAL_S = 15.0
BASE = "none"
MODEL = {"layers": 4, "heads": 4, "channels": 256, "vocab": 256, "context": 256}
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Arm:
    """A server and its worker."""

    client: Client
    agent: psutil.Process


@contextlib.contextmanager
def arm(folder: Path, heartbeat_s: float) -> Iterator[Arm]:
    """A server with this heartbeat interval and without background work, and a worker."""
    folder.mkdir()
    settings = {"HEARTBEAT_S": heartbeat_s, "LEASE_S": 7200, "POLL_S": 600, "REAP_EVERY_S": 600}
    environment = {**os.environ, **{f"TASKLOOM_{name}": str(value) for name, value in settings.items()}}
    with contextlib.ExitStack() as stack:

        def start(*command: str) -> subprocess.Popen[str]:
            log = stack.enter_context((folder / f"{command[1]}.log").open("w"))
            process = subprocess.Popen(
                [sys.executable, *command], stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment
            )
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            return process

        server = start("-P", "-m", "taskloom.server", "--port", "0", "--database-url", f"sqlite:///{folder}/bench.db")
        assert server.stdout
        url = json.loads(server.stdout.readline())["url"]
        worker = start("-P", "-m", "taskloom.worker", "--server", url, "--spool", str(folder / "spool"))
        yield Arm(stack.enter_context(Client(url)), psutil.Process(worker.pid))


def run(on: Arm, request: ExperimentRequest) -> Measured:
    """One run: its timed steps, and the agent's processor time."""
    before, started = on.agent.cpu_times(), time.monotonic()
    experiment = on.client.submit(request)
    while on.client.experiment(experiment.id).state == "active":
        time.sleep(1.0)  # equal in every arm
        if time.monotonic() > started + PATIENCE_S:
            raise SystemExit(f"no end after {PATIENCE_S:.0f} s")
    elapsed_s, after = time.monotonic() - started, on.agent.cpu_times()
    (found,) = on.client.runs(experiment.id)
    result = on.client.result(found.id)
    timed_s = result["step_s"][result["config"]["warmup"] :]
    agent_s = after.user + after.system - before.user - before.system
    return {
        "total_s": sum(timed_s), "step_s": timed_s, "elapsed_s": elapsed_s, "agent_s": agent_s,
        "agent_shared_measured_cores": result["worker"]["agent_shared_measured_cores"], "losses": result["losses"],
    }  # fmt: skip


def measure(request: ExperimentRequest, rounds: int, most_s: float, folder: Path) -> list[Measured]:
    """Every arm once per round, with no new round after the time limit. Ends the benchmark if losses differ."""
    runs: list[Measured] = []
    with contextlib.ExitStack() as stack:
        arms = {name: stack.enter_context(arm(folder / name, every_s)) for name, every_s in ARMS.items()}
        losses = run(arms[BASE], request)["losses"]  # compiles if necessary
        started = time.monotonic()
        for round_no in range(rounds):
            if time.monotonic() > started + most_s:
                break
            for name in round_order(list(arms), round_no):
                runs.append({"round": round_no, "arm": name, **run(arms[name], request)})
                if runs[-1].pop("losses") != losses:
                    raise SystemExit(f"{name}: losses differ from those of the first run")
                print(f"[{len(runs)}/{rounds * len(arms)}] {name}: {runs[-1]['total_s']:.3f} s", flush=True)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent_cost", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rounds", type=int, default=16, help="runs of each arm")
    parser.add_argument("--most-s", type=float, default=600.0, help="no new round begins after that long")
    parser.add_argument("--steps", type=int, default=70)
    out_option(parser, "agent-cost")
    given = parser.parse_args()
    base = {
        "model": MODEL, "batch": 4, "seq": 128, "steps": given.steps, "warmup": 10, "data": "stdlib",
        "threads": len(launch.allowed_cores()), "batch_slice": 1, "token_slice": 64,
    }  # fmt: skip
    on = machine()
    with tempfile.TemporaryDirectory(prefix="bench-agent-") as folder:
        runs = measure(ExperimentRequest.model_validate({"base": base}), given.rounds, given.most_s, Path(folder))
    report = {
        **head("taskloom.bench.agent-cost/1", {**on, "load_average_after": machine()["load_average"]}),
        "command": ["--rounds", str(given.rounds), "--steps", str(given.steps)],
        "base": base,
        "runs": runs,
        "rows": [row(name, runs) for name in ARMS],
    }
    save(given.out, report, table(report))


def row(name: str, runs: list[Measured]) -> Measured:
    """An arm compared with the one without heartbeats."""
    totals = {each: [r["total_s"] for r in runs if r["arm"] == each] for each in (name, BASE)}
    found = ratio(totals[name], totals[BASE])
    mine = [r for r in runs if r["arm"] == name]
    return {
        "arm": name,
        "heartbeat_s": ARMS[name],
        "median_total_s": median(totals[name]),
        "min_total_s": min(totals[name]),
        "max_total_s": max(totals[name]),
        **found,
        "usual_cost": (found["ratio"] - 1) * ARMS[name] / USUAL_S,
        "usual_cost_interval": found["ratio_interval"]
        and [(end - 1) * ARMS[name] / USUAL_S for end in found["ratio_interval"]],
        "agent_share": sum(r["agent_s"] for r in mine) / sum(r["elapsed_s"] for r in mine) / (os.cpu_count() or 1),
    }


def table(report: Measured) -> str:
    """The rows as Markdown."""
    of, base = report["machine"], report["base"]
    lines = [
        f"# What heartbeats cost a run, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, Linux {of['kernel']}; load average "
        f"{of['load_average'][0]:.2f} before, {of['load_average_after'][0]:.2f} after. GPT-2 of "
        f"{base['model']['layers']} layers, {base['model']['channels']} channels, B{base['batch']} T{base['seq']}, "
        f"{base['threads']} threads on all cores, so that agent and server share them; "
        f"{base['steps'] - base['warmup']} timed steps a run, "
        f"{len(report['runs']) // len(ARMS)} rounds of fresh processes in random order.", "",
        f"Ratio: timed steps' total / that of {BASE}, above 1 where the arm is slower, {HOW}. "
        "Agent: its processor time (the worker's process; claim and delivery included) as a "
        "share of the machine's while the run lasted.", "",
        "| arm | seconds between heartbeats | timed steps, s | fastest to slowest, s | ratio | 95 % | agent |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in report["rows"]:
        lines.append(
            f"| {r['arm']} | {r['heartbeat_s']:g} | {r['median_total_s']:.3f} | {r['min_total_s']:.3f} to "
            f"{r['max_total_s']:.3f} | {r['ratio']:.4f} | {limits(r['ratio_interval'], 4)} | {r['agent_share']:.3%} |"
        )
    many = report["rows"][-1]
    usual = many["usual_cost_interval"]
    bounds = "" if usual is None else f" (95 % {usual[0]:.2%} to {usual[1]:.2%})"
    lines += ["", f"One heartbeat in {USUAL_S:g} s, the servers' default, costs {many['usual_cost']:.2%} of a run"
              f"{bounds}: the measured excess divided by the ratio of heartbeats."]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
