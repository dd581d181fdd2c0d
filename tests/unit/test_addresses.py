"""Limits of address space, under which OpenBLAS would ask for memory for ever."""

import subprocess
import sys

import pytest

LIMITED = """
import resource
from gpt2core.gemm import libraries
from gpt2core.process import trainer
from gpt2core.spec.errors import InputError

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.{limit}, (used + {free}, used + {free}))
{body}
"""
LOADING = """
try:
    libraries.blas("openblas").address
except InputError as error:
    print(error)
"""


def run(limit, free, body):
    code = LIMITED.format(limit=limit, free=free, body=body)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_a_library_is_not_loaded_where_it_would_ask_for_ever():
    assert "MiB of address space cannot be reserved (Cannot allocate memory): raise the limit (ulimit -v" in run(
        "RLIMIT_AS", 60 << 20, LOADING
    )


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_trainer_without_room_ends_before_its_work(limit):
    printed = run(limit, 20 << 20, "print(trainer.main(lambda _: print('worked')))")
    assert "192 MiB of address space cannot be reserved" in printed
    assert printed.endswith("\n2\n")
