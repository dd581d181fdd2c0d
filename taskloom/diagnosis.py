"""Is this machine fit to measure on? Each function is one check, with its finding and advice."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpt2core.measure import counters, energy
from gpt2core.node import host
from gpt2core.node.load import MOST_BUSY_CORES
from gpt2core.process import launch
from gpt2core.process.child import spawning_on
from gpt2core.spec import extras, preflight
from gpt2core.spec.settings import cache_folder
from gpt2core.spec.wording import enumerated

STEAL_SAMPLE_S = 0.5
BUSY_LOAD_PER_CORE = 0.2
LITTLE_MEMORY_BYTES = 4 << 30  # gpt2-124m at batch 4, seq 64 needs about half of it
GIB = 1 << 30


@dataclass(frozen=True)
class Check:
    """Finding of one check. `advice` is empty if there is nothing to do."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def warn(name: str, found: str, advice: str) -> Check:
    return Check(name, "warn", found, advice)


def cores() -> Check:
    allowed = launch.allowed_cores()
    found = f"{host.cpu_model()}, {len(allowed)} usable of {os.cpu_count()}"
    quota = host.cgroup_cpu_quota_cores()
    if quota is not None and quota < len(allowed):
        return warn("cores", f"{found}, time limited to {quota:g} cores", "raise the container's CPU limit")
    if len(allowed) < 2:
        return warn("cores", found, "comparing schedulers needs two cores or more")
    return ok("cores", found)


def affinity() -> Check:
    allowed = launch.allowed_cores()
    try:
        with spawning_on([allowed[-1]]):
            pinned = os.sched_getaffinity(0) == {allowed[-1]}
    except OSError as error:
        return warn("affinity", f"a thread cannot be pinned: {error}", "allow sched_setaffinity in the sandbox")
    listed = ",".join(map(str, allowed))
    if not pinned:
        return warn("affinity", "pinning has no effect", "use a kernel that honours sched_setaffinity")
    return ok("affinity", f"threads can be pinned to {listed}")


def smt() -> Check:
    found = {core: host.smt(core) for core in launch.allowed_cores()}
    pairs = sorted({str(host.smt_siblings(core)) for core, shared in found.items() if shared})
    if pairs:
        advice = "give the worker one core of each pair with --cores"
        return warn("SMT", "logical cores share physical ones: " + "; ".join(pairs), advice)
    if None in found.values():
        return ok("SMT", "not shown")
    return ok("SMT", "every usable core is a physical one, as far as the machine reports")


def speeds() -> Check:
    """Whether the processor is hybrid."""
    allowed = launch.allowed_cores()
    speed = {core: host.capacity(core) for core in allowed}
    highest = max(speed.values())
    fastest = [core for core in allowed if speed[core] == highest]
    if len(fastest) == len(allowed):
        return ok("kinds of cores", "all usable cores are equally fast, as far as the machine reports")
    listed = ",".join(map(str, fastest))
    found = f"hybrid: of {len(allowed)} usable cores, {listed} are faster than the others"
    return warn("kinds of cores", found, f"give the worker cores of one kind: --cores {listed}")


def governor() -> Check:
    kinds = {host.governor(core) for core in launch.allowed_cores()}
    if kinds == {None}:
        return ok("governor", "not reported (usual on virtual machines)")
    if kinds == {"performance"}:
        return ok("governor", "performance")
    found = ", ".join(sorted(kind or "not shown" for kind in kinds))
    return warn("governor", found, "sudo cpupower frequency-set -g performance")


def turbo() -> Check:
    on = host.turbo()
    if on:
        return warn("turbo", "on: frequency depends on how many cores work", "turn it off for scaling studies")
    return ok("turbo", "not shown" if on is None else "off")


def load() -> Check:
    average = host.load_average()
    if average is None:
        return ok("load", "not shown")
    found = f"{average[0]:.2f} over the last minute"
    if average[0] > BUSY_LOAD_PER_CORE * len(launch.allowed_cores()):
        return warn("load", found, "stop other processes, or keep them off the measured cores")
    return ok("load", found)


def memory() -> Check:
    usable, limit = host.usable_memory_bytes(), host.cgroup_memory_limit_bytes()
    available = host.memory_info_bytes("MemAvailable")
    free = "free memory not shown" if available is None else f"{available / GIB:.1f} GiB free"
    found = f"{usable / GIB:.1f} GiB usable, {free}"
    found += f", cgroup limit {limit / GIB:.1f} GiB" if limit is not None else ", no cgroup limit"
    if min(usable, usable if available is None else available) < LITTLE_MEMORY_BYTES:
        return warn("memory", found, "gpt2-124m may not fit; `taskloom train --plan` prints the memory of a run")
    return ok("memory", found)


