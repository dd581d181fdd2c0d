"""Hardware counters of one thread through perf_event_open(2), if the machine has them and Linux allows it.

Values cover the thread's whole time in its loop in user space, waiting included. Source: linux/perf_event.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

HARDWARE, SOFTWARE = 0, 1
EVENTS: Mapping[str, tuple[int, int]] = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache_references": (HARDWARE, 2),
    "cache_misses": (HARDWARE, 3),
    "task_clock_ns": (SOFTWARE, 1),
}
SYSCALL = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331, "riscv64": 241}
ATTRIBUTE_BYTES = 128
TIMES_TOO = 0b11  # the time for which it was enabled, and the time for which it counted
USER_ONLY = 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv: what perf_event_paranoid = 2 still allows


@dataclass
class Counters:
    """The counters of the thread that created them; `unavailable` has the reason for a missing one."""

    events: Mapping[str, tuple[int, int]] = field(default_factory=lambda: EVENTS)
    unavailable: dict[str, str] = field(default_factory=dict)
    _open: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """Open the available counters, which count from here on."""
        for name, (kind, event) in self.events.items():
            try:
                self._open[name] = open_counter(kind, event)
            except OSError as error:
                self.unavailable[name] = why_not(error)

    def stop(self) -> dict[str, int | None]:
        """Read and close the counters. If the kernel multiplexed them, values are scaled up to the whole time."""
        values: dict[str, int | None] = dict.fromkeys(self.events)
        for name, descriptor in self._open.items():
            count, enabled, counted = struct.unpack("=3Q", os.read(descriptor, 24))
            os.close(descriptor)
            if counted:
                values[name] = round(count * enabled / counted)
            else:
                self.unavailable[name] = "the hardware's counters were all in use"
        self._open.clear()
        return values


def added(before: Mapping[str, int | None], values: Mapping[str, int | None]) -> dict[str, int | None]:
    """The sums of a thread's counters over two times; `before` may be empty. None: unknown in one of them."""
    sums = {}
    for name, value in values.items():
        earlier = before.get(name, 0)
        sums[name] = None if value is None or earlier is None else earlier + value
    return sums


def open_counter(kind: int, event: int) -> int:
    """A descriptor that counts an event of the calling thread, wherever it runs. Raises OSError."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known on {platform.machine()}")
    attribute = struct.pack("=IIQQQQQ", kind, ATTRIBUTE_BYTES, event, 0, 0, TIMES_TOO, USER_ONLY)
    buffer = ctypes.create_string_buffer(attribute, ATTRIBUTE_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    this_thread, any_core, no_group, close_on_exec = 0, -1, -1, 8
    found = int(libc.syscall(number, buffer, this_thread, any_core, no_group, close_on_exec))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


def why_not(error: OSError) -> str:
    """The reason of a refusal in words."""
    name = errno.errorcode.get(error.errno or 0, "?")
    meaning = {
        errno.ENOENT: "this machine has no such counter (many virtual machines have none)",
        errno.EOPNOTSUPP: "this machine has no such counter (many virtual machines have none)",
        errno.EACCES: "the kernel forbids it: /proc/sys/kernel/perf_event_paranoid",
        errno.EPERM: "the kernel forbids it: /proc/sys/kernel/perf_event_paranoid, or a container's seccomp filter",
        errno.ENOSYS: "this system has no perf_event_open",
        errno.EMFILE: "too many files are open",
    }.get(error.errno or 0, error.strerror or "refused")
    return f"perf_event_open: {meaning} ({name})"
