"""Files that a trainer writes beside its result: traces, profiles."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from taskloom.contract.bodies import Model

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
# By a name's last suffix; others are octet streams.
MEDIA_TYPES = {
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".gz": "application/gzip",
    ".csv": "text/csv",
    ".txt": "text/plain",
}
OCTETS = "application/octet-stream"
ACCEPTED_TYPES = (*MEDIA_TYPES.values(), OCTETS)


class ArtifactReceipt(Model):
    """Acknowledgement: the file is stored and recorded for its attempt."""

    attempt_id: int
    name: str
    sha256: str
    size_bytes: int


class ArtifactSummary(ArtifactReceipt):
    """A file of one attempt."""

    attempt_no: int
    media_type: str
    received_at: datetime
    chosen: bool = Field(description="whether a download by this name returns this attempt's file")


class ArtifactList(Model):
    """Every file of a run's attempts, by name, the newest attempt first."""

    run_id: int
    items: list[ArtifactSummary]
