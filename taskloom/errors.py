"""Errors between a user and a server. Each class has its exit code on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskloom.contract import problems

EXIT_OK, EXIT_WORK_FAILED, EXIT_BAD_INPUT, EXIT_SERVER = 0, 1, 2, 3


class TaskloomError(Exception):
    """Base class of the client's and the command line's errors."""

    exit_code = EXIT_SERVER

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON for --json."""
        return {"error": str(self)}


class ServerUnreachable(TaskloomError):
    """No server answers at this address."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"no server answers at {server} ({reason}); start one with `taskloom up`, or give --server")
        self.server, self.reason = server, reason

    def to_dict(self) -> dict[str, Any]:
        return {"error": str(self), "server": self.server}


class NotUnderstood(TaskloomError):
    """The server's answer has a form that this version does not know."""


class FrameLibraryMissing(TaskloomError):
    """A data frame was requested, but neither pandas nor polars is installed."""

    exit_code = EXIT_BAD_INPUT


def _named(item: dict[str, Any]) -> str:
    field = item.get("field") or item.get("pointer")
    return f"{field} = {item.get('value')!r} is not accepted: {item.get('accepted')}"


class NoTrace(TaskloomError):
    """The run has no trace."""

    exit_code = EXIT_BAD_INPUT


class Problem(TaskloomError):
    """The server answered with a problem document; `problem.type` is stable."""

    def __init__(self, problem: problems.Problem) -> None:
        self.problem = problem
        named = "; ".join(map(_named, problem.errors or []))
        how = "; set TASKLOOM_TOKEN to a key of this server, or TASKLOOM_TOKEN_FILE to its file"
        hint = how if problem.status == 401 else ""
        reason = named or f"{problem.title}: {problem.detail}"
        super().__init__(f"{reason.rstrip('.')}{hint}" if hint else reason)

    def to_dict(self) -> dict[str, Any]:
        return self.problem.model_dump(exclude_none=True)


class BadRequest(Problem):
    """The request contains rejected values or names something that does not exist."""

    exit_code = EXIT_BAD_INPUT


class Conflict(Problem):
    """The request conflicts with the current state."""


class Forbidden(Problem):
    """The key is missing, unknown, or lacks the needed scope."""


def from_problem(problem: problems.Problem) -> Problem:
    """The error class for a problem's status."""
    if problem.status in (400, 404, 413, 422):
        return BadRequest(problem)
    if problem.status == 409:
        return Conflict(problem)
    if problem.status in (401, 403):
        return Forbidden(problem)
    return Problem(problem)
