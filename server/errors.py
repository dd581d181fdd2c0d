"""Every error the server raises on purpose. `slug` is stable: the problem's `type` is /problems/<slug>."""

from __future__ import annotations

from typing import Any, ClassVar


class ServerError(Exception):
    """Something the caller can be told. A message defaults to the class's docstring."""

    slug: ClassVar[str]
    title: ClassVar[str]
    status: ClassVar[int]

    def __init__(self, detail: str | None = None, **fields: Any) -> None:
        super().__init__(detail or " ".join((type(self).__doc__ or "").split()))
        self.fields = fields
        self.headers: dict[str, str] = {}


class InvalidRequest(ServerError):
    """The request holds values that are not accepted; `errors` names each of them."""

    slug, title, status = "invalid-request", "Request not accepted", 422

    def __init__(self, errors: list[dict[str, Any]], detail: str | None = None) -> None:
        first = f"{errors[0]['field']}: {errors[0]['accepted']}" if errors else None
        super().__init__(detail or first, errors=errors)


class MalformedBody(ServerError):
    """The body cannot be read as JSON."""

    slug, title, status = "malformed-body", "Body is not JSON", 400


class BodyTooLarge(ServerError):
    """The body is larger than this server takes."""

    slug, title, status = "body-too-large", "Body too large", 413


class BodyTooSlow(ServerError):
    """The body comes more slowly than this server waits for."""

    slug, title, status = "body-too-slow", "Body too slow", 408


class BodyTooComplex(ServerError):
    """The body nests deeper, or holds more values, than this server reads."""

    slug, title, status = "body-too-complex", "Body too complex", 422


class ChunksTooSmall(ServerError):
    """The body comes in chunks so small that reading them is most of the work."""

    slug, title, status = "chunks-too-small", "Chunks too small", 400


class HeadersTooLarge(ServerError):
    """The request's headers are larger than this server takes."""

    slug, title, status = "headers-too-large", "Headers too large", 431


class HeadersTooSlow(ServerError):
    """The request's headers did not come in time."""

    slug, title, status = "headers-too-slow", "Headers too slow", 408


class ServerBusy(ServerError):
    """This server holds as many bytes of bodies as it may; `Retry-After` says when to send it again."""

    slug, title, status = "server-busy", "Server busy", 503


class ExpansionTooLarge(ServerError):
    """The experiment would become more runs than this server takes at once."""

    slug, title, status = "expansion-too-large", "Too many runs", 422


class ExclusionTooLarge(ServerError):
    """Comparing the experiment's combinations with what it excludes would take longer than this server works on it."""

    slug, title, status = "exclusion-too-large", "Too many exclusions", 422


class PageTooLarge(ServerError):
    """More items were asked for than one page holds."""

    slug, title, status = "page-too-large", "Page too large", 422


class BadCursor(ServerError):
    """The cursor was not given out by this list."""

    slug, title, status = "bad-cursor", "Cursor not known", 422


class NotFound(ServerError):
    """There is nothing at this address."""

    slug, title, status = "not-found", "Not found", 404


class NoResult(ServerError):
    """The run has no result that counts: it has not succeeded (yet)."""

    slug, title, status = "no-result", "Run has no result", 404


class MethodNotAllowed(ServerError):
    """This address exists, but does not take this method."""

    slug, title, status = "method-not-allowed", "Method not allowed", 405


class InvalidTransition(ServerError):
    """Something cannot change state this way; `current` is its state, `allowed` the states it may change to."""

    slug, title, status = "invalid-transition", "State cannot change this way", 409


class IdempotencyConflict(ServerError):
    """This Idempotency-Key was used before with another body."""

    slug, title, status = "idempotency-conflict", "Idempotency-Key used for another body", 409


class UnknownWorker(ServerError):
    """The worker is not registered here; it registers, then asks again."""

    slug, title, status = "unknown-worker", "Worker not registered", 409


class StaleBoot(ServerError):
    """The worker was registered again by a newer process; this one has been replaced."""

    slug, title, status = "stale-boot", "Worker was replaced", 409


class CoresTaken(ServerError):
    """Cores of this node run an attempt of a worker that was registered with another key."""

    slug, title, status = "cores-taken", "Cores are taken", 409


class WorkerBusy(ServerError):
    """The worker still runs something, or may still ask for a run: it ends that, or leaves, first."""

    slug, title, status = "worker-busy", "Worker is busy", 409


class WrongFencingToken(ServerError):
    """The attempt belongs to another worker, or has another attempt_no."""

    slug, title, status = "wrong-fencing-token", "Attempt belongs to someone else", 409


