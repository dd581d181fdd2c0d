"""The command line forwards every option of server, worker and provisioner, which parse what it passes."""

from __future__ import annotations

import argparse
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner

from taskloom.commands.forwarded import arguments, forwarded
from taskloom.contract.keys import LONGEST_S, Scope
from taskloom.contract.options import CREATE_KEY, MOST_DAYS, PEAKS, PROVISION, SCOPES, SERVE, WORKER, Option, add_to
from taskloom.provisioner.process import parser as provisioner
from taskloom.worker.settings import Drain, Peaks
from taskloom.worker.settings import parser as worker

VALUES = {
    "drain": "release", "peaks": "idle", "metrics-port": "9100", "port": "0", "workers": "2", "scope": "read",
    "expires-in": "7",
}  # fmt: skip


def server() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_to(parser, SERVE)
    return parser


@pytest.mark.parametrize(
    ("options", "parser", "before"),
    [(SERVE, server, []), (WORKER, worker, []), (PROVISION, provisioner, ["p.toml"])],
)
def test_what_the_command_line_forwards_is_parsed(
    options: tuple[Option, ...], parser: object, before: list[str]
) -> None:
    seen: list[list[str]] = []

    @click.command()
    @forwarded(options)
    def command(**given: object) -> None:
        seen.append(arguments(options, given))

    given = [part for each in options for part in ([each.flag, VALUES.get(each.name, "some=text")] if each.takes_value
                                                   else [each.flag])]  # fmt: skip
    done = CliRunner().invoke(command, given, catch_exceptions=False)
    assert (done.exit_code, seen) == (0, [given])
    assert callable(parser)
    found: argparse.Namespace = parser().parse_args([*before, *seen[0]])
    for each in options:
        value = getattr(found, each.name.replace("-", "_"))
        text = VALUES.get(each.name, "some=text")
        expected = [text] if each.several else text if each.most is None else int(text)
        assert value == (expected if each.takes_value else True)
    assert CliRunner().invoke(command, []).exit_code == 0
    defaults = [part for each in options if each.default for part in (each.flag, str(each.default))]
    assert seen[1] == defaults


def test_choices_are_those_of_the_worker() -> None:
    by_name = {each.name: each.choices for each in WORKER}
    assert (by_name["drain"], by_name["peaks"]) == (get_args(Drain), get_args(Peaks))
    assert get_args(Peaks) == PEAKS
    assert get_args(Scope) == SCOPES
    assert MOST_DAYS * 86400 == LONGEST_S


def test_both_commands_that_create_a_key_take_the_same_values() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_to(parser, CREATE_KEY)
    found = parser.parse_args(["--scope", "read", "--expires-in", "0.5", "-o", "key"])
    assert (found.scope, found.expires_in, found.name, found.output) == ("read", 0.5, "", "key")
    options: Any = forwarded(CREATE_KEY)(lambda: None)
    command = click.Command("create", params=options.__click_params__[::-1])
    with pytest.raises((argparse.ArgumentError, SystemExit)):  # the latter before Python 3.12
        parser.parse_args([])
    assert "Missing option '--scope'" in CliRunner().invoke(command, []).output
    for days in ("0", "3661", "soon"):
        with pytest.raises(argparse.ArgumentError, match="a number above 0, at most 3660"):
            parser.parse_args(["--scope", "read", "--expires-in", days])
        assert CliRunner().invoke(command, ["--scope", "read", "--expires-in", days]).exit_code == 2


@pytest.mark.parametrize("given", [["--port", "65536"], ["--workers", "0"], ["--workers", "65"], ["--port", "x"]])
def test_a_number_that_is_not_accepted_says_what_is(given: list[str]) -> None:
    with pytest.raises(argparse.ArgumentError, match=r"is not accepted: a whole number of at least [01], at most"):
        server().parse_args(given)


def test_an_unknown_choice_is_refused() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_to(parser, WORKER)
    with pytest.raises(argparse.ArgumentError, match="invalid choice"):
        parser.parse_args(["--drain", "never"])
