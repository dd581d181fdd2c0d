"""The provisioner's requests to the server."""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from taskloom.contract import http
from taskloom.contract.demand import Demand, PoolReport
from taskloom.contract.keys import authorization

ANSWER_S = 30.0


class ServerSilent(Exception):
    """The server did not answer, or not as expected; a retry may help."""


class ServerRefused(Exception):
    """The server refused this provisioner's key or request."""


class Server:
    """One connection to one server."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = authorization(token)
        self._http = http.Client(url, headers, ANSWER_S)

    def close(self) -> None:
        self._http.close()

    def demand(self) -> Demand:
        """Get the queue's demand. Raises ServerSilent or ServerRefused."""
        answer = self._send("GET", "/queue/demand")
        try:
            return Demand.model_validate_json(answer.content)
        except ValidationError as error:
            raise ServerSilent(f"{answer.request.url}: the answer is not a valid demand: {error}") from error

    def report(self, pool: str, report: PoolReport) -> None:
        """Report a pool's state. Raises ServerSilent or ServerRefused."""
        self._send("PUT", f"/queue/pools/{pool}", report.model_dump_json())

    def _send(self, method: str, path: str, body: str | None = None) -> httpx.Response:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer = self._http.request(method, path, content=body, headers=headers)
        except http.FAILED as error:
            raise ServerSilent(f"{self._http.base_url}: {self._http.why(error)}") from error
        if answer.status_code in (401, 403):
            raise ServerRefused(
                f"{answer.request.url}: status {answer.status_code}; a provisioner needs a key of scope worker, "
                "in TASKLOOM_TOKEN or in the token file"
            )
        if not answer.is_success:
            raise ServerSilent(f"{answer.request.url}: status {answer.status_code}{self._http.through}")
        return answer
