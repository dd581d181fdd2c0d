from __future__ import annotations

import errno
import os
import platform
from pathlib import Path

import psutil
import pytest

from gpt2core.measure import counters
from gpt2core.node import host, load, pages, topology
from gpt2core.spec.sources import source_hash
from taskloom import diagnosis


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup tree in a folder; /proc/self/cgroup is the file `self` in it."""
    (tmp_path / "self").touch()
    original = host.read_text
    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(
        host, "read_text", lambda path: original(tmp_path / "self" if path == Path("/proc/self/cgroup") else path)
    )
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_tightest_limit_on_the_way_up_counts(cgroups: Path) -> None:
    write(cgroups / "self", "0::/system/job\n")
    write(cgroups / "system/job/memory.max", "max\n")
    write(cgroups / "system/memory.max", "2000000000\n")
    assert host.cgroup_memory_limit_bytes() == 2_000_000_000
    assert host.usable_memory_bytes() == min(2_000_000_000, psutil.virtual_memory().total)
    write(cgroups / "system/job/cpu.max", "150000 100000\n")
    assert host.cgroup_cpu_quota_cores() == 1.5


def test_version_1_groups_are_read_too(cgroups: Path) -> None:
    write(cgroups / "self", "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n")
    write(cgroups / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert host.cgroup_memory_limit_bytes() is None
    write(cgroups / "memory/job/memory.limit_in_bytes", "1073741824\n")
    write(cgroups / "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert host.cgroup_memory_limit_bytes() == 1 << 30
    assert host.cgroup_oom_kills() == 3


def test_no_groups_no_limits(cgroups: Path) -> None:
    assert cgroups.is_dir()
    assert host.cgroup_memory_limit_bytes() is None
    assert host.cgroup_cpu_quota_cores() is None
    assert host.cgroup_oom_kills() is None
    assert host.usable_memory_bytes() == psutil.virtual_memory().total


X86 = "processor : 0\nmodel name : One CPU\nflags : fpu avx\n\nprocessor : 1\nmodel name : Another\nflags : fpu\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nCPU revision\t: 1\n"


@pytest.mark.parametrize(
    ("text", "name", "features"),
    [
        (X86, "One CPU", "fpu avx"),
        (ARM + "\nHardware\t: A board\n", "A board", "fp asimd"),
        (ARM, "aarch64, implementer 0x41, part 0xd0c, revision 1", "fp asimd"),
        ("", "fallback", ""),
    ],
)
def test_processors_are_described_as_linux_does(
    monkeypatch: pytest.MonkeyPatch, text: str, name: str, features: str
) -> None:
    monkeypatch.setattr(host, "read_text", lambda _: text or None)
    monkeypatch.setattr(platform, "processor", lambda: "fallback")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert host.cpu_model() == name
    about = host.processor()
    assert about.get("flags", about.get("Features", "")) == features


def test_each_last_level_cache_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CPU", tmp_path)
    for core, shared in enumerate(("0-1", "0-1", "2")):
        for index, (level, size, cores) in enumerate(((1, "32K", str(core)), (3, "16384K", shared))):
            write(tmp_path / f"cpu{core}/cache/index{index}/level", f"{level}\n")
            write(tmp_path / f"cpu{core}/cache/index{index}/size", f"{size}\n")
            write(tmp_path / f"cpu{core}/cache/index{index}/shared_cpu_list", f"{cores}\n")
    assert host.last_level_cache_bytes([0, 1]) == 16 << 20
    assert host.last_level_cache_bytes([0, 1, 2]) == 32 << 20
    assert host.last_level_cache_bytes([3]) == 0


def test_the_machine_is_described() -> None:
    cores = sorted(os.sched_getaffinity(0))
    found = host.topology(cores)
    assert found["cpu_model"]
    assert 1 <= found["physical_cores"] <= len(cores)
    assert host.memory_info_bytes("MemTotal") == psutil.virtual_memory().total
    assert len(source_hash()) == 64
    assert source_hash() == source_hash()


def test_a_machine_that_shows_nothing_is_described_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CPU", tmp_path)
    monkeypatch.setattr(host, "read_text", lambda _: None)
    found = host.topology([0, 1])
    assert (found["sockets"], found["physical_cores"], found["smt"]) == (None, None, {"0": None, "1": None})
    findings = {each.name: each.found for each in diagnosis.examine()}
    assert {findings[name] for name in ("steal time", "bf16", "turbo", "huge pages")} == {"not shown"}


def test_what_is_wrong_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "governor", lambda _: "powersave")
    monkeypatch.setattr(host, "turbo", lambda: True)
    monkeypatch.setattr(host, "smt_siblings", lambda _: "0,64")
    monkeypatch.setattr(host, "huge_pages", lambda: "never")
    monkeypatch.setattr(host, "clock_source", lambda: "hpet")
    monkeypatch.setattr(host, "cgroup_cpu_quota_cores", lambda: 0.5)
    monkeypatch.setattr(host, "usable_memory_bytes", lambda: 1 << 30)
    for check in (
        diagnosis.governor, diagnosis.turbo, diagnosis.smt, diagnosis.huge_pages, diagnosis.clock, diagnosis.cores,
        diagnosis.memory,
    ):  # fmt: skip
        found = check()
        assert found.status == "warn", found
        assert found.advice


@pytest.mark.parametrize(
    ("code", "found", "advice"),
    [(errno.ENOENT, "no such counter", "will not contain"), (errno.EACCES, "forbids it", "perf_event_paranoid=2")],
)
def test_refused_counters_are_shown_with_what_helps(
    code: int, found: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(counters, "open_counter", refuse)
    check = diagnosis.perf_counters()
    assert (check.status, found in check.found, advice in check.advice) == ("warn", True, True), check


def test_counters_that_open_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    monkeypatch.setattr(counters, "open_counter", lambda *_: reading)
    assert diagnosis.perf_counters().status == "ok"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


def test_examining_affinity_leaves_it_as_it_was() -> None:
    before = os.sched_getaffinity(0)
    assert diagnosis.affinity().status == "ok"
    assert os.sched_getaffinity(0) == before


def test_throttling_is_summed_over_both_versions(cgroups: Path) -> None:
    write(cgroups / "self", "4:cpu,cpuacct:/job\n0::/job\n")
    assert host.cgroup_throttled_s() is None
    write(cgroups / "cpu,cpuacct/job/cpu.stat", "nr_periods 9\nnr_throttled 2\nthrottled_time 1500000000\n")
    write(cgroups / "job/cpu.stat", "usage_usec 5\nthrottled_usec 250000\n")
    write(cgroups / "cpu/job/cpu.stat", "nr_throttled 2\nthrottled_time 1500000000\n")
    assert host.cgroup_throttled_s() == pytest.approx(1.75)


def test_core_times_are_of_the_cores_asked_for() -> None:
    (one, _), (both, _) = host.core_times_s([0]), host.core_times_s([0, 1])
    assert one is not None
    assert both is not None
    assert 0 < one < both
    assert host.core_times_s([0, 9999]) == (None, None)
    queue = host.runnable()
    assert queue is not None
    assert queue >= 1


def test_memory_that_is_released_makes_no_piece_negative(monkeypatch):
    sizes = iter([100, 90, 130, 120, 150])
    monkeypatch.setattr(pages, "_status_bytes", lambda _: next(sizes))
    resident = pages.Residency()
    for piece in ("plan", "blas", "compiled", "blas"):
        resident.grew_by(piece)
    assert resident.pieces == {"interpreter": 100, "plan": 0, "blas": 50, "compiled": 0}


def test_the_load_of_others_is_seen_where_numbers_of_cores_have_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a machine whose core 1 is offline."""
    zeros = 7 * " 0"
    ticks = iter([f"cpu {2 * n}{zeros}\ncpu0 {n}{zeros}\ncpu2 {n}{zeros}\n" for n in (50, 4500)])
    original = host.read_text
    monkeypatch.setattr(host, "read_text", lambda path: next(ticks) if path == Path("/proc/stat") else original(path))
    monkeypatch.setattr(load, "LOOK_S", 0.05)
    assert load.Others().busy_cores() > 1


