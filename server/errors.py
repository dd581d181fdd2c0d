"""Errors that the server raises on purpose. `slug` is stable: the problem's `type` is /problems/<slug>."""

from __future__ import annotations

from typing import Any, ClassVar

from gpt2core.spec.errors import InputError


class ServerError(Exception):
    """An error that is reported to the caller. Its message defaults to the class's docstring."""

    slug: ClassVar[str]
    title: ClassVar[str]
    status: ClassVar[int]

    def __init__(self, detail: str | None = None, **fields: Any) -> None:
        super().__init__(detail or " ".join((type(self).__doc__ or "").split()))
        self.fields = fields
        self.headers: dict[str, str] = {}


class InvalidRequest(ServerError):
    """The request contains values that are not accepted; `errors` names each of them."""

    slug, title, status = "invalid-request", "Request not accepted", 422

    def __init__(self, errors: list[dict[str, Any]], detail: str | None = None) -> None:
        first = f"{errors[0]['field']}: {errors[0]['accepted']}" if errors else None
        super().__init__(detail or first, errors=errors)


class MalformedBody(ServerError):
    """The body is not valid JSON."""

    slug, title, status = "malformed-body", "Body is not JSON", 400


class BodyTooLarge(ServerError):
    """The body is larger than this server accepts."""

    slug, title, status = "body-too-large", "Body too large", 413


class BodyTooSlow(ServerError):
    """The body arrives more slowly than this server accepts."""

    slug, title, status = "body-too-slow", "Body too slow", 408


class BodyTooComplex(ServerError):
    """The body nests deeper, or contains more values, than this server accepts."""

    slug, title, status = "body-too-complex", "Body too complex", 422


class ChunksTooSmall(ServerError):
    """The body arrives in chunks that are too small."""

    slug, title, status = "chunks-too-small", "Chunks too small", 400


class HeadersTooLarge(ServerError):
    """The request's headers are larger than this server accepts."""

    slug, title, status = "headers-too-large", "Headers too large", 431


class HeadersTooSlow(ServerError):
    """The request's headers did not arrive in time."""

    slug, title, status = "headers-too-slow", "Headers too slow", 408


class ServerBusy(ServerError):
    """This server holds its maximum of request bodies in memory; retry after `Retry-After`."""

    slug, title, status = "server-busy", "Server busy", 503


class ExpansionTooLarge(ServerError):
    """The experiment has more runs than this server accepts at once."""

    slug, title, status = "expansion-too-large", "Too many runs", 422


class SpaceTooLarge(ServerError):
    """The space of a tuning has more combinations than this server enumerates."""

    slug, title, status = "space-too-large", "Space too large", 422


class ExclusionTooLarge(ServerError):
    """Comparing the experiment's combinations with its exclusions would take too long."""

    slug, title, status = "exclusion-too-large", "Too many exclusions", 422


class PageTooLarge(ServerError):
    """The requested page is larger than this server allows."""

    slug, title, status = "page-too-large", "Page too large", 422


class BadCursor(ServerError):
    """The cursor does not belong to this list."""

    slug, title, status = "bad-cursor", "Cursor not known", 422


class NotFound(ServerError):
    """Nothing exists at this URL."""

    slug, title, status = "not-found", "Not found", 404


class NoResult(ServerError):
    """The run has no canonical result, since it has not succeeded."""

    slug, title, status = "no-result", "Run has no result", 404


class UnreadableTrace(ServerError):
    """The run's trace is damaged, or larger than this server converts; the artifact itself can be downloaded."""

    slug, title, status = "unreadable-trace", "Trace cannot be read", 422


class MethodNotAllowed(ServerError):
    """This URL does not support this method."""

    slug, title, status = "method-not-allowed", "Method not allowed", 405


class InvalidTransition(ServerError):
    """The state cannot change this way; `current` is the state, `allowed` lists the states it may change to."""

    slug, title, status = "invalid-transition", "State cannot change this way", 409


class IdempotencyConflict(ServerError):
    """This Idempotency-Key was used before with another body."""

    slug, title, status = "idempotency-conflict", "Idempotency-Key used for another body", 409


class UnknownWorker(ServerError):
    """The worker is not registered here. It must register and then repeat the request."""

    slug, title, status = "unknown-worker", "Worker not registered", 409


class StaleBoot(ServerError):
    """A newer process has registered as this worker and replaced this one."""

    slug, title, status = "stale-boot", "Worker was replaced", 409


class CoresTaken(ServerError):
    """Some of these cores run an attempt of a worker that was registered with another key."""

    slug, title, status = "cores-taken", "Cores are taken", 409


class WorkerBusy(ServerError):
    """The worker still runs an attempt or may still claim one. It must finish or leave first."""

    slug, title, status = "worker-busy", "Worker is busy", 409


class WrongFencingToken(ServerError):
    """The attempt belongs to another worker, or has another attempt_no."""

    slug, title, status = "wrong-fencing-token", "Attempt belongs to another worker", 409


class LeaseLost(ServerError):
    """The lease expired, and the run continued without this attempt. The worker must stop its trainer."""

    slug, title, status = "lease-lost", "Lease is lost", 409


