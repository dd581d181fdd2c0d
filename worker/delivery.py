"""Delivery of the spool to the server; an entry is deleted only after the server's answer."""

from __future__ import annotations

import functools
from collections.abc import Callable

from taskloom.contract.retry import Refused, call_until_answered
from taskloom.worker.client import ServerClient
from taskloom.worker.execution import Verdict, upload
from taskloom.worker.report import Report
from taskloom.worker.spool import Entry, Spool

KEEP_STATUSES = (401, 403)  # caused by the operator's key, not by the result

NOT_A_RESULT_STATUSES = (413, 422)

Pause = Callable[[float], bool]


def _failed_instead(entry: Entry, error: Refused) -> Entry:
    """The failure that replaces a result which is too large or malformed. Without it the server would wait for the
    lease to expire and retry the run."""
    detail = str(error.problem.get("detail", error))
    verdict = Verdict("failed", None, {"slug": "result-refused", "detail": detail, "output": []})
    return Entry(entry.attempt_id, upload(entry.upload.worker_id, entry.upload.attempt_no, verdict))


class Delivery:
    """Delivers entries. Raises retry.GaveUp if it is stopped before the server answers."""

    def __init__(self, client: ServerClient, spool: Spool, pause: Pause, report: Report) -> None:
        self._client, self._spool, self._pause, self._report = client, spool, pause, report

    def deliver_waiting(self) -> None:
        """Deliver everything in the spool, oldest first."""
        for entry in self._spool.entries():
            self.deliver(entry)

    def deliver(self, entry: Entry) -> None:
        """Deliver one entry with retries, its artifacts first, so that they exist when the result arrives."""
        self.deliver_artifacts(entry)
        try:
            receipt = call_until_answered(
                lambda: self._client.deliver(entry.attempt_id, entry.upload), self._pause, self._tell_retry
            )
        except Refused as error:
            if error.status in KEEP_STATUSES:
                text = f"result of attempt {entry.attempt_id} stays in the spool: {error}"
                self._report.say("delivery-forbidden", text)
                return
            aside = self._spool.set_aside(entry.attempt_id)
            self._report.say(
                "delivery-refused",
                f"result of attempt {entry.attempt_id} rejected and moved to {aside}: {error}",
                attempt_id=entry.attempt_id,
                problem=error.problem,
            )
            if error.status in NOT_A_RESULT_STATUSES and entry.upload.outcome == "succeeded":
                self.deliver(_failed_instead(entry, error))
            return
        self._spool.remove(entry.attempt_id)
        self._report.say(
            "delivered",
            f"result of attempt {entry.attempt_id} delivered: {receipt.state}",
            attempt_id=entry.attempt_id,
            state=receipt.state,
            canonical=receipt.canonical,
        )

    def deliver_artifacts(self, entry: Entry) -> None:
        """Deliver an attempt's artifacts. A rejected file does not delay the others."""
        attempt_id, upload = entry.attempt_id, entry.upload
        for path in self._spool.artifacts(attempt_id):
            try:
                call_until_answered(
                    functools.partial(
                        self._client.deliver_artifact, attempt_id, upload.worker_id, upload.attempt_no, path
                    ),
                    self._pause,
                    self._tell_retry,
                )
            except Refused as error:
                if error.status in KEEP_STATUSES:
                    return
                aside = self._spool.set_artifact_aside(attempt_id, path)
                self._report.say(
                    "artifact-refused",
                    f"{path.name} of attempt {attempt_id} rejected and moved to {aside}: {error}",
                    attempt_id=attempt_id,
                    name=path.name,
                    problem=error.problem,
                )
            else:
                path.unlink()
                self._report.say(
                    "artifact-delivered",
                    f"{path.name} of attempt {attempt_id} delivered",
                    attempt_id=attempt_id,
                    name=path.name,
                )

    def _tell_retry(self, error: Exception, delay_s: float) -> None:
        self._report.say("delivery-failed", f"delivery failed: {error}; retrying in {delay_s:.1f} s")