def huge_pages() -> Check:
    mode = host.huge_pages()
    if mode in ("always", "madvise"):
        return ok("huge pages", mode)
    return warn("huge pages", mode or "not shown", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")


def bf16() -> Check:
    """The instructions for products of bfloat16, without which they take as long as those of float32."""
    about = host.processor()
    if not {"flags", "Features"} & about.keys():
        return ok("bf16", "not shown")
    flags = {*about.get("flags", "").split()}
    found = [name for name in ("amx_bf16", "avx512_bf16") if name in flags]
    if found:
        return ok("bf16", f"products by {enumerated(found)}")
    return ok("bf16", "no instructions: operands are rounded and multiplied as float32, so bf16 is not faster")


def blas() -> Check:
    found = []
    for package in ("mkl", "scipy"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    if not found:
        return warn("BLAS", "none", "pip install mkl (x86-64) or scipy")
    if platform.machine() == "x86_64" and not found[0].startswith("mkl"):
        return warn("BLAS", found[0], "pip install mkl, which is faster here")
    return ok("BLAS", ", ".join(found))


def products() -> Check:
    """This user's tables of products, and the load during their measurement."""
    loads: dict[Path, list[float]] = {}
    for path in cache_folder().glob("products-*.json"):
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))["choices"]
            loads[path] = [each.get("busy_cores") or 0.0 for each in rows]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return warn("products", f"{path} cannot be read", f"rm {path}")
    count = sum(map(len, loads.values()))
    worst = [path for path, each in loads.items() if max(each, default=0.0) > MOST_BUSY_CORES]
    if not count:
        return ok("products", "none measured yet; a run measures its matrix products and stores the fastest library")
    if not worst:
        return ok("products", f"{count} choices, none measured while other processes kept cores busy")
    disturbed = sum(busy > MOST_BUSY_CORES for each in loads.values() for busy in each)
    most = max(busy for each in loads.values() for busy in each)
    found = f"{disturbed} of {count} choices were measured while other processes kept up to {most:.1f} cores busy"
    advice = f"to measure them again, which changes the fingerprint of results: rm {' '.join(map(str, worst))}"
    return warn("products", found, advice)


def perf_counters() -> Check:
    try:
        os.close(counters.open_counter(*counters.EVENTS["cycles"]))
    except OSError as error:
        forbidden = error.errno in (errno.EACCES, errno.EPERM)
        advice = "sudo sysctl kernel.perf_event_paranoid=2" if forbidden else "results will not contain counters"
        return warn("perf counters", counters.why_not(error), advice)
    return ok("perf counters", "hardware counters can be read")


def rapl() -> Check:
    meter = energy.Meter()
    if energy.PACKAGE in meter.unavailable:
        return ok("energy", f"not measured: {meter.unavailable[energy.PACKAGE]}")
    return ok("energy", f"RAPL of {', '.join(zone.name for zone in meter.zones)}")


def clock() -> Check:
    source = host.clock_source()
    resolution_ns = time.get_clock_info("monotonic").resolution * 1e9
    found = f"{source or 'not shown'}, monotonic to {resolution_ns:g} ns"
    if source in ("tsc", "arch_sys_counter", "kvm-clock", None):
        return ok("clock", found)
    return warn("clock", found, "a slow clock source adds to every timed task; prefer tsc")


def steal() -> Check:
    before = host.cpu_times_ticks()
    time.sleep(STEAL_SAMPLE_S)
    after = host.cpu_times_ticks()
    total = sum(after.values()) - sum(before.values())
    if not before or total <= 0:  # an imitation stands still
        return ok("steal time", "not shown")
    since_boot = after["steal"] / sum(after.values())
    now = (after["steal"] - before["steal"]) / total
    found = f"{100 * now:.1f} % now, {100 * since_boot:.2f} % since boot"
    if max(now, since_boot) > 0.01:
        return warn("steal time", found, "other virtual machines take time from this one; use a dedicated host")
    return ok("steal time", found)


def preloaded() -> Check:
    """Libraries that the user's environment puts before those of every program."""
    named = [name for name in re.split("[ :]+", os.environ.get("LD_PRELOAD", "")) if name]
    if not named:
        return ok("preloaded libraries", "none")
    missing = [name for name in named if "/" in name and not Path(name).exists()]
    found = ", ".join(named) + (f"; missing: {', '.join(missing)}" if missing else "")
    return warn("preloaded libraries", found, "unset LD_PRELOAD: such libraries may change times and bits of results")


CHECKS: tuple[Callable[[], Check], ...] = (
    cores,
    affinity,
    smt,
    speeds,
    governor,
    turbo,
    load,
    memory,
    huge_pages,
    bf16,
    blas,
    products,
    perf_counters,
    rapl,
    clock,
    steal,
    preloaded,
)


# Our processes that this machine may start, each with what it needs to be started at all.
PROCESSES: dict[str, Callable[[], bool]] = {
    "gpt2core": lambda: extras.has("worker"),
    "taskloom.worker": lambda: extras.has("worker"),
    "taskloom.server": lambda: extras.has("server"),
    "taskloom.provisioner": lambda: extras.has("provisioner") and shutil.which("sbatch") is not None,
}


def surroundings(pools: str | None = None) -> tuple[list[Check], str | None]:
    """What each of our processes checks before its work; and why nothing can be trained here, or None.

    pools: the provisioner's file, for all that it checks.
    """
    further = {} if pools is None else {"taskloom.provisioner": [pools]}
    started = {
        module: subprocess.Popen(
            [sys.executable, "-P", "-m", module, preflight.OPTION, *further.get(module, ())],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process
        )
        for module, can_start in PROCESSES.items()
        if can_start() or module in further
    }
    found: dict[str, preflight.Finding] = {}
    unfit = None
    try:
        for module, process in started.items():
            output, _ = process.communicate()
            for finding in _read(module, output.decode(errors="replace"), process.returncode):
                if finding.name not in found or finding.advice:
                    found[finding.name] = finding
                if module == "gpt2core" and finding.advice and unfit is None:
                    unfit = finding.advice
    finally:
        for process in started.values():
            process.kill()  # after Ctrl-C; else all have ended
    checks = [Check(each.name, "fail" if each.advice else "ok", each.found, each.advice) for each in found.values()]
    return checks, unfit


def _read(module: str, output: str, code: int) -> list[preflight.Finding]:
    """What a process found; if it printed nothing of this, its end. Its error is on standard error."""
    try:
        return preflight.read(output)
    except ValueError:
        return [preflight.Finding(module, "not usable", f"the checks of {module} ended with exit code {code}")]


def examine() -> list[Check]:
    """Every check of the machine, in order."""
    return [check() for check in CHECKS]
