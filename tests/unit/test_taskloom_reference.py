from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import click

from taskloom import cli, reference

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/cli.md"


def test_the_command_line_is_documented_as_it_is() -> None:
    assert PAGE.read_text() == reference.render(), "make it again: python -m taskloom.reference > docs/reference/cli.md"


def test_every_variable_of_an_option_or_of_the_trainer_is_documented() -> None:
    sources = [ROOT / name for name in ("gpt2core/spec/settings.py", "worker/settings.py", "contract/options.py")]
    names = {name for source in sources for name in re.findall(r"TASKLOOM_[A-Z_]*[A-Z]", source.read_text())}
    assert len(names) > 15
    documented = PAGE.read_text() + (ROOT / "docs/reference/api.md").read_text()
    assert names - set(re.findall(r"TASKLOOM_[A-Z_]*[A-Z]", documented)) == set()


def test_the_list_of_commands_says_how_the_help_of_each_begins() -> None:
    for name, brief in cli.COMMANDS.items():
        command = cli.main.get_command(click.Context(cli.main), name)
        assert command is not None
        assert (command.help or "").startswith(brief), name


def test_every_command_is_in_the_list_of_commands() -> None:
    names = {path.stem for path in (ROOT / "taskloom/commands").glob("*.py")}
    loaded = {name: importlib.import_module(f"taskloom.commands.{name}") for name in names - {"__init__"}}
    commands = {name for name, module in loaded.items() if isinstance(getattr(module, name, None), click.Command)}
    assert commands == set(cli.COMMANDS)


def test_the_list_of_commands_loads_none_of_them() -> None:
    looked = "import sys, taskloom.cli as cli; cli.main(['--help'], standalone_mode=False); print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, check=True).stdout
    assert "Compare two runs or two selections of runs" in printed
    loaded = printed.splitlines()[-1].split()
    assert not {"taskloom.client", "httpx", "pydantic", "numpy", "rich"} & set(loaded)
