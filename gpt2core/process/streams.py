"""Standard streams that the starter of a process has closed, or that lead to a full disk."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TextIO

from gpt2core.spec import settings
from gpt2core.spec.extras import NotLoaded

UNWRITABLE = {errno.EBADF, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EPIPE}  # errors of streams, which name no file
EXHAUSTED = {errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM}

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def become(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by one of our modules, so that signals reach it. Ctrl-C waits until it is in
    `guarded`: while Python loads modules, it would be a traceback."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
    except OSError as error:  # which names no file
        raise OSError(error.errno, error.strerror, sys.executable) from error


def fill() -> None:
    """Let closed standard streams lead nowhere. Otherwise the next file that is opened would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                nowhere = os.open(os.devnull, os.O_RDWR)
                if nowhere != number:
                    os.dup2(nowhere, number)
                    os.close(nowhere)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115


def forget_output(number: int = 1) -> None:
    """Discard what is buffered of standard output (2: error), on which the interpreter would fail at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def say(line: str, stream: TextIO | None = None) -> None:
    """Print a line, by default on standard output, of a process that works on while nobody can read it."""
    with contextlib.suppress(OSError):  # such as a full disk; what is buffered is written once there is place
        print(line, file=stream or sys.stdout, flush=True)


def guarded(main: Callable[[], int | None]) -> int:
    """Call the main function of a process that may lack standard streams. Return its exit code; 130 after Ctrl-C; 1,
    with the error in a line, if a file that the error names could not be used, a stream could not be written, or
    memory, processes, threads or files have run out; 2 without a current folder, or if a library cannot be loaded.
    Characters that standard output cannot encode are escaped, as on standard error. Our variables are trimmed."""
    fill()
    settings.trim()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    code, failed = 1, ""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        code = main() or 0
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except ImportError as error:
        code, failed = EXIT_BAD_INPUT, str(NotLoaded(error))
    except (OSError, MemoryError, RuntimeError) as error:
        if is_exhausted(error) or is_unloaded(error):
            failed = f"{str(error) or 'no memory is left'}; raise the limit (ulimit -a, or that of the container)"
        elif not isinstance(error, OSError):
            raise
        elif error.filename is None and error.errno == errno.ENOENT:  # of os.getcwd()
            code, failed = EXIT_BAD_INPUT, "the current folder was deleted: change to another one"
        elif error.filename is None and error.errno not in UNWRITABLE:
            raise
        else:
            failed = str(error)
    if (reason := _lost(1, sys.stdout)) is not None:
        code, failed = code or 1, f"standard output cannot be written: {reason}"
    if failed:
        say(f"error: {failed}", sys.stderr)
    _lost(2, sys.stderr)
    return code


def is_exhausted(error: Exception) -> bool:
    """Whether memory, processes, threads or files have run out. Python has no error of its own for threads."""
    known = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED)
    return known or str(error) == "can't start new thread"


def is_unloaded(error: Exception) -> bool:
    """Whether a library could not be loaded, as where no address space is left: ctypes gives no number, only text."""
    return isinstance(error, OSError) and error.errno is None and ".so" in str(error)


def _lost(number: int, stream: TextIO) -> str | None:
    """Why what is buffered of a stream cannot be written; then it is discarded."""
    try:
        stream.flush()
    except OSError as error:
        forget_output(number)
        return error.strerror
    return None
