"""A reverse proxy that serves a server below a path."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

PREFIX = "/lab/taskloom"
LEFT_OUT = {"connection", "content-length", "transfer-encoding", "date", "server", "host"}


@contextlib.contextmanager
def proxy_of(url: str) -> Iterator[str]:
    """Start the proxy and yield the URL below which it serves the server. Every other path is a 404."""
    client = httpx.Client(base_url=url, timeout=httpx.Timeout(30, read=None))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            # Origin is left out: the server would compare it with its own address, not with the proxy's.
            headers = {k: v for k, v in self.headers.items() if k.lower() not in LEFT_OUT | {"origin"}}
            path = self.path.removeprefix(PREFIX)
            with client.stream(self.command, path, content=body, headers=headers) as response:
                self.send_response(response.status_code)
                for name, value in response.headers.items():
                    if name.lower() not in LEFT_OUT:
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                with contextlib.suppress(OSError):
                    for part in response.iter_raw():
                        self.wfile.write(part)
                        self.wfile.flush()
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{PREFIX}"
    finally:
        server.shutdown()
        server.server_close()
        client.close()
