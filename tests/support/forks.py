"""Servers of tests as forks of one interpreter that has loaded the server's modules, which is most of a server's start.

    python -P forks.py DESCRIPTOR

tests/integration/test_server_process.py has servers that are started as users start them.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

MODULE = "taskloom.server"
MOST_BYTES = 1 << 17  # of a request: arguments, environment, folder


class Fork:
    """A server's process, with what tests use of subprocess.Popen."""

    def __init__(self, arguments: Sequence[str], errors: BinaryIO, environment: Mapping[str, str]) -> None:
        readable, output = os.pipe()
        self._seen, ending = os.pipe()
        request = json.dumps([arguments, dict(environment), str(Path.cwd())]).encode()
        socket.send_fds(_interpreter()[0], [request], [output, errors.fileno(), ending])
        os.close(output)
        os.close(ending)
        self.stdout = open(readable, encoding="utf-8")  # noqa: PTH123, SIM115 - whoever reads it closes it
        self.returncode: int | None = None
        self.pid = self._number()

    def _number(self) -> int:
        found = os.read(self._seen, 4)
        assert len(found) == 4, "the interpreter or the process that waits for the server has ended"
        return int.from_bytes(found, sys.byteorder, signed=True)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._seen], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(MODULE, timeout or 0)
            self.returncode = self._number()
            os.close(self._seen)
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the loader and of Python, which act when an interpreter starts."""
    return {name: value for name, value in environment.items() if name.startswith(("LD_", "PYTHON"))}


OURS = _early(os.environ)


def possible(environment: Mapping[str, str]) -> bool:
    """Whether a fork meets these variables as a process that starts with them would."""
    return _early(environment) == OURS


@functools.cache
def _interpreter() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The socket of its requests, and the interpreter, which ends with this process. Its output is a pipe, as that of
    its forks, since Python's streams are made when it starts."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", __file__, str(its.fileno())]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as a server's before it loads NumPy
    process = subprocess.Popen(command, pass_fds=[its.fileno()], stdout=subprocess.PIPE, env=environment)
    its.close()
    atexit.register(_end, ours, process)
    return ours, process


def _end(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    with process:  # closes its pipe, and waits
        pass


def _forked(requests: socket.socket) -> list[str]:
    """Fork for each request. Return in the server's process: its arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for servers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            break
        for each in descriptors:
            os.close(each)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    requests.close()
    output, errors, ending = descriptors
    server = os.fork()
    if server:
        os.close(output)
        os.close(errors)
        os.write(ending, server.to_bytes(4, sys.byteorder, signed=True))
        code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
        os.write(ending, code.to_bytes(4, sys.byteorder, signed=True))
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for each in descriptors:
        os.close(each)
    arguments, environment, folder = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return list(arguments)


if __name__ == "__main__":
    gc.disable()  # as a server does while it loads modules
    importlib.import_module(f"{MODULE}.main")
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as socket_of_requests:
        sys.argv[1:] = _forked(socket_of_requests)
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
