"""The child's side of process/launch.py: settings on standard input, events on standard output, result, exit codes."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import hashlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from gpt2core.node.files import replacing
from gpt2core.process.launch import EXIT_BAD_INPUT, EXIT_CANCELLED, EXIT_FAILED, EXIT_OK, LIFELINE, ONE_THREAD, PROTOCOL
from gpt2core.process.streams import forget_output, is_exhausted, is_unloaded
from gpt2core.spec import addresses
from gpt2core.spec.errors import Cancelled, CoreError, InputError, MachineError, Unheard, UnreadableFile
from gpt2core.spec.extras import NotLoaded
from gpt2core.spec.preflight import TRAINING, require

CHUNK_BYTES = 1 << 16
LOOK_EVERY_S = 1.0
os.environ.update(ONE_THREAD)  # before a BLAS is loaded


def main(work: Callable[[threading.Event], None]) -> int:
    """Call `work` and return the exit code; its errors are emitted as events. SIGTERM and SIGINT set its argument."""
    gc.disable()  # a plan has millions of objects and no cycles, so the garbage collector would find nothing
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        end_with_parent()
        addresses.check()  # before NumPy is loaded
        work(stop)
    except Unheard as error:  # it cannot be an event
        forget_output()
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except CoreError as error:
        return failed(error)
    except ImportError as cause:
        unloaded = NotLoaded(cause)
        emit({"event": "error", "slug": unloaded.slug, "detail": str(unloaded), "exit_code": EXIT_BAD_INPUT})
        return EXIT_BAD_INPUT
    except (MemoryError, OSError, RuntimeError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM:  # mmap's
            detail = str(error) or "no memory is left"
            emit({"event": "error", "slug": "out-of-memory", "detail": detail, "exit_code": EXIT_FAILED})
            return EXIT_FAILED
        if isinstance(error, OSError) and error.filename is not None:
            return failed(UnreadableFile(error.filename, error.strerror or str(error)))
        if not (is_exhausted(error) or is_unloaded(error)):
            raise
        return failed(MachineError(f"{error}; raise the limit (ulimit -a, or that of the container)"))
    return EXIT_OK


def failed(error: CoreError) -> int:
    """Report an error; its exit code."""
    code = EXIT_CANCELLED if isinstance(error, Cancelled) else error.exit_code
    emit({"event": "error", "slug": error.slug, "detail": str(error), "exit_code": code, **error.fields()})
    return code


def leave(code: int) -> NoReturn:
    """Exit at once: shutting the interpreter down would take 0.3 s."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(code)


def end_with_parent() -> None:
    """Kill this process group as soon as its starter has ended, for whatever reason."""
    descriptor = os.environ.pop(LIFELINE, None)
    if descriptor is None:  # started by hand
        return

    def watch() -> None:
        os.read(int(descriptor), 1)  # no byte ever arrives: it returns when the last writer, the parent, has ended
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


@contextlib.contextmanager
def within(seconds: float, error: CoreError) -> Iterator[None]:
    """End this process with the error unless what is done inside ends in time. It must give Python's lock away."""
    timer = threading.Timer(seconds, lambda: leave(failed(error)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_with_launcher() -> None:
    """Kill this process group, a rank, as soon as the process has ended that started it. (Not by PR_SET_PDEATHSIG: it
    fires when the thread ends that started the rank.)
    """
    launcher = os.getppid()
    ended: Callable[[], object]
    try:
        ended = functools.partial(select.select, [os.pidfd_open(launcher)], [], [])
    except (AttributeError, OSError):  # Linux before 5.3, a Python that was built there, a sandbox
        ended = functools.partial(_outlive, launcher)

    def watch() -> None:
        ended()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


def _outlive(parent: int) -> None:
    """Wait until another process has become the parent."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)


def read_settings() -> dict[str, Any]:
    """The settings on standard input, up to the end of their JSON: not every launcher passes on the end of the input.
    Raises InputError.
    """
    read = bytearray()
    while True:
        more = os.read(sys.stdin.fileno(), CHUNK_BYTES)
        read += more
        try:
            values = json.loads(read)
        except ValueError as error:
            if more:
                continue
            raise InputError(f"standard input is not JSON: {error}") from error
        if isinstance(values, dict):
            return values
        if not more:
            raise InputError("standard input is not a JSON object of settings")


def emit(event: dict[str, Any]) -> None:
    """Write one event as one line. Raises Unheard if standard output does not accept it."""
    if sys.stdout is None or sys.stdout.closed:  # None: the process was started without one
        raise Unheard("standard output is closed")
    try:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise Unheard(f"standard output does not accept events: {error.strerror}") from error


def started() -> None:
    """Check the surroundings, and report that the settings were accepted and the work begins. Raises InputError."""
    require(TRAINING)
    emit({"event": "started", "pid": os.getpid(), "schema": PROTOCOL})


def deliver(path: Path, result: dict[str, Any]) -> None:
    """Write the result completely or not at all, and report it. Raises UnreadableFile."""
    text = json.dumps(result, allow_nan=False).encode()
    with replacing(path) as part:
        part.write_bytes(text)
    emit({"event": "result", "path": str(path), "sha256": hashlib.sha256(text).hexdigest()})
