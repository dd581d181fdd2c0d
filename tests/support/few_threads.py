"""A limit of processes and threads, which Linux counts by user and does not apply to root."""

from __future__ import annotations

import os
import shlex

import psutil

CAPABILITY = "+dac_override"  # another user who may use root's files


def shell(most: int) -> str:
    """A shell's command that starts "$@" with at most so many processes and threads, itself included."""
    if os.geteuid() != 0:
        mine = (each for each in psutil.process_iter(["uids", "num_threads"]) if each.info["uids"].real == os.geteuid())
        return f'exec prlimit --nproc={most + sum(each.info["num_threads"] or 1 for each in mine)} "$@"'
    user = str(50_000 + os.getpid() % 10_000)  # of nobody else, so that nothing else is counted
    change = ["setpriv", "--reuid", user, "--clear-groups", "--inh-caps", CAPABILITY, "--ambient-caps", CAPABILITY]
    return f'exec {shlex.join(change)} prlimit --nproc={most} "$@"'
