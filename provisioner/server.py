"""The provisioner's requests to the server."""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from taskloom.contract import http
from taskloom.contract.demand import Demand, PoolReport
from taskloom.contract.keys import authorization
from taskloom.contract.retry import Refused, Unreachable

ANSWER_S = 30.0


class Server:
    """One connection to one server. Raises Unreachable (retry), and Refused for a key that may not."""

    def __init__(self, url: str, token: str | None) -> None:
        self._http = http.Client(url, authorization(token), ANSWER_S, short_answers=True)

    def close(self) -> None:
        self._http.close()

    def demand(self) -> Demand:
        """Get the queue's demand."""
        answer = self._send("GET", "/queue/demand")
        try:
            return Demand.model_validate_json(answer.content)
        except ValidationError as error:
            raise Unreachable(f"{answer.request.url}: the answer is not a valid demand: {error}") from error

    def report(self, pool: str, report: PoolReport) -> None:
        """Report a pool's state."""
        self._send("PUT", f"/queue/pools/{pool}", report.model_dump_json())

    def _send(self, method: str, path: str, body: str | None = None) -> httpx.Response:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            return self._http.exchange(method, path, content=body, headers=headers)
        except Refused as error:
            if error.status in (401, 403):
                raise
            raise Unreachable(str(error), answer=error.answer) from error
