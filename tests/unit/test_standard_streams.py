"""What processes print where standard output cannot encode it."""

import os
import subprocess
import sys

import pytest

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
