"""Several server processes on one listening socket: started, watched and stopped together."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpt2core.process import launch
from gpt2core.process.temporary import TemporaryFolder
from taskloom.server.errors import StartRefused
from taskloom.server.metrics import SHARED
from taskloom.server.settings import Settings

HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
GRACE_S = 30.0  # time for a replica to answer waiting requests
RESTART_S = 1.0  # delay before a replica that ended is replaced
log = logging.getLogger("taskloom.server")


def run(
    listener: socket.socket,
    count: int,
    settings: Settings,
    public: bool,
    listening: Callable[[], None],
    as_json: bool = False,
) -> None:
    """Run `count` replicas until SIGTERM or SIGINT, and replace those that end. Raises StartRefused if one cannot
    start."""
    options = ["--public"] * public + ["--json"] * as_json
    listener.listen(2048)
    listener.set_inheritable(True)
    folder = TemporaryFolder()
    with _signals() as signals, folder as counters:
        environment = {**os.environ, "TASKLOOM_DATABASE_URL": settings.database_url, SHARED: str(counters)}
        replicas: list[subprocess.Popen[bytes]] = []
        try:
            replicas += [_start(listener, folder.lock.fileno(), environment, options) for _ in range(count)]
            for replica in replicas:
                _wait_until_listening(replica)
            listening()
            while signals.recv(1)[0] == signal.SIGCHLD:
                for i, replica in enumerate(replicas):
                    if replica.poll() is not None:
                        log.error("server process %d ended with %d and is replaced", replica.pid, replica.returncode)
                        time.sleep(RESTART_S)
                        replicas[i] = _start(listener, folder.lock.fileno(), environment, options)
        finally:
            _stop(replicas)


def stop_with_parent(stop: Callable[[], None]) -> None:
    """In a replica: call `stop` once the parent process has ended, for any reason."""

    def watch() -> None:
        # Not through sys.stdin: a waiting thread holds its lock, and Python aborts if it exits meanwhile.
        while os.read(sys.stdin.fileno(), 1):
            pass
        stop()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _start(
    listener: socket.socket, lock: int, environment: Mapping[str, str], options: Sequence[str]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "taskloom.server", "--replica", str(listener.fileno()), *options]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # never written to: it closes when this process ends
        stdout=subprocess.PIPE,
        pass_fds=(listener.fileno(), lock),  # the folder of counters is kept until the last replica has ended
        env=environment,
    )


def _wait_until_listening(replica: subprocess.Popen[bytes]) -> None:
    assert replica.stdout
    # A preloaded library may print lines before the event.
    if not any(launch.parse_event(line.decode(errors="replace")) for line in replica.stdout):
        raise StartRefused("a server process could not start; its log has the reason")


def _stop(replicas: list[subprocess.Popen[bytes]]) -> None:
    for replica in replicas:
        replica.terminate()
    until = time.monotonic() + GRACE_S
    for replica in replicas:
        try:
            replica.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.error("server process %d does not stop and is killed", replica.pid)
            replica.kill()
            replica.wait()
        if replica.returncode:
            log.error("server process %d ended with %d", replica.pid, replica.returncode)


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket from which the numbers of received signals can be read."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with reader, writer:
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in HEARD:
            signal.signal(number, lambda *_: None)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(-1)
