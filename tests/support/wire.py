"""An unreliable network between workers and a server: a loopback proxy that loses, repeats, delays and reorders."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import httpx

PASSED_ON = ("content-type", "authorization")


@dataclass(frozen=True)
class Message:
    """A request on its way to the server."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Send = Callable[[Message], httpx.Response]
Carry = Callable[[Message, Send], httpx.Response | None]  # None if the answer is lost


class Wire:
    """A proxy on loopback, open while the context lasts. `carry` decides what happens to each message."""

    def __init__(self, server: str, carry: Carry) -> None:
        self._http = httpx.Client(base_url=server, timeout=60)
        wire = self

        class Handler(BaseHTTPRequestHandler):
            def _carry(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
                try:
                    answer = carry(Message(self.command, self.path, headers, body), wire._send)
                except httpx.TransportError:
                    answer = None
                self.close_connection = True
                if answer is None:
                    return
                with contextlib.suppress(BrokenPipeError):  # the sender has disconnected
                    self._answer(answer)

            def _answer(self, answer: httpx.Response) -> None:
                self.send_response(answer.status_code)
                for name in ("content-type", "retry-after"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_POST = do_PUT = _carry

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _send(self, message: Message) -> httpx.Response:
        return self._http.request(message.method, message.path, headers=message.headers, content=message.body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()  # waits for running requests
        self._http.close()


class LoseOneAnswer:
    """Lose the server's answer to the first request with this method, end of path and status; call `then` before."""

    def __init__(self, method: str, end: str, status: int, then: Callable[[], None]) -> None:
        self._what, self._then = (method, end, status), then
        self._lock = threading.Lock()
        self.lost = threading.Event()

    def __call__(self, message: Message, send: Send) -> httpx.Response | None:
        answer = send(message)
        with self._lock:
            if self.lost.is_set() or not self._is_it(message, answer):
                return answer
            self._then()
            self.lost.set()
            return None

    def _is_it(self, message: Message, answer: httpx.Response) -> bool:
        method, end, status = self._what
        return message.method == method and message.path.endswith(end) and answer.status_code == status


class Unreliable:
    """Delay a third of all messages, repeat a third much later, and lose the answers to a tenth."""

    def __init__(self, seed: int, longest_s: float) -> None:
        self._random, self._longest_s = random.Random(seed), longest_s
        self._ghosts: list[threading.Thread] = []
        self.repeated: list[int] = []  # the server's answers to repetitions

    def __call__(self, message: Message, send: Send) -> httpx.Response | None:
        if self._random.random() < 1 / 3:
            time.sleep(self._random.uniform(0, self._longest_s))
        if self._random.random() < 1 / 3:
            later_s = self._random.uniform(0, 4 * self._longest_s)
            ghost = threading.Thread(target=self._again, args=(message, send, later_s))
            self._ghosts.append(ghost)
            ghost.start()
        answer = send(message)
        return None if self._random.random() < 1 / 10 else answer

    def _again(self, message: Message, send: Send, later_s: float) -> None:
        time.sleep(later_s)
        with contextlib.suppress(httpx.TransportError):  # the server is gone
            self.repeated.append(send(message).status_code)

    def settle(self) -> None:
        """Wait until the last repetition has arrived."""
        for ghost in self._ghosts:
            ghost.join()
