"""A thread that ends by an error ends its process, in every program that runs for long."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gpt2core.spec.threads import EXIT

ROOT = Path(__file__).parents[2]
PROGRAMS = ("server", "worker", "provisioner", "gpt2core")


def run(body):
    code = "import sys, threading, time\nfrom gpt2core.spec.threads import end_with_threads\nend_with_threads()\n"
    return subprocess.run([sys.executable, "-c", code + body], capture_output=True, text=True, timeout=120)


def test_an_error_of_a_thread_ends_the_process():
    done = run("threading.Thread(target=lambda: 1 / 0, name='beats', daemon=True).start()\ntime.sleep(600)")
    assert done.returncode == EXIT
    assert "thread beats has ended, so this process ends" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_a_thread_that_leaves_ends_nothing():
    done = run("t = threading.Thread(target=sys.exit)\nt.start()\nt.join()\nprint('goes on')")
    assert (done.returncode, done.stdout) == (0, "goes on\n")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_follows_the_rule(program):
    (guard,) = (
        node for node in ast.parse((ROOT / program / "__main__.py").read_text()).body if isinstance(node, ast.If)
        and "__main__" in ast.unparse(node.test)
    )  # fmt: skip
    assert ast.unparse(guard.body[0]) == "end_with_threads()"
