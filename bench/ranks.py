"""Fork-join against tasks with two ranks that are connected by a slow network.

    sudo python -m bench.ranks --rate 1gbit --rounds 6

`--parallel data,tensor` adds ranks that divide the matrices to those that divide the batch; their losses must agree. So
do those of hybrid ranks of a VGG, whose sizes are JSON:

    sudo python -m bench.ranks --parallel data,hybrid --batch 64 \\
        --model '{"network": "vgg", "width": 16, "hidden": 4096}'

Peers, if PyTorch is installed: `--ddp-buckets 1,5,25` (MiB) adds DistributedDataParallel over gloo for each bucket_cap,
with the same weights, data, cores and threads; their losses must agree with ours.

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
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ratios import HOW, limits, ratio
from bench.record import ROOT, Measured, head, machine, out_option, save
from bench.rounds import round_order
from bench.step import LOSS_TOLERANCE, prepare
from bench.torch_ddp import run_ddp
from gpt2core.process import launch
from gpt2core.process.ranks import HYDRA, launcher
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import model_from
from gpt2core.spec.networks import Model
from gpt2core.spec.result import median

RANKS, ALONE, BASE, DDP = 2, "one rank", "fork-join", "torch-ddp-"
ADDRESS, WIRE, LINK_UP_S = "10.77.0.{}", "wire", 5.0
TIMES = ("calls_s", "in_flight_s", "exposed_s")
OVER_THE_LINK = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self",
                 "UCX_NET_DEVICES": WIRE}  # fmt: skip
NODES = ("first", "second")  # host names of two_nodes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rate", default="1gbit", help="limit of each direction, as tc has it (default: %(default)s)")
    parser.add_argument("--model", type=parsed_model, default="gpt2-124m", help="a preset, or sizes as JSON")
    parser.add_argument("--batch", type=int, default=4, help="of all ranks together (default: %(default)s)")
    parser.add_argument("--seq", type=int, help="default: 64, or 1 of images")
    threads = max(len(launch.allowed_cores()) // RANKS, 1)
    parser.add_argument("--threads", type=int, default=threads, help="of each rank (default: %(default)s)")
    parser.add_argument("--schedulers", default="fork-join,task")
    parser.add_argument("--parallel", default="data", help="what ranks divide, with commas: data, tensor, hybrid")
    parser.add_argument("--ddp-buckets", default="", help="bucket_cap_mb of PyTorch's DDP, with commas")
    parser.add_argument("--steps", type=int, default=8, help="of each process, warm-up included")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    out_option(parser, "ranks")
    given = parser.parse_args()
    given.seq = given.seq or min(64, given.model.context)
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        parser.error("network namespaces need root, and ip and tc of the package iproute2")
    return given


def parsed_model(text: str) -> Model:
    """The model of a preset's name, or of sizes as JSON. Raises ArgumentTypeError."""
    try:
        return model_from(json.loads(text) if text.startswith("{") else text)
    except (ValueError, ConfigError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
        until = time.monotonic() + LINK_UP_S
        while any(link(name)["operstate"] != "UP" for name in names):  # UCX leaves out a device that is not yet up
            if time.monotonic() > until:
                raise SystemExit(f"the link between the namespaces is not up after {LINK_UP_S} s")
            time.sleep(0.01)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def link(name: str) -> dict[str, Any]:
    """A namespace's end of the link, with its statistics, as `ip` describes it."""
    shown = subprocess.run(
        ["ip", "-n", name, "-j", "-s", "link", "show", "dev", WIRE], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(shown.stdout)[0]
    return found


def sent_bytes(name: str) -> int:
    """Bytes that a namespace has sent over the link."""
    return int(link(name)["stats64"]["tx"]["bytes"])


def over_the_link(names: list[str], script: Path) -> list[str]:
    """MPICH's launcher in the first namespace, for a rank there and one in the second, which the script starts: its
    arguments up to the number of ranks."""
    mpiexec, *options = launcher(RANKS)
    if tuple(options[: len(HYDRA)]) != HYDRA:
        raise SystemExit("the ranks are started by MPICH's launcher, which is not installed")
    hosts = ",".join(ADDRESS.format(number) for number in (1, 2))
    return ["ip", "netns", "exec", names[0], mpiexec, "-launcher", "ssh", "-launcher-exec", str(script),
            "-hosts", hosts]  # fmt: skip


@contextlib.contextmanager
def two_nodes(rate: str, folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a worker whose runs on two nodes have a rank in each namespace, under a host name and on a
    core of its own. folder: for the scripts that start them."""
    cores = launch.allowed_cores()[:RANKS]
    if len(cores) < RANKS:
        raise SystemExit(f"{RANKS} ranks need a core each, but this process may use {len(cores)}")
    bound = [f"exec taskset -c {core} unshare --uts sh -c" for core in cores]
    with namespaces(rate) as names:
        first, second = (folder / f"{name}.sh" for name in NODES)
        start = shlex.join(over_the_link(names, second))
        write_script(first, f"{bound[0]} 'hostname {NODES[0]}; exec \"$@\"' sh {start} \"$@\"\n")
        inside = f"exec ip netns exec {names[1]} $*"
        write_script(second, f"shift 2\n{bound[1]} \"hostname {NODES[1]}; {inside}\"\n")
        launched = f"{shlex.quote(str(first))} -n {{ranks}}"
        yield {**OVER_THE_LINK, "TASKLOOM_NODES": str(RANKS), "TASKLOOM_LAUNCHER": launched}


def write_script(path: Path, commands: str) -> None:
    path.write_text(f"#!/bin/sh\n{commands}")
    path.chmod(0o700)


def measure(config: TrainConfig, names: list[str], folder: Path) -> Measured:
    """One run's timed steps, and what its communication took. names: of the namespaces."""
    result, before = folder / "result.json", sent_bytes(names[0])
    trainer = launch.command(result)
    if config.ranks > 1:
        script = folder / "launch.sh"  # gets what MPICH would start on another host: OPTION HOST COMMAND...
        write_script(script, f'shift 2\nexec ip netns exec {names[1]} sh -c "$*"\n')
        trainer = [*over_the_link(names, script), "-n", str(RANKS), *trainer, "--ranks", str(RANKS)]
    done = subprocess.run(
        trainer, input=json.dumps(config.to_dict()), env=launch.environment() | OVER_THE_LINK, cwd=ROOT, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the run ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = json.loads(result.read_text(encoding="utf-8"))
    counted = sum(each["bytes_sent"] for rank in found["communication"][:1] for each in rank["exchanges"])
    if sent_bytes(names[0]) - before < counted:
        raise SystemExit("the ranks did not exchange everything over the link: is there another way between them?")
    warmup = int(found["config"]["warmup"])
    # Of each rank without its times of single steps, which would be half of a recording.
    ranks = [{name: value for name, value in rank.items() if name not in TIMES} for rank in found["communication"]]
    most = {name: max((median(rank[name][warmup:]) for rank in found["communication"]), default=0.0) for name in TIMES}
    return {
        "step_s": found["step_s"][warmup:], **most, "communication": ranks,
        "flagged": found["flagged"][warmup:], "losses": found["losses"], "mpi": found["environment"].get("mpi"),
    }  # fmt: skip


def measure_ddp(config: TrainConfig, bucket_mb: int, names: list[str]) -> Measured:
    """The same of PyTorch's ranks. config: of the whole batch, with the cores of all ranks."""
    every, threads = config.cores or (), config.threads
    places = [
        (("ip", "netns", "exec", name), every[rank * threads : (rank + 1) * threads]) for rank, name in enumerate(names)
    ]
    found = run_ddp(config, bucket_mb, places, ADDRESS.format(1), WIRE)
    return {**found, "step_s": found["step_s"][config.warmup_steps :]}


def variants(given: argparse.Namespace, base: TrainConfig) -> dict[str, TrainConfig]:
    """The configurations by their names. base: what they share."""
    cores = tuple(launch.allowed_cores())
    common: dict[str, Any] = {"seq": given.seq, "threads": given.threads}
    whole = {"batch": given.batch, "ranks": RANKS, "cores": cores[: RANKS * given.threads], **common}
    found = {
        scheduler if parallel == "data" else f"{scheduler} {parallel}": dataclasses.replace(
            base, scheduler=scheduler, parallel=parallel, **whole
        )
        for parallel in given.parallel.split(",") for scheduler in given.schedulers.split(",")
    }  # fmt: skip
    peers = {f"{DDP}{each}": dataclasses.replace(base, **whole) for each in given.ddp_buckets.split(",") if each}
    alone = {"batch": given.batch // RANKS, "scheduler": BASE, "cores": cores[: given.threads], "fusion": "rows"}
    return {ALONE: dataclasses.replace(base, **alone, **common), **found, **peers}


def compare(medians: dict[str, list[float]]) -> list[Measured]:
    """The ratios of steps: each scheduler's to fork-join's of the same ranks, that of ranks that divide matrices to
    that of ranks that divide the batch, and each to each peer's."""
    peers, pairs = [name for name in medians if name.startswith(DDP)], list[tuple[str, str]]()
    for name in (each for each in medians if each not in (ALONE, *peers)):
        scheduler, *parallel = name.split(" ")
        others = dict.fromkeys([" ".join([BASE, *parallel]), scheduler, *peers])
        pairs += [(name, other) for other in others if other in medians and other != name]
    return [{"step": a, "of": b, **ratio(medians[a], medians[b])} for a, b in pairs]


def check_losses(runs: dict[str, list[Measured]]) -> None:
    """Raises SystemExit if the losses of two variants of the whole batch differ."""
    ours = next(mine[0]["losses"] for name, mine in runs.items() if name != ALONE)
    for name, mine in runs.items():
        for each in mine if name != ALONE else ():
            apart = max(abs(a / b - 1) for a, b in zip(each["losses"], ours, strict=True))
            if apart > LOSS_TOLERANCE["fp32"]:
                raise SystemExit(f"{name}: its losses differ by {apart:.1e} from ours, so there is no ratio")


def main() -> None:
    given, before = arguments(), machine()
    fixed = {"seed": 1337, "grad_accum": 1, "mode": "train", "logits": "all"}
    with namespaces(given.rate) as names, tempfile.TemporaryDirectory(prefix="bench-ranks-") as at:
        folder = Path(at)
        base = prepare(folder, argparse.Namespace(**vars(given), **fixed), given.batch * given.seq)
        configs = variants(given, base)
        runs: dict[str, list[Measured]] = {name: [] for name in configs}
        for number in range(given.rounds):
            for name in round_order(list(configs), number):
                bucket = name.removeprefix(DDP)
                if bucket == name:
                    runs[name].append(measure(configs[name], names, folder))
                else:
                    runs[name].append(measure_ddp(configs[name], int(bucket), names))
                step_ms = 1e3 * median(runs[name][-1]["step_s"])
                print(f"[round {number + 1}] {name}: {step_ms:.0f} ms a step", flush=True)
    check_losses(runs)
    report = {
        **head("taskloom.bench.ranks/1", before), "rate": given.rate,
        "configs": {name: config.to_dict() for name, config in configs.items()},
        "comparisons": compare({name: [median(each["step_s"]) for each in mine] for name, mine in runs.items()}),
        "how": HOW, "runs": runs,
    }  # fmt: skip
    save(given.out, report, table(report))


def table(report: Measured) -> str:
    """Medians over the rounds, and the ratios."""
    lines = [
        f"Two ranks, {report['rate']} in each direction; medians over the rounds, in milliseconds.", "",
        "| variant | step | in calls | in flight | exposed |",
        "| -- | --: | --: | --: | --: |",
    ]  # fmt: skip
    for name, mine in report["runs"].items():
        times = [f"{1e3 * median([e[t] for e in mine]):.1f}" if t in mine[0] else "" for t in TIMES]
        step_s = median([median(each["step_s"]) for each in mine])
        lines.append(f"| {' | '.join([name, f'{1e3 * step_s:.1f}', *times])} |")
    lines += ["", "| step of | / step of | ratio | 95 % interval |", "| -- | -- | --: | --: |"]
    for each in report["comparisons"]:
        lines.append(f"| {each['step']} | {each['of']} | {each['ratio']:.3f} | {limits(each['ratio_interval'])} |")
    return "\n".join([*lines, "", f"Ratios: {report['how']}.", ""])


if __name__ == "__main__":
    main()
