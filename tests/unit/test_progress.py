"""Without a terminal, commands report their progress in lines."""

from __future__ import annotations

import io

from taskloom.progress import Bar
from taskloom.screen import Screen
from tests.support.patience import until


def test_without_a_terminal_it_is_said_now_and_then_what_is_done() -> None:
    file = io.StringIO()
    with Bar(Screen(file=file, width=200), True, "compiling", say_every_s=0.01) as bar:
        until(lambda: "s: compiling\n" in file.getvalue(), "the first line")
        bar.update("loss 4.5", completed=3, total=12)
        until(lambda: "s: loss 4.5 (3 of 12)\n" in file.getvalue(), "the next one")
        bar.update(completed=4)
        until(lambda: "s: loss 4.5 (4 of 12)\n" in file.getvalue(), "how far it is")
    ended = file.getvalue()
    bar.update("over")
    assert file.getvalue() == ended


def test_what_is_not_to_be_shown_says_only_lines() -> None:
    file = io.StringIO()
    with Bar(Screen(file=file, width=200), False, "compiling", say_every_s=0.01) as bar:
        bar.update("loss 4.5", completed=3, total=12)
        bar.line("[a line] of the trainer")
    assert file.getvalue() == "[a line] of the trainer\n"


def test_on_a_terminal_a_bar_is_drawn() -> None:
    file = io.StringIO()
    with Bar(Screen(file=file, width=100, force_terminal=True), True, "compiling", say_every_s=0.01) as bar:
        bar.update("loss 4.5", completed=3, total=12)
    assert "3/12" in file.getvalue()
    assert " s: " not in file.getvalue()