class LeaseLost(ServerError):
    """The lease ran out and the run went on without this attempt; the worker stops it."""

    slug, title, status = "lease-lost", "Lease is lost", 409


class ResultConflict(ServerError):
    """The attempt already has a result, and it is another one."""

    slug, title, status = "result-conflict", "Another result is stored", 409


class BadResult(ServerError):
    """The uploaded payload is not the result of a run."""

    slug, title, status = "bad-result", "Result not accepted", 422


class ArtifactTooLarge(ServerError):
    """The file is larger than this server keeps."""

    slug, title, status = "artifact-too-large", "Artifact too large", 413


class ArtifactDamaged(ServerError):
    """The file's SHA-256 is another one than `sha256` said: it was damaged on its way, or is another file."""

    slug, title, status = "artifact-damaged", "Artifact damaged", 422


class ArtifactConflict(ServerError):
    """The attempt already has a file of this name, and it is another one."""

    slug, title, status = "artifact-conflict", "Another artifact is stored", 409


class TooManyArtifacts(ServerError):
    """The attempt has as many files as this server keeps of one."""

    slug, title, status = "too-many-artifacts", "Too many artifacts", 422


class UnknownMediaType(ServerError):
    """The body is declared to be of a kind that is not taken here; `accepted` are those that are."""

    slug, title, status = "unknown-media-type", "Media type not taken", 415


class NothingToCompare(ServerError):
    """The selection holds no run that has succeeded."""

    slug, title, status = "nothing-to-compare", "No finished runs selected", 422


class RequestRefused(ServerError):
    """The request was refused before it reached an address."""

    slug, title, status = "request-refused", "Request refused", 400


class InternalError(ServerError):
    """The server failed; its log has the details under `error_id`."""

    slug, title, status = "internal-error", "Server failed", 500


class Unauthenticated(ServerError):
    """This takes a key: Authorization: Bearer KEY."""

    slug, title, status = "unauthenticated", "Key missing or not accepted", 401

    def __init__(self, detail: str | None = None, **fields: Any) -> None:
        super().__init__(detail, **fields)
        self.headers["WWW-Authenticate"] = "Bearer"


class Forbidden(ServerError):
    """The key does not allow this; `scopes` are those that do."""

    slug, title, status = "forbidden", "Key does not allow this", 403


class NotYourWorker(ServerError):
    """The worker, or the attempt's worker, was registered with another key."""

    slug, title, status = "not-your-worker", "Worker of another key", 403


class NotYourPool(ServerError):
    """The pool was reported with another key that is still in use."""

    slug, title, status = "not-your-pool", "Pool of another key", 403


class TooManyPools(ServerError):
    """This server keeps as many pools as it may."""

    slug, title, status = "too-many-pools", "Too many pools", 422


class TooManyWebhooks(ServerError):
    """This server keeps as many webhooks as it may: one that nobody needs is deleted first."""

    slug, title, status = "too-many-webhooks", "Too many webhooks", 422


class WorkerElsewhere(ServerError):
    """A worker of this id is at work with another spool. Stop that one, or give this one another --worker-id; once that
    one is not heard of any more, this one takes its place.
    """

    slug, title, status = "worker-elsewhere", "Worker works elsewhere", 409


class RateExceeded(ServerError):
    """More requests came with this key than are taken in this time; `Retry-After` says when to go on."""

    slug, title, status = "rate-exceeded", "Too many requests", 429


class QueueFull(ServerError):
    """More runs would be queued with this key than this server takes."""

    slug, title, status = "queue-full", "Too many queued runs", 429


class TooManyStreams(ServerError):
    """This server keeps as many event streams open as it may; `Retry-After` says when to ask again."""

    slug, title, status = "too-many-streams", "Too many event streams", 429


class AnalysisTooLong(ServerError):
    """Computing the answer took longer than the server allows; it was given up."""

    slug, title, status = "analysis-too-long", "Analysis takes too long", 504


class TooManyQuestions(ServerError):
    """So many questions wait to be computed that another one is not taken; try again."""

    slug, title, status = "too-many-questions", "Too many questions at once", 503


class DatabaseUnavailable(ServerError):
    """The database does not answer, or is not at this server's version."""

    slug, title, status = "database-unavailable", "Database not available", 503


class StoreUnavailable(ServerError):
    """The folder of artifacts cannot be written to."""

    slug, title, status = "store-unavailable", "Artifacts cannot be stored", 503


class StartRefused(Exception):
    """The server cannot start as asked; the message says why."""


PROBLEM_TYPES: dict[str, type[ServerError]] = {kind.slug: kind for kind in ServerError.__subclasses__()}
