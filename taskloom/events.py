"""Reads server-sent events until their topics have ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from taskloom.connection import problem_of
from taskloom.contract import http
from taskloom.errors import ServerUnreachable, from_problem

SILENCE_S = 40.0  # the server sends a keep-alive every 15 s
AGAIN_S = 1.0
FOREIGN = (ValueError, LookupError, TypeError, RecursionError)  # of events of another program
TRIES = 5  # time to reach the server again


@dataclass(frozen=True)
class Event:
    """An event of a topic: `changed`, `line` or `ended`, with the topic's complete state or the line."""

    topic: str
    event: str
    data: dict[str, Any]


def listen(client: http.Client, server: str, topics: Sequence[str], until: float | None) -> Iterator[Event]:
    """Events until all topics have ended, or until the instant `until` of time.monotonic(). Raises ServerUnreachable or
    Problem."""
    left, last, failures = list(dict.fromkeys(topics)), None, 0
    while left:
        headers = {"Accept": "text/event-stream", **({} if last is None else {"Last-Event-ID": last})}
        try:
            timeout = httpx.Timeout(SILENCE_S if until is None else min(SILENCE_S, max(0.05, until - time.monotonic())))
            with client.stream("GET", "/events", params={"topic": left}, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    raise from_problem(problem_of(answer, client.through))
                for identity, event in _events(answer):
                    last, failures = identity or last, 0
                    yield event
                    if event.event == "ended":
                        left.remove(event.topic)
                    if until is not None and time.monotonic() >= until:
                        return
                if left:
                    raise httpx.RemoteProtocolError("the stream ended before its topics")
        except (*http.FAILED, *FOREIGN) as error:
            failures += 1
            if until is not None and time.monotonic() >= until:
                return
            if failures > TRIES:
                raise ServerUnreachable(server, client.why(error)) from error
            time.sleep(AGAIN_S)


def _events(answer: httpx.Response) -> Iterator[tuple[str | None, Event]]:
    fields: dict[str, str] = {}
    for line in _lines(answer):
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            message = json.loads(fields["data"])
            yield fields.get("id"), Event(message["topic"], fields.get("event", "message"), message["data"])
        fields = {}


def _lines(answer: httpx.Response) -> Iterator[str]:
    """The lines of a stream. (httpx's own would end at U+2028 and the like, which names and output may contain.)"""
    rest = b""
    for part in answer.iter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        yield from (line.removesuffix(b"\r").decode(errors="replace") for line in lines)
