"""HTTP connection to a server: requests, pages, streams; problem documents become exceptions (errors.py)."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from taskloom.contract import http, key_files, problems
from taskloom.contract.keys import authorization
from taskloom.contract.options import DEFAULT_SERVER
from taskloom.contract.retry import Refused, Unreachable
from taskloom.errors import NotUnderstood, ServerUnreachable, from_problem
from taskloom.patience import Patience

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Query = Mapping[str, Any]


class Connection:
    """A connection to one server."""

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
        patience: Patience | None = None,
    ) -> None:
        """token: default TASKLOOM_TOKEN, or the key in TASKLOOM_TOKEN_FILE. patience: by default, none.

        Raises ConfigError for a key that no request can carry and for proxies or certificates of the environment that
        cannot be used, FileError for a key's file, ServerUnreachable for an address that is none.
        """
        address = (server or os.environ.get("TASKLOOM_SERVER") or DEFAULT_SERVER).rstrip("/")
        self.server = http.shown(address)
        self._patience = patience or Patience()
        headers = authorization(token or key_files.token(os.environ))
        try:
            self._http = http.Client(address, headers, timeout_s)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ServerUnreachable(self.server, str(error)) from error

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _page(self, path: str, model: type[M], query: Query) -> M:
        return self._ask("GET", path, model, query=query)

    @staticmethod
    def _pages(fetch: Callable[[Query], Any], query: Query) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = fetch({**query, "cursor": cursor} if cursor else query)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _ask(
        self,
        method: str,
        path: str,
        model: type[M],
        body: BaseModel | None = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        return understood(self._send(method, path, body, query, headers), model)

    def _send(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        content = None if body is None else body.model_dump_json(exclude_unset=True)
        sent = {**(headers or {}), **({"Content-Type": "application/json"} if content else {})}
        is_question = method == "GET"
        while True:
            try:
                answer = self._http.exchange(method, path, content=content, params=query, headers=sent)
            except Unreachable as error:
                if self._patience.again(self.server, error, is_question):
                    continue
                if error.answer is None:
                    raise ServerUnreachable(self.server, self._http.why(error.__cause__ or error)) from error
                answer = error.answer
            except Refused as error:
                answer = error.answer
            self._patience.answered()
            return self._checked(answer)

    def _stream(self, path: str, write: Callable[[bytes], object], query: Query | None = None) -> str:
        """Write the content of an address to a file; return its ETag."""
        try:
            with self._http.stream("GET", path, params=query) as answer:
                if not answer.is_success:
                    answer.read()
                for chunk in self._checked(answer).iter_bytes():
                    write(chunk)
                return str(answer.headers.get("ETag"))
        except http.FAILED as error:
            raise ServerUnreachable(self.server, self._http.why(error)) from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        """The answer if it is a success. Raises Problem."""
        if answer.is_success:
            return answer
        raise from_problem(problem_of(answer, self._http.through))


def problem_of(answer: httpx.Response, through: str) -> problems.Problem:
    """The problem that an answer is; one of its own if a proxy or another program sent it."""
    try:
        return problems.Problem.model_validate_json(answer.content)
    except ValidationError:
        leads = f", leads to {http.shown(answer.headers['Location'])}" if "Location" in answer.headers else ""
        title = f"{answer.status_code} {answer.reason_phrase}".strip()
        detail = f"not from a Taskloom server{through}{leads}: {_line(answer)}"
        return problems.Problem(type="about:blank", title=title, status=answer.status_code, detail=detail)


def understood(answer: httpx.Response, kind: type[T], part: object = ...) -> T:
    """The answer, or a part of it, as a model. Raises NotUnderstood."""
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(answer.content) if part is ... else adapter.validate_python(part)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        why = f"{'.'.join(map(str, found['loc']))}: {found['msg']}".removeprefix(": ")
        if found["type"] == "json_invalid":  # such as a page on which to sign in
            why = f"it is no JSON: {_line(answer)}"
        raise NotUnderstood(f"this version does not understand the answer of {answer.request.url}: {why}") from error


def _line(answer: httpx.Response) -> str:
    """The beginning of another program's answer. Not answer.text, which decodes as its header says."""
    return " ".join(answer.content[:500].decode(errors="replace").split()) or "without content"


def _word(value: object) -> str:
    """A value as filters read it; text in quotes unless it is a word."""
    if isinstance(value, str) and re.fullmatch(r"[\w./:-]+", value):
        return value
    return json.dumps(value)


def parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Filters as query parameters, without those that are None."""
    query: dict[str, Any] = {}
    for name, value in given.items():
        if name == "filter" and isinstance(value, Mapping):
            query[name] = [f"{setting}={_word(v)}" for setting, v in value.items()]
        elif name == "columns" and not isinstance(value, str) and value is not None:
            query[name] = ",".join(value)
        elif isinstance(value, datetime.datetime):
            query[name] = value.astimezone(datetime.UTC).isoformat()
        elif value is not None:
            query[name] = value
    return query
