"""The command line forwards every option of worker and provisioner, which parse what it passes."""

from __future__ import annotations

import argparse
from typing import get_args

import click
import pytest
from click.testing import CliRunner

from taskloom.commands.forwarded import arguments, forwarded
from taskloom.contract.options import PEAKS, PROVISION, WORKER, Option, add_to
from taskloom.provisioner.__main__ import parser as provisioner
from taskloom.worker.settings import Drain, Peaks
from taskloom.worker.settings import parser as worker

VALUES = {"drain": "release", "peaks": "idle", "metrics-port": "9100"}


@pytest.mark.parametrize(("options", "parser", "before"), [(WORKER, worker, []), (PROVISION, provisioner, ["p.toml"])])
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
    assert seen[1] == []


def test_choices_are_those_of_the_worker() -> None:
    by_name = {each.name: each.choices for each in WORKER}
    assert (by_name["drain"], by_name["peaks"]) == (get_args(Drain), get_args(Peaks))
    assert get_args(Peaks) == PEAKS


def test_an_unknown_choice_is_refused() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_to(parser, WORKER)
    with pytest.raises(argparse.ArgumentError, match="invalid choice"):
        parser.parse_args(["--drain", "never"])
