"""What processes print where standard output cannot encode it."""

import os
import signal
import subprocess
import sys

import pytest

from gpt2core.process import streams

PRINT = "from gpt2core.process import streams; streams.guarded(lambda: print('gr\\xf6\\xdfe \\u6f22 \\udcff'))"


@pytest.mark.parametrize(("encoding", "printed"), [
    ("ascii", b"gr\\xf6\\xdfe \\u6f22 \\udcff\n"), ("latin-1:strict", b"gr\xf6\xdfe \\u6f22 \\udcff\n"),
    ("utf-8", "größe \u6f22 \\udcff\n".encode()),
])  # fmt: skip
def test_characters_that_standard_output_cannot_encode_are_escaped(encoding, printed):
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (printed, b"")


@pytest.mark.parametrize(("value", "left"), [
    ("/a b\r", "/a b"), ("/a\r\n", "/a"), (' "/a b" ', "/a b"), ("'/a'", "/a"), ('""', ""), ('"', '"'),
    ("'a\"", "'a\""), ('"a b" --c "d"', '"a b" --c "d"'), ("\xff\udcff", "\xff\udcff"),
])  # fmt: skip
def test_what_files_of_variables_leave_around_a_value_is_no_part_of_it(value, left):
    program = "import os; from gpt2core.process import streams; streams.guarded(lambda: print(ascii(os.environ)))"
    environment = {**os.environ, "TASKLOOM_SPOOL": value, "OTHER": value}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert f"'TASKLOOM_SPOOL': {left!a}" in done.stdout.decode()
    assert f"'OTHER': {value!a}" in done.stdout.decode()


def test_without_a_current_folder_a_line_says_so(tmp_path):
    program = (
        f"import os; os.mkdir({str(tmp_path / 'a')!r}); os.chdir({str(tmp_path / 'a')!r}); os.rmdir(os.getcwd()); "
        "from gpt2core.process import streams; raise SystemExit(streams.guarded(os.getcwd))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"error: the current folder was deleted: change to another one\n")


INTERRUPTED = "import os, signal; from gpt2core.process import streams; "
HELD = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); os.kill(os.getpid(), signal.SIGINT); "


@pytest.mark.parametrize("program", [
    INTERRUPTED + "raise SystemExit(streams.guarded(lambda: os.kill(os.getpid(), signal.SIGINT)))",
    INTERRUPTED + HELD + "raise SystemExit(streams.guarded(lambda: 0))",
    INTERRUPTED + HELD + "streams.become('taskloom.worker', ['--cores', '4000'])",
], ids=["within", "before", "before another module is loaded"])  # fmt: skip
def test_an_interrupted_process_ends_without_a_traceback(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (streams.EXIT_INTERRUPTED, b"")


INTERRUPTING = """
import atexit, os, signal, sys

at = sys.argv[1]

class At:  # Ctrl-C while this module is loaded
    def find_spec(self, name, path=None, target=None):
        if name == at:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, At())
if at == "the end":
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from taskloom.__main__ import main
sys.argv[1:] = ["--version"]
main()
"""


@pytest.mark.parametrize(("at", "code"), [
    ("taskloom.cli", streams.EXIT_INTERRUPTED), ("click", streams.EXIT_INTERRUPTED), ("the end", -signal.SIGINT),
])  # fmt: skip
def test_a_command_interrupted_while_it_loads_or_ends_leaves_no_traceback(at, code):
    done = subprocess.run([sys.executable, "-c", INTERRUPTING, at], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (code, b"")


EXHAUSTING = {
    "files": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); os.dup(0)",
    "memory": "bytearray(1 << 60)", "an array": "import numpy; numpy.zeros(1 << 57)",
    "threads": "raise RuntimeError(\"can't start new thread\")",
    "address space": "raise OSError('libx.so: failed to map segment from shared object')",
    "processes": "raise BlockingIOError(errno.EAGAIN, 'x')",
}  # fmt: skip


@pytest.mark.parametrize("what", EXHAUSTING)
def test_what_has_run_out_is_named_in_a_line(what):
    program = (
        "import errno, os\nfrom gpt2core.process import streams\n"
        f"def main():\n    {EXHAUSTING[what]}\nraise SystemExit(streams.guarded(main))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.endswith("; raise the limit (ulimit -a, or that of the container)\n")


def test_another_error_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="a defect"):
        streams.guarded(lambda: (_ for _ in ()).throw(RuntimeError("a defect")))


@pytest.mark.parametrize(("setting", "reason"), [
    ("sys.executable = '/nowhere'", "No such file or directory: '/nowhere'"),
    ("sys.argv = 2_000_000 * ['x']", "Argument list too long"),
])  # fmt: skip
def test_a_process_that_cannot_take_the_place_of_a_command_is_named(setting, reason):
    program = (
        f"import sys; {setting}\nfrom gpt2core.process import streams\n"
        "raise SystemExit(streams.guarded(lambda: streams.become('taskloom.worker', sys.argv)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert reason in done.stderr
