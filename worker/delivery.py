"""Brings what is in the spool to the server; an entry goes only when the server has answered for it."""

from __future__ import annotations

from collections.abc import Callable

from worker.client import Refused, ServerClient
from worker.execution import Verdict, upload
from worker.report import Report
from worker.retry import call_until_answered
from worker.spool import Entry, Spool

KEEP_STATUSES = (401, 403)  # the operator's key is the matter, not the result

NOT_A_RESULT_STATUSES = (413, 422)

Pause = Callable[[float], bool]


def _failed_instead(entry: Entry, error: Refused) -> Entry:
    """A result that is too large or malformed is a failure of the run, told at once: else the run is tried again."""
    detail = str(error.problem.get("detail", error))
    verdict = Verdict("failed", None, {"slug": "result-refused", "detail": detail, "output": []})
    return Entry(entry.attempt_id, upload(entry.upload.worker_id, entry.upload.attempt_no, verdict))


class Delivery:
    """Delivers entries. Raises retry.GaveUp when it was asked to stop before the server answered."""

    def __init__(self, client: ServerClient, spool: Spool, pause: Pause, report: Report) -> None:
        self._client, self._spool, self._pause, self._report = client, spool, pause, report

    def deliver_waiting(self) -> None:
        """Everything in the spool, oldest first."""
        for entry in self._spool.entries():
            self.deliver(entry)

    def deliver(self, entry: Entry) -> None:
        """One entry, however often it takes."""
        try:
            receipt = call_until_answered(
                lambda: self._client.deliver(entry.attempt_id, entry.upload), self._pause, self._tell_retry
            )
        except Refused as error:
            if error.status in KEEP_STATUSES:
                text = f"result of attempt {entry.attempt_id} kept in the spool: {error}"
                self._report.say("delivery-forbidden", text)
                return
            aside = self._spool.set_aside(entry.attempt_id)
            self._report.say(
                "delivery-refused",
                f"result of attempt {entry.attempt_id} refused, kept as {aside}: {error}",
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

    def _tell_retry(self, error: Exception, delay_s: float) -> None:
        self._report.say("delivery-failed", f"result not delivered: {error}; again in {delay_s:.1f} s")
