"""Compile a scheduler's loop, then kernels: `python -m gpt2core.taskbench.loop SCHEDULER MODULE:KERNEL...`.

A trainer on a fresh installation starts it as a process and compiles kernels meanwhile, in the opposite order. The
loop's arguments have the same types for every program, so the smallest program is run.
"""

from __future__ import annotations

import argparse
import importlib

from gpt2core.compile.entries import kernel_entry
from gpt2core.process import trainer
from gpt2core.process.launch import allowed_cores
from gpt2core.spec import schedulers
from gpt2core.taskbench.bench import TaskBench


def main() -> int:
    """Compile and return the exit code. Raises CoreError if this machine lacks what the scheduler needs."""
    parser = argparse.ArgumentParser(prog="python -m gpt2core.taskbench.loop", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("scheduler", choices=schedulers.KNOWN)
    parser.add_argument("kernels", nargs="*", help="kernels that are compiled next, each as MODULE:NAME:DTYPE,...")
    parser.add_argument("--runtime", default=schedulers.AUTO, help="of a scheduler that has one")
    given = parser.parse_args()
    TaskBench("trivial", given.scheduler, 1, allowed_cores()[:1], runtime=given.runtime).run(1, 1)
    for module, name, dtypes in (kernel.split(":") for kernel in given.kernels):
        entry = kernel_entry(getattr(importlib.import_module(module), name), tuple(filter(None, dtypes.split(","))))
        if not entry.is_kept:
            _ = entry.address
    return 0


if __name__ == "__main__":
    trainer.leave(main())