@pytest.mark.parametrize(("text", "ready"), [("0.1 0.2 0.3 2/345 6789", 2), ("a b c d/e f", None), ("", None)])
def test_a_load_that_is_not_shown_is_unknown(monkeypatch: pytest.MonkeyPatch, text: str, ready: int | None) -> None:
    monkeypatch.setattr(host, "read_text", lambda _: text)
    assert host.runnable() == ready


@pytest.mark.parametrize(
    ("flags", "found"),
    [("avx2 avx512_bf16", "products by avx512_bf16"), ("amx_bf16 avx512_bf16", "products by amx_bf16 and avx512_bf16"),
     ("avx2 fma", "no instructions: ")],
)  # fmt: skip
def test_doctor_says_how_bfloat16_is_multiplied(monkeypatch: pytest.MonkeyPatch, flags: str, found: str) -> None:
    monkeypatch.setattr(host, "processor", lambda: {"flags": flags})
    assert diagnosis.bf16().found.startswith(found)


@pytest.mark.parametrize("text", [
    "", "x", ":", "0:", "1:cpu", "a b", "\ufffd\n\n", "max", "max max", "0 0", "-1 -1", "1 x", "MemTotal:",
    "MemTotal: x kB", "MemAvailable:\t\nMemTotal: kB", "cpu", "cpu x", "cpu0", "cpu0 1 2", "cpu0 a b c d e f g h",
    "oom_kill", "oom_kill x", "throttled_usec", "throttled_time x", 5000 * "9", "0-", "-", ",,x-y", "xK",
    "0.1 0.2 0.3 x",
])  # fmt: skip
def test_what_the_machine_does_not_say_as_linux_does_is_unknown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Containers, sandboxes and other kernels hide or imitate these files."""
    monkeypatch.setattr(host, "read_text", lambda _: text)
    cores = sorted(os.sched_getaffinity(0))
    assert host.memory_info_bytes("MemTotal") is None
    for look in (
        host.cpu_model, host.cgroup_memory_limit_bytes, host.cgroup_oom_kills, host.cgroup_cpu_quota_cores,
        host.usable_memory_bytes, host.available_memory_bytes, host.turbo, host.clock_source, host.huge_pages,
        host.cpu_times_ticks, host.cgroup_throttled_s, host.runnable, lambda: host.core_times_s(cores),
        lambda: host.frequency_hz(cores), lambda: host.last_level_cache_bytes(cores), lambda: host.topology(cores),
        lambda: host.machine(cores[0]), lambda: host.capacity(cores[0]), lambda: load._used_s(),
        lambda: topology.spread(cores),
    ):  # fmt: skip
        look()


def test_a_machine_that_hides_its_load_average_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden() -> tuple[float, float, float]:
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr(os, "getloadavg", hidden)
    assert host.load_average() is None
    assert diagnosis.load() == diagnosis.ok("load", "not shown")


@pytest.mark.parametrize("times", [["cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"], ["cpu 1 2 3"],
                                   ["cpu 9 0 0 9 0 0 0 9\ncpu0 9 0 0 9 0 0 x 9"]])  # fmt: skip
def test_times_that_a_sandbox_imitates_are_unknown(monkeypatch: pytest.MonkeyPatch, times: list[str]) -> None:
    monkeypatch.setattr(host, "read_text", lambda _: times[0])
    monkeypatch.setattr(diagnosis, "STEAL_SAMPLE_S", 0.0)
    assert diagnosis.steal() == diagnosis.ok("steal time", "not shown")
    assert host.core_times_s([0]) == (None, None)


@pytest.mark.parametrize(("text", "shared"), [
    ("0", False), ("0-1", True), ("0,64", True), ("1", None), ("", None), ("x", None), ("0x", None), ("\0", None),
])  # fmt: skip
def test_siblings_without_the_core_itself_are_unknown(tmp_path: Path, text: str, shared: bool | None) -> None:
    write(tmp_path / "cpu0/topology/thread_siblings_list", text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(host, "CPU", tmp_path)
        assert host.smt(0) is shared


@pytest.mark.parametrize("text", ["-1", "1_000", "1.5", "0x10", "٣", str(1 << 63), 5000 * "9", " 1", None])
def test_what_is_no_number_of_linux_is_none(text: str | None) -> None:
    assert host.whole(text) is None
    assert host.whole("9223372036854775807") == (1 << 63) - 1


@pytest.mark.parametrize("mean", [float("nan"), float("inf"), -1.0])
def test_a_load_average_that_is_none_is_unknown(monkeypatch: pytest.MonkeyPatch, mean: float) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (mean, 1.0, 1.0))
    assert host.load_average() is None
