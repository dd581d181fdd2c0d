"""Entries of /proc and /sys that are hidden or odd, and a program that finds the machine's facts without each of them.

    unshare --user --map-root-user --mount python -P hidden.py KIND

It prints a JSON object: for "" (nothing hidden) and for each entry, what was found. Each look is a fork of one
interpreter, in a mount namespace of its own. In a process that imports `hide` when it starts, as its children do, the
entries of /proc/self are hidden too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

CLONE_NEWNS, MS_NODEV, MS_REMOUNT, MS_BIND = 0x20000, 4, 32, 4096
REFUSED, MISSING = "refused", "missing"
CONTENTS = {"empty": b"", "no text": b"\xff\0:\x80 kB\n-1 \xc3\n", "numbers": b"1" + 30 * b"0" + b" -1\n"}
KINDS = (REFUSED, MISSING, *CONTENTS)
CPU = "sys/devices/system/cpu"
# Each entry alone: its files, by a pattern.
ENTRIES = {
    **{each: each for each in (
        "proc/stat", "proc/cpuinfo", "proc/meminfo", "proc/loadavg", "proc/self/status", "proc/self/mountinfo",
        "proc/self/cgroup",
    )},
    "schedstat": "proc/*self/schedstat", "proc/self/task": "proc/self/task/*/stat*",
    "proc/sys/kernel": "proc/sys/kernel/**/*", CPU: f"{CPU}/**/*",
    "topology": f"{CPU}/cpu*/topology/*", "cache": f"{CPU}/cpu*/cache/index*/*", "sys/devices/system/node":
    "sys/devices/system/node/**/*", "sys/fs/cgroup": "sys/fs/cgroup/**/[cm][ep][um]*.*",
    "sys/class/thermal": "sys/class/thermal/*/*",
}  # fmt: skip
COMPILED_ANEW = ("proc/cpuinfo", CPU)  # without them, code is compiled for any processor


def hide(entry: str, kind: str) -> None:
    """Hide an entry in this process's mount namespace, or give its files another content."""
    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder) / "content"
        content.write_bytes(CONTENTS.get(kind, b""))
        if kind == MISSING:
            _mount(folder, f"/{entry}", MS_BIND)
            content.unlink()
            return
        for file in [each for each in Path("/").glob(ENTRIES[entry]) if each.is_file()]:
            if kind == REFUSED:  # even for root: a device on a file system without devices
                _mount("/dev/null", str(file), MS_BIND)
                _mount("none", str(file), MS_BIND | MS_REMOUNT | MS_NODEV)
            else:
                _mount(str(content), str(file), MS_BIND)


def is_there(entry: str, kind: str) -> bool:
    folder = Path(f"/{entry}").is_dir()
    return folder if kind == MISSING else any(Path("/").glob(ENTRIES[entry]))


def _mount(source: str, target: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), b"none", flags, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def facts(trains: bool) -> dict[str, Any]:
    """What doctor, worker and perhaps trainer find."""
    from gpt2core.run import train
    from gpt2core.spec.config import TrainConfig
    from gpt2core.spec.models import model_from
    from taskloom import diagnosis
    from taskloom.server.read.overview.overviews import core_clock_s
    from taskloom.worker import affinity, node
    from taskloom.worker.settings import parse

    worker = node.registration(parse([], {}), node.new_life(), "spool").model_dump(mode="json")
    affinity.move_agent(worker["cores"])
    core_clock_s()
    found = {
        "doctor": {check.name: check.found for check in diagnosis.examine()},
        "worker": {name: worker[name] for name in ("cores", "memory_bytes", "machine_boot_id", "labels")},
        "topology": worker["topology"],
    }  # fmt: skip
    if not trains:
        return found
    config = TrainConfig(model=model_from("tiny"), batch=2, seq=16, steps=2, warmup=1, data="synthetic")
    result = train.train(config).to_dict()
    json.dumps(result, allow_nan=False)
    return found | {
        "environment": result["environment"], "steps": result["validity"]["steps"],
        "memory": {**result["memory_bytes"], **result["resident_bytes"]},
    }  # fmt: skip


def in_a_fork(entry: str, kind: str) -> Any:
    """The facts without an entry; the traceback if there is one."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        with open(writable, "w", encoding="utf-8") as out, contextlib.suppress(BaseException):  # noqa: PTH123
            try:
                if entry:
                    ctypes.CDLL(None).unshare(CLONE_NEWNS)
                    hide(entry, kind)
                out.write(json.dumps(facts(entry not in COMPILED_ANEW)))
            except BaseException:
                out.write(json.dumps(traceback.format_exc()))
        os._exit(0)
    os.close(writable)
    with open(readable, encoding="utf-8") as found:  # noqa: PTH123 - a descriptor
        text = found.read()
    os.waitpid(child, 0)
    return json.loads(text)


if __name__ == "__main__":
    from gpt2core.run import train  # noqa: F401 - once, before the forks
    from taskloom import diagnosis  # noqa: F401
    from taskloom.server.read.overview import overviews  # noqa: F401
    from taskloom.worker import affinity, node, settings  # noqa: F401

    looked = ["", *(entry for entry in ENTRIES if is_there(entry, sys.argv[1]))]
    print(json.dumps({entry: in_a_fork(entry, sys.argv[1]) for entry in looked}))
