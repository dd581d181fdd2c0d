"""Entries of /proc and /sys that a container, a sandbox or another kernel hides or imitates, each alone: doctor, worker
and trainer work, and what they cannot read is unknown rather than wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support import hidden

ALONE = ("unshare", "--user", "--map-root-user", "--mount")
# What changes by itself.
VARYING = {"load", "memory", "load_average", "run_queue", "voluntary_switches", "involuntary_switches", "minor_faults",
           "major_faults", "migrations", "run_delay_s", "steal_s", "throttled_s", "steal time", "blas"}  # fmt: skip
PROCESSOR = {"cores", "cpu_model"}  # named as the kernel names the architecture
# What is unknown without an entry.
UNKNOWN = {
    "proc/stat": ("steal time", "steal_s"), "proc/cpuinfo": ("bf16",), "proc/loadavg": ("run_queue",),
    "proc/self/cgroup": ("throttled_s",), "proc/sys/kernel": ("machine_boot_id",),
    "topology": ("SMT", "sockets", "physical_cores", "smt"), "cache": ("caches",),
    hidden.CPU: ("SMT", "sockets", "physical_cores", "smt", "caches"),
}  # fmt: skip


def unknown(value: Any) -> bool:
    values = list(value.values()) if isinstance(value, dict) else [value]
    return all(each in (None, [], "not shown") for each in values)


@pytest.mark.slow
@pytest.mark.timeout(900)  # beside other load
@pytest.mark.parametrize("kind", hidden.KINDS)
def test_what_an_entry_hides_is_unknown_and_nothing_else_changes(kind: str) -> None:
    if subprocess.run([*ALONE, "true"], check=False).returncode != 0:
        pytest.skip("this system lets nobody hide a file")
    command = [*ALONE, sys.executable, "-P", hidden.__file__, kind]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    usual = found.pop("")
    for entry, parts in found.items():
        assert isinstance(parts, dict), (entry, parts)  # else a traceback
        memory = parts.pop("memory", None)
        every = [(part, name, value) for part, values in parts.items() for name, value in values.items()]
        for part, name, value in every:
            if name not in VARYING and not (entry == "proc/cpuinfo" and name in PROCESSOR):
                assert value == usual[part][name] or unknown(value), (entry, name, value)
            if name in UNKNOWN.get(entry, ()):
                assert unknown(value), (entry, name, value)
        if entry == "proc/meminfo":
            assert "free memory not shown" in parts["doctor"]["memory"]
        if entry == "proc/self/status":
            assert memory["peak_rss"] == 0
            assert "interpreter" not in memory
