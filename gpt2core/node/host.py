"""Facts about this machine from /proc and /sys. None: unknown. Standard library only."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CPU = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 1 << 60  # version 1 cgroups write a number of about this size for "no limit"
FASTEST, EFFICIENT = 1024, 512  # capacity of cores where Linux gives no number
TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # of a line of /proc/stat
BUSY = ("user", "nice", "system", "irq", "softirq")
ARM_NUMBERS = ("implementer", "part", "variant", "revision")  # each after "CPU" in /proc/cpuinfo


def read_text(path: Path) -> str | None:
    """A small file's stripped text, or None if it cannot be read or is empty; without NUL, which no database takes."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace("\0", "\ufffd").strip() or None
    except OSError:
        return None


def whole(text: str | None) -> int | None:
    """The number that a text is, of at most 63 bits. None: another text, or a negative number, by which Linux means
    that there is none."""
    if text is None or not re.fullmatch("[0-9]{1,19}", text):
        return None
    number = int(text)
    return number if number < 1 << 63 else None


def read_int(path: Path) -> int | None:
    """A small file's integer, or None if there is none."""
    return whole(read_text(path))


def processor() -> dict[str, str]:
    """What Linux reports of the first processor and of all together, by its names for this architecture."""
    about: dict[str, str] = {}
    for line in (read_text(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        about.setdefault(key.strip(), value.strip())
    return about


def cpu_model() -> str:
    """The processor's name as Linux reports it, or the numbers that Arm's have instead."""
    about = processor()
    named = (about[key] for key in ("model name", "Hardware", "cpu model") if key in about)
    numbers = [f"{key} {about[f'CPU {key}']}" for key in ARM_NUMBERS if f"CPU {key}" in about]
    described = ", ".join([platform.machine(), *numbers]) if numbers else platform.processor()
    return next(named, "") or described or platform.machine()


def memory_info_bytes(key: str) -> int | None:
    """A line of /proc/meminfo (MemTotal, MemAvailable, ...); None if it is not shown."""
    return kib_line_bytes(Path("/proc/meminfo"), key)


def kib_line_bytes(path: Path, key: str) -> int | None:
    """A line such as `VmRSS: 1024 kB` of a file; None if there is none."""
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            kib = whole(value.removesuffix("kB").strip())
            return None if kib is None else kib * 1024
    return None


def _cgroup_folders(controller: str) -> list[Path]:
    """Folders of this process's cgroups that may contain a controller's files, innermost first, with all parents."""
    found: list[Path] = []
    for line in (read_text(Path("/proc/self/cgroup")) or "").splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and controller not in names.split(","):
            continue
        root = CGROUP / controller if names else CGROUP
        inner = root / path.lstrip("/")
        found += [inner, *(p for p in inner.parents if p == root or root in p.parents)]
    return found


def cgroup_memory_limit_bytes() -> int | None:
    """The tightest memory limit of this process's cgroups (version 1 or 2), or None if there is none."""
    limits = [
        limit
        for folder in _cgroup_folders("memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := read_int(folder / name)) is not None and limit < UNLIMITED_BYTES
    ]
    return min(limits, default=None)


def cgroup_oom_kills() -> int | None:
    """Number of out-of-memory kills in this process's cgroup. None: unknown."""
    for folder in _cgroup_folders("memory"):
        for name in ("memory.events", "memory.oom_control"):
            for line in (read_text(folder / name) or "").splitlines():
                key, _, number = line.partition(" ")
                if key == "oom_kill":
                    return whole(number)
    return None


def cgroup_cpu_quota_cores() -> float | None:
    """CPU quota of this process's cgroups, in cores. None: no limit."""
    quotas: list[float] = []
    for folder in _cgroup_folders("cpu"):
        both = (read_text(folder / "cpu.max") or "").split()
        quota = whole(both[0]) if both else read_int(folder / "cpu.cfs_quota_us")  # none: max
        period = whole(both[1]) if len(both) == 2 else read_int(folder / "cpu.cfs_period_us")
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def usable_memory_bytes() -> int:
    """The machine's memory, or the cgroup's limit where that is less."""
    total = memory_info_bytes("MemTotal") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total, cgroup_memory_limit_bytes() or total)


def available_memory_bytes() -> int:
    """Memory that this process may still allocate, by the machine and its cgroups."""
    free = [memory_info_bytes("MemAvailable") or usable_memory_bytes()]
    for folder in _cgroup_folders("memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = read_int(folder / limit_name), read_int(folder / used_name)
            if limit is not None and used is not None and limit < UNLIMITED_BYTES:
                free.append(max(0, limit - used))
    return min(free)


def smt_siblings(core: int, root: Path | None = None) -> str | None:
    """Core numbers that share a physical core with this one, itself included, as the kernel lists them; None if it does
    not. root: the folder of the `cpuN` folders."""
    text = read_text((root or CPU) / f"cpu{core}/topology/thread_siblings_list")
    return text if text is not None and core in _listed(text) else None


def smt(core: int) -> bool | None:
    """Whether this core shares its physical core with another one; None if the machine does not say."""
    siblings = smt_siblings(core)
    return None if siblings is None else len(_listed(siblings)) > 1


def capacity(core: int, root: Path | None = None) -> int:
    """How fast a core is in units of 1/1024 of the machine's fastest, as far as Linux says that its cores differ: as
    performance and efficiency cores, big and LITTLE ones do. root: the folder of the `cpuN` folders."""
    root = root or CPU
    found = read_int(root / f"cpu{core}/cpu_capacity")
    if found is None and core in _listed(read_text(root.parents[1] / "cpu_atom/cpus") or ""):
        return EFFICIENT
    return FASTEST if found is None else found


def _listed(text: str) -> set[int]:
    """Core numbers in Linux's notation, such as 0-3,8; none in another text."""
    spans = [re.fullmatch("([0-9]{1,6})(?:-([0-9]{1,6}))?", span) for span in text.split(",")]
    return {core for span in spans if span for core in range(int(span[1]), int(span[2] or span[1]) + 1)}


def governor(core: int) -> str | None:
    """The frequency policy of a core, or None if the machine does not show it (many virtual machines)."""
    return read_text(CPU / f"cpu{core}/cpufreq/scaling_governor")


def turbo() -> bool | None:
    """Whether cores may run above their base frequency."""
    off = read_int(CPU / "intel_pstate/no_turbo")
    if off is not None:
        return off == 0
    boost = read_int(CPU / "cpufreq/boost")
    return None if boost is None else boost == 1


def clock_source() -> str | None:
    """Clock source of the kernel."""
    return read_text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource"))


def huge_pages() -> str | None:
    """The transparent huge pages' mode: always, madvise or never."""
    text = read_text(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
    return None if text is None else text.partition("[")[2].partition("]")[0] or text


def machine(core: int) -> dict[str, Any]:
    """What identifies the machine of a result, as far as it is known without a trainer. core: one that is used."""
    return {
        "node": platform.node(),
        "cpu_model": cpu_model(),
        "machine": platform.machine(),
        "cores_online": os.cpu_count(),
        "smt": smt(core),
        "governor": governor(core),
        "turbo": turbo(),
        "huge_pages": huge_pages(),
    }


def cpu_times_ticks() -> dict[str, int]:
    """How the whole machine's time was spent since it started; nothing if it is not shown."""
    return _times_ticks().get("cpu", {})


def _times_ticks() -> dict[str, dict[str, int]]:
    """The first lines of /proc/stat: how the time of the whole machine, and of each core, was spent. Sandboxes that
    imitate the file write zeros."""
    found: dict[str, dict[str, int]] = {}
    for line in (read_text(Path("/proc/stat")) or "").splitlines():
        name, *values = line.split() or [""]
        if not name.startswith("cpu"):
            break
        ticks = [number for value in values[: len(TIMES)] if (number := whole(value)) is not None]
        if len(ticks) == len(TIMES) and any(ticks):
            found[name] = dict(zip(TIMES, ticks, strict=True))
    return found


def core_times_s(cores: Sequence[int]) -> tuple[float | None, float | None]:
    """(busy, stolen) seconds of these cores together since the machine started; None if one of them is not listed."""
    shown, names = _times_ticks(), {f"cpu{core}" for core in cores}
    if not names <= shown.keys():
        return None, None
    hertz = os.sysconf("SC_CLK_TCK")
    busy = sum(shown[name][part] for name in names for part in BUSY)
    return busy / hertz, sum(shown[name]["steal"] for name in names) / hertz


def cgroup_throttled_s() -> float | None:
    """Seconds for which the quotas of this process's cgroups have stopped their tasks; None if unknown."""
    total_s, found = 0.0, False
    for folder in _cgroup_folders("cpu"):
        for line in (read_text(folder / "cpu.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name in ("throttled_usec", "throttled_time"):  # version 2: microseconds, version 1: nanoseconds
                found, total_s = True, total_s + (whole(value) or 0) * (1e-6 if name == "throttled_usec" else 1e-9)
    return total_s if found else None


def load_average() -> list[float] | None:
    """Mean number of running and ready threads over the last 1, 5 and 15 minutes; None if it is hidden."""
    try:
        found = list(os.getloadavg())
    except OSError:
        return None
    return found if all(0 <= mean < math.inf for mean in found) else None


def runnable() -> int | None:
    """Number of running or ready threads on the whole machine, including the caller."""
    fields = (read_text(Path("/proc/loadavg")) or "").split()
    return whole(fields[3].partition("/")[0]) if len(fields) > 3 else None


def frequency_hz(cores: Sequence[int]) -> float | None:
    """The lowest of the cores' present frequencies, or None if one of them does not show it."""
    found = [read_int(CPU / f"cpu{core}/cpufreq/scaling_cur_freq") for core in cores]
    return None if None in found else 1000.0 * min(khz for khz in found if khz is not None)


def last_level_cache(core: int, root: Path | None = None) -> Path | None:
    """Folder of a core's last-level cache; None if no cache is known. root: the folder of the `cpuN` folders."""
    folders = ((root or CPU) / f"cpu{core}/cache").glob("index[0-9]*")
    return max(folders, key=lambda index: read_int(index / "level") or 0, default=None)


def last_level_cache_bytes(cores: Sequence[int]) -> int:
    """Total size of the last-level caches of these cores; 0 if unknown."""
    lasts = [last for core in cores if (last := last_level_cache(core))]
    return sum({read_text(last / "shared_cpu_list"): _cache_bytes(last) for last in lasts}.values())


def second_cache_bytes(core: int) -> int:
    """Size of a core's second-level cache; 0 if unknown."""
    folders = (CPU / f"cpu{core}/cache").glob("index[0-9]*")
    return max((_cache_bytes(index) for index in folders if read_int(index / "level") == 2), default=0)


def _cache_bytes(index: Path) -> int:
    """Size of a cache, given as its folder; 0 if unknown."""
    size = read_text(index / "size") or ""
    return (whole(size[:-1]) or 0) * 1024 if size.endswith("K") else 0


def topology(cores: list[int]) -> dict[str, Any]:
    """CPU model, sockets, physical cores, SMT, caches and frequency policy, as far as the machine shows them."""
    places = {
        tuple(read_int(CPU / f"cpu{core}/topology/{name}") for name in ("physical_package_id", "core_id"))
        for core in cores
    }
    known = not any(None in place for place in places)
    caches = [
        {"level": level, "type": read_text(index / "type"), "size": read_text(index / "size"),
         "shared_cores": read_text(index / "shared_cpu_list")}
        for index in sorted((CPU / f"cpu{cores[0]}/cache").glob("index[0-9]*"))
        if (level := read_int(index / "level")) is not None
    ]  # fmt: skip
    return {
        "cpu_model": cpu_model(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "sockets": len({socket for socket, _ in places}) if known else None,
        "physical_cores": len(places) if known else None,
        "smt": {str(core): smt_siblings(core) for core in cores},
        "caches": caches,
        "governor": governor(cores[0]),
        "turbo": turbo(),
    }
