"""Runs a launcher that closes the files which it inherits, and ends it as soon as the lifeline closes.

    python -m gpt2core.process.guard COMMAND ARGUMENT...

The ranks end with their launcher (process/trainer.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from gpt2core.process.launch import LIFELINE

GRACE_S = 2.0  # for a launcher to remove its files


def main() -> int:
    """Run the launcher and return its exit code."""
    lifeline = os.environ.pop(LIFELINE, None)
    with subprocess.Popen(sys.argv[1:]) as launcher:
        for number in (signal.SIGTERM, signal.SIGINT):  # its process group gets them, so the launcher does too
            signal.signal(number, signal.SIG_IGN)
        if lifeline is not None:
            threading.Thread(target=_end_after, args=(int(lifeline), launcher), daemon=True).start()
        code = launcher.wait()
    return code if code >= 0 else 128 - code


def _end_after(lifeline: int, launcher: subprocess.Popen[bytes]) -> None:
    os.read(lifeline, 1)  # no byte ever arrives: it returns when the last writer has ended
    launcher.terminate()
    try:
        launcher.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