class ResultConflict(ServerError):
    """The attempt already has a different result."""

    slug, title, status = "result-conflict", "Another result is stored", 409


class BadResult(ServerError):
    """The uploaded payload is not the result of a run."""

    slug, title, status = "bad-result", "Result not accepted", 422


class ArtifactTooLarge(ServerError):
    """The file is larger than this server accepts."""

    slug, title, status = "artifact-too-large", "Artifact too large", 413


class ArtifactDamaged(ServerError):
    """The file's SHA-256 differs from `sha256`: the file was damaged in transit, or is another one."""

    slug, title, status = "artifact-damaged", "Artifact damaged", 422


class ArtifactConflict(ServerError):
    """The attempt already has a different file of this name."""

    slug, title, status = "artifact-conflict", "Another artifact is stored", 409


class TooManyArtifacts(ServerError):
    """The attempt already has its maximum number of files."""

    slug, title, status = "too-many-artifacts", "Too many artifacts", 422


class UnknownMediaType(ServerError):
    """The body's media type is not supported here; `accepted` lists the supported ones."""

    slug, title, status = "unknown-media-type", "Media type not supported", 415


class NothingToCompare(ServerError):
    """The selection contains no run that has succeeded."""

    slug, title, status = "nothing-to-compare", "No finished runs selected", 422


class RequestRefused(ServerError):
    """The request was refused before it reached a route."""

    slug, title, status = "request-refused", "Request refused", 400


class InternalError(ServerError):
    """The server failed; its log has the details under `error_id`."""

    slug, title, status = "internal-error", "Server failed", 500


class Unauthenticated(ServerError):
    """The request needs a key: send Authorization: Bearer KEY."""

    slug, title, status = "unauthenticated", "Key missing or not accepted", 401

    def __init__(self, detail: str | None = None, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.headers["WWW-Authenticate"] = "Bearer"


class Forbidden(ServerError):
    """The key's scope does not allow this; `scopes` lists those that do."""

    slug, title, status = "forbidden", "Key does not allow this", 403


class NotYourWorker(ServerError):
    """The worker, or the attempt's worker, was registered with another key."""

    slug, title, status = "not-your-worker", "Worker of another key", 403


class NotYourPool(ServerError):
    """The pool was reported with another key that is still in use."""

    slug, title, status = "not-your-pool", "Pool of another key", 403


class TooManyPools(ServerError):
    """This server already has its maximum number of pools."""

    slug, title, status = "too-many-pools", "Too many pools", 422


class TooManyWebhooks(ServerError):
    """This server already has its maximum number of webhooks; delete one first."""

    slug, title, status = "too-many-webhooks", "Too many webhooks", 422


class WorkerElsewhere(ServerError):
    """A worker with this id is active with another spool. Stop it, or use another --worker-id.

    Once the other worker is silent, this one can register.
    """

    slug, title, status = "worker-elsewhere", "Worker is active elsewhere", 409


class RateExceeded(ServerError):
    """This key made too many requests; retry after `Retry-After`."""

    slug, title, status = "rate-exceeded", "Too many requests", 429


class QueueFull(ServerError):
    """This key, user or group would have more queued runs than this server allows."""

    slug, title, status = "queue-full", "Too many queued runs", 429


class QuotaUsed(ServerError):
    """This key, user or group has used its node hours of the last days."""

    slug, title, status = "quota-used", "Node hours are used", 429


class TooManyStreams(ServerError):
    """This server already has its maximum number of open event streams; retry after `Retry-After`."""

    slug, title, status = "too-many-streams", "Too many event streams", 429


class AnalysisTooLong(ServerError):
    """The analysis took longer than this server allows and was stopped."""

    slug, title, status = "analysis-too-long", "Analysis takes too long", 504

    def __init__(self, most_s: float, of: str = "") -> None:
        super().__init__(f"the analysis was stopped after {most_s:g} s{of}", max_s=most_s)


class TooManyQuestions(ServerError):
    """Too many analyses are waiting; try again later."""

    slug, title, status = "too-many-questions", "Too many analyses at once", 503


class OutOfResources(ServerError):
    """Memory, processes, threads or open files of this server have run out, its temporary folder cannot be written, or
    its system ended the process that computed the answer; retry after `Retry-After`."""

    slug, title, status = "out-of-resources", "Out of resources", 503

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail)
        self.headers["Retry-After"] = "5"


class TooManyExports(ServerError):
    """Too many exports are written at once; try again later."""

    slug, title, status = "too-many-exports", "Too many exports at once", 503


class DatabaseUnavailable(ServerError):
    """The database does not answer, or its schema is not this server's version."""

    slug, title, status = "database-unavailable", "Database not available", 503


class StoreUnavailable(ServerError):
    """The folder of artifacts or of answers cannot be written, or its disk is full."""

    slug, title, status = "store-unavailable", "Files cannot be stored", 503


class NotSignedOn(Exception):
    """Why somebody was not signed on, for a page with this status."""

    def __init__(self, reason: str, status: int = 401) -> None:
        super().__init__(reason)
        self.status = status


class StartRefused(InputError):
    """The server cannot start with these settings; the message says why."""


PROBLEM_TYPES: dict[str, type[ServerError]] = {kind.slug: kind for kind in ServerError.__subclasses__()}
