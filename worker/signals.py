"""SIGTERM and SIGINT, processed by a separate thread.

The main thread cannot process them: while it waits, a second signal may arrive in another thread, and Python would not
wake the main thread.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable

HEARD = (signal.SIGTERM, signal.SIGINT)


def listen(on_signal: Callable[[], None]) -> None:
    """Call `on_signal` once for every SIGTERM or SIGINT from now on. Must be called in the main thread."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    for number in HEARD:
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_hear, args=(reader, writer, on_signal), name="signals", daemon=True).start()


def _hear(reader: socket.socket, writer: socket.socket, on_signal: Callable[[], None]) -> None:
    with reader, writer:
        while True:
            for number in reader.recv(64):
                if number in HEARD:
                    on_signal()
