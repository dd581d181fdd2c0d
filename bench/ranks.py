"""Fork-join against tasks with two ranks that are connected by a slow network.

    sudo python -m bench.ranks --rate 1gbit --rounds 6

Each rank runs in a network namespace of its own on its own cores. A virtual link connects the two; `tc tbf` limits both
directions to the rate. MPICH sends everything over it (TCP), nothing through shared memory. In each round every variant
runs once as fresh processes, in a random order, so rounds are pairs: `one rank` is the same part of the batch on one
rank's cores without communication, the others are schedulers. Times of communication are those of the result: in calls
of the library, in flight, and exposed, of the rank with more of it, in the median timed step. It needs root, `ip` and
`tc`. Results go to bench/results/.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ratios import HOW, ratio, told
from bench.record import ROOT, Measured, head, machine, out_option, save
from bench.rounds import round_order
from gpt2core.process import launch
from gpt2core.process.ranks import HYDRA, launcher
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.result import median

RANKS, ALONE, BASE = 2, "one rank", "fork-join"
ADDRESS, WIRE = "10.77.0.{}", "wire"
TIMES = ("calls_s", "in_flight_s", "exposed_s")
OVER_THE_LINK = {"MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": "tcp"}
LAUNCH = """#!/bin/sh
# Starts what MPICH's launcher would start on another host: OPTION HOST COMMAND...
shift 2
exec ip netns exec {} sh -c "$*"
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rate", default="1gbit", help="limit of each direction, as tc has it (default: %(default)s)")
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=4, help="of all ranks together (default: %(default)s)")
    parser.add_argument("--seq", type=int, default=64)
    threads = max(len(launch.allowed_cores()) // RANKS, 1)
    parser.add_argument("--threads", type=int, default=threads, help="of each rank (default: %(default)s)")
    parser.add_argument("--schedulers", default="fork-join,task")
    parser.add_argument("--steps", type=int, default=8, help="of each process, warm-up included")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    out_option(parser, "ranks")
    given = parser.parse_args()
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        parser.error("network namespaces need root, and ip and tc of the package iproute2")
    return given


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@contextlib.contextmanager
def namespaces(rate: str) -> Iterator[list[str]]:
    """Two network namespaces, connected by a link whose directions are limited. They are gone afterwards."""
    names = [f"ranks{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", WIRE, "netns", names[0], "type", "veth", "peer", "name", WIRE, "netns", names[1])
        for number, name in enumerate(names, start=1):
            run("ip", "-n", name, "addr", "add", f"{ADDRESS.format(number)}/24", "dev", WIRE)
            for device in ("lo", WIRE):
                run("ip", "-n", name, "link", "set", device, "up")
            run("tc", "-n", name, "qdisc", "add", "dev", WIRE, "root", "tbf", "rate", rate, "burst", "256kb",
                "latency", "50ms")  # fmt: skip
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def measure(config: TrainConfig, names: list[str], folder: Path) -> Measured:
    """One run's timed steps, and what its communication took. names: of the namespaces."""
    result = folder / "result.json"
    trainer = launch.command(result)
    if config.ranks > 1:
        script = folder / "launch.sh"
        script.write_text(LAUNCH.format(names[1]))
        script.chmod(0o700)
        mpiexec, *options = launcher(RANKS)
        if tuple(options[: len(HYDRA)]) != HYDRA:
            raise SystemExit("the ranks are started by MPICH's launcher, which is not installed")
        hosts = ",".join(ADDRESS.format(number) for number in (1, 2))
        trainer = ["ip", "netns", "exec", names[0], mpiexec, "-launcher", "ssh", "-launcher-exec", str(script),
                   "-hosts", hosts, "-n", str(RANKS), *trainer, "--ranks", str(RANKS)]  # fmt: skip
    done = subprocess.run(
        trainer, input=json.dumps(config.to_dict()), env=launch.environment() | OVER_THE_LINK, cwd=ROOT, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the run ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = json.loads(result.read_text(encoding="utf-8"))
    warmup = int(found["config"]["warmup"])
    most = {name: max((median(rank[name][warmup:]) for rank in found["communication"]), default=0.0) for name in TIMES}
    return {
        "step_s": found["step_s"][warmup:], **most, "communication": found["communication"],
        "flagged": found["flagged"][warmup:], "losses": found["losses"], "mpi": found["environment"].get("mpi"),
    }  # fmt: skip


def variants(given: argparse.Namespace) -> dict[str, TrainConfig]:
    """The configurations by their names."""
    cores = tuple(launch.allowed_cores())
    common: dict[str, Any] = {"model": given.model, "seq": given.seq, "threads": given.threads, "steps": given.steps,
                              "warmup": given.warmup}  # fmt: skip
    every = cores[: RANKS * given.threads]
    found = {
        name: TrainConfig(batch=given.batch, ranks=RANKS, scheduler=name, cores=every, **common)
        for name in given.schedulers.split(",")
    }
    alone = TrainConfig(batch=given.batch // RANKS, scheduler=BASE, cores=cores[: given.threads], **common)
    return {ALONE: dataclasses.replace(alone, fusion="rows"), **found}


def main() -> None:
    given, before = arguments(), machine()
    configs = variants(given)
    runs: dict[str, list[Measured]] = {name: [] for name in configs}
    with namespaces(given.rate) as names, tempfile.TemporaryDirectory(prefix="bench-ranks-") as folder:
        for number in range(given.rounds):
            for name in round_order(list(configs), number):
                runs[name].append(measure(configs[name], names, Path(folder)))
    medians = {name: [median(each["step_s"]) for each in mine] for name, mine in runs.items()}
    report = {
        **head("taskloom.bench.ranks/1", before), "rate": given.rate,
        "configs": {name: config.to_dict() for name, config in configs.items()},
        "comparisons": {name: ratio(medians[name], medians[BASE]) for name in configs if name not in (ALONE, BASE)}
        if BASE in configs else {},
        "how": HOW, "runs": runs,
    }  # fmt: skip
    save(given.out, report, table(report))


def table(report: Measured) -> str:
    """Medians over the rounds, and each scheduler's step in terms of fork-join's."""
    lines = [
        f"Two ranks, {report['rate']} in each direction; medians over the rounds, in milliseconds.", "",
        "| variant | step | in calls | in flight | exposed | step / fork-join's | 95 % interval |",
        "| -- | --: | --: | --: | --: | --: | --: |",
    ]  # fmt: skip
    for name, mine in report["runs"].items():
        found = report["comparisons"].get(name)
        times = [median([median(each["step_s"]) for each in mine]), *(median([e[t] for e in mine]) for t in TIMES)]
        told_ratio = ["-", "-"] if found is None else [f"{found['ratio']:.3f}", told(found["ratio_interval"])]
        lines.append(f"| {' | '.join([name, *(f'{1e3 * each:.1f}' for each in times), *told_ratio])} |")
    return "\n".join([*lines, "", f"Ratios: {report['how']}.", ""])


if __name__ == "__main__":
    main()
