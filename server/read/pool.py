"""The analysis pool: separate processes compute answers within a limit of processor time. Equal questions are computed
once. An answer that will be kept is computed to its end once it is begun, so that a caller who left finds it when it
asks again; any other computation stops when no caller waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

from taskloom.server.errors import PROBLEM_TYPES, AnalysisTooLong, OutOfResources, ServerError, TooManyQuestions
from taskloom.server.read import work
from taskloom.server.read.processes import in_process
from taskloom.server.read.sources import Refusal, Sources

T = TypeVar("T")
log = logging.getLogger("taskloom.server")


@dataclass
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiters: int = 0
    goes_on: bool = False  # also without waiters


class Flights:
    """Computations by name: equal questions share one, which stops when no caller waits for it, unless it goes on."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # including aborted ones, until they have ended

    def __len__(self) -> int:
        return len(self._flights)

    async def join(self, name: Hashable, start: Callable[[], Awaitable[T]]) -> T:
        """Result of `start`, shared by all concurrent callers with this name."""
        flight: _Flight[T] | None = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = _Flight(asyncio.ensure_future(_awaited(start)))
            self._tasks.add(flight.task)
            flight.task.add_done_callback(self._tasks.discard)
            flight.task.add_done_callback(lambda _: self._forget(name, flight))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.goes_on and not flight.task.done():
                self._forget(name, flight)  # at once, so that no caller joins the aborted computation
                flight.task.cancel()

    def go_on(self, name: Hashable) -> None:
        """Compute to the end from now on, also if no caller waits."""
        self._flights[name].goes_on = True

    def _forget(self, name: Hashable, flight: _Flight[Any]) -> None:
        if self._flights.get(name) is flight:
            del self._flights[name]
        if flight.task.done() and not flight.task.cancelled():
            flight.task.exception()  # marks it as retrieved, since the waiting callers get it

    def end(self) -> None:
        """Abort all computations."""
        for flight in list(self._flights.values()):
            flight.task.cancel()

    async def ended(self) -> None:
        """Wait until all computations have ended, including aborted ones, whose threads run to their end."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _awaited(start: Callable[[], Awaitable[T]]) -> T:
    return await start()


class Pool:
    """Processes that answer questions; used from one event loop."""

    def __init__(self, sources: Sources) -> None:
        self._sources, settings = sources, sources.settings
        self._settings = settings
        self._turns = CapacityLimiter(max(1, settings.processes))
        self.flights = Flights()
        self._closed = False
        # By the clock, since beside other load a process gets little time; and until such a question is tried again.
        self.longest_s = self._pause_s = 10 * settings.analysis_s
        self._given_up: dict[Hashable, tuple[float, Refusal]] = {}  # questions, with the time of the next try

    def close(self) -> None:
        """Reject waiting and later callers."""
        self._closed = True
        self.flights.end()

    async def answer(self, name: str, args: tuple[Any, ...], path: str | None) -> bytes:
        """The answer, or b"" if it is in the file `path`. Raises AnalysisTooLong, TooManyQuestions, OutOfResources
        or the errors of the question."""
        key = (name, args, path)
        try:
            return await self.flights.join(key, lambda: self._compute(name, args, path))
        except asyncio.CancelledError:
            if self._closed:
                raise TooManyQuestions("the server is stopping") from None
            raise

    async def _compute(self, name: str, args: tuple[Any, ...], path: str | None) -> bytes:
        if self._closed or len(self.flights) > self._settings.max_questions:
            refusal = TooManyQuestions(f"at most {self._settings.max_questions} analyses may wait at once")
            refusal.headers["Retry-After"] = "5"
            raise refusal
        async with self._turns:
            self._check_given_up(name, args, path)
            if path is not None:
                self.flights.go_on((name, args, path))
            try:
                with anyio.fail_after(self.longest_s):
                    found = await self._run(name, args, path)
            except TimeoutError:
                found = Refusal.of(AnalysisTooLong(self.longest_s))
        if isinstance(found, Refusal):
            if found.slug == AnalysisTooLong.slug:
                self._given_up[name, args, path] = time.monotonic() + self._pause_s, found
            raise rebuilt(found)
        return found

    def _check_given_up(self, *question: Hashable) -> None:
        """Raises AnalysisTooLong for a question that recently took too long, since it would delay others again."""
        at = time.monotonic()
        self._given_up = {request: known for request, known in self._given_up.items() if known[0] > at}
        if question in self._given_up:
            _, found = self._given_up[question]
            raise rebuilt(replace(found, detail=f"{found.detail}; it is not repeated yet"))

    async def _run(self, name: str, args: tuple[Any, ...], path: str | None) -> bytes | Refusal:
        if not self._settings.processes:
            return await to_thread.run_sync(work.answer, self._sources, name, args, path)
        given = (self._settings.model_dump_json(), name, args, path)
        try:
            return await in_process(work.answer_in_process, *given)
        except OutOfResources as error:
            log.warning("a process of the analysis pool has failed; another one computes %s", name, exc_info=error)
            return await in_process(work.answer_in_process, *given)


def rebuilt(refusal: Refusal) -> ServerError:
    """The error that the other process raised."""
    kind = PROBLEM_TYPES[refusal.slug]
    error = kind.__new__(kind)
    ServerError.__init__(error, refusal.detail, **refusal.fields)
    return error
