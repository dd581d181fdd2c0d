"""The worker's HTTP client. It does not retry (see contract/retry.py)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from taskloom.contract import http
from taskloom.contract.artifacts import MEDIA_TYPES, OCTETS, ArtifactReceipt
from taskloom.contract.attempts import (
    HeartbeatAnswer,
    HeartbeatRequest,
    Lease,
    LeaseRequest,
    OutputLines,
    Progress,
    ResultReceipt,
    ResultUpload,
    StepsDone,
)
from taskloom.contract.keys import authorization
from taskloom.contract.retry import Refused, Unreachable
from taskloom.contract.workers import Leaving, WorkerRegistration

ANSWER_S = 30.0  # in addition to the time of a long poll
BEAT_ANSWER_S = 10.0  # leaves time for another heartbeat within the lease
ARTIFACT_S = 120.0  # for the server to sync a large file
M = TypeVar("M", bound=BaseModel)


class ServerClient:
    """One worker's connection to one server. Raises Unreachable (retry) and Refused (do not retry)."""

    def __init__(self, server: str, token: str | None) -> None:
        self._http = http.Client(server, authorization(token), ANSWER_S, short_answers=True)

    def close(self) -> None:
        self._http.close()

    def register(self, registration: WorkerRegistration) -> None:
        """Also raises Unreachable while another process with this id is active, since it may end."""
        try:
            self._send("POST", "/workers", registration)
        except Refused as error:
            if error.slug == "worker-elsewhere":
                raise Unreachable(str(error)) from error
            raise

    def leave(self, worker_id: str, boot_id: str) -> None:
        self._send("POST", f"/workers/{quote(worker_id, safe='')}/leave", Leaving(boot_id=boot_id))

    def claim(self, request: LeaseRequest) -> Lease | None:
        """Claim a run. None: there was none within request.wait_s."""
        answer = self._send("POST", "/leases", request, timeout_s=request.wait_s + ANSWER_S)
        return None if answer.status_code == 204 else self._parsed(answer, Lease)

    def heartbeat(
        self,
        attempt_id: int,
        worker_id: str,
        attempt_no: int,
        progress: Progress,
        output: OutputLines | None = None,
        steps: StepsDone | None = None,
    ) -> HeartbeatAnswer:
        fields: dict[str, Any] = {"output": output, "steps": steps}
        given = {name: value for name, value in fields.items() if value is not None}
        body = HeartbeatRequest(worker_id=worker_id, attempt_no=attempt_no, progress=progress, **given)
        return self._parsed(
            self._send("POST", f"/attempts/{attempt_id}/heartbeat", body, BEAT_ANSWER_S), HeartbeatAnswer
        )

    def deliver(self, attempt_id: int, upload: ResultUpload) -> ResultReceipt:
        return self._parsed(self._send("PUT", f"/attempts/{attempt_id}/result", upload), ResultReceipt)

    def deliver_artifact(self, attempt_id: int, worker_id: str, attempt_no: int, path: Path) -> ArtifactReceipt:
        """Send a file. Also raises OSError if it cannot be read."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            return self._parsed(
                self._http.exchange(
                    "PUT",
                    f"/attempts/{attempt_id}/artifacts/{quote(path.name, safe='')}",
                    content=file,
                    params={"worker_id": worker_id, "attempt_no": attempt_no, "sha256": sha256},
                    headers={"Content-Type": MEDIA_TYPES.get(path.suffix, OCTETS)},
                    timeout=ARTIFACT_S,
                ),
                ArtifactReceipt,
            )

    def _send(self, method: str, path: str, body: BaseModel, timeout_s: float = ANSWER_S) -> httpx.Response:
        content = body.model_dump_json(exclude_unset=True)
        return self._http.exchange(
            method, path, content=content, headers={"Content-Type": "application/json"}, timeout=timeout_s
        )

    @staticmethod
    def _parsed(answer: httpx.Response, model: type[M]) -> M:
        try:
            return model.model_validate_json(answer.content)
        except ValidationError as error:
            detail = f"{error.error_count()} errors, first: {error.errors()[0]['loc']} {error.errors()[0]['msg']}"
            raise Unreachable(f"{answer.request.url}: answer not understood: {detail}") from error
