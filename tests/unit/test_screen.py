"""Tables on narrow terminals have every column and break no figure."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from taskloom.progress import Bar
from taskloom.screen import Screen
from taskloom.tables import new_table


def printed(table: Table, width: int) -> list[str]:
    file = io.StringIO()
    Screen(file=file, width=width).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]


def runs() -> Table:
    table = new_table(None, "run", "experiment", "variant", "state", "rep", "median step", "tokens/s", "final loss",
                      left=4)  # fmt: skip
    table.add_row("1", "1", "scheduler=fork-join threads=2", "succeeded", "0", "1,234.5 ms", "12,345", "5.54518")
    table.add_row("2", "1", "scheduler=task threads=2", "succeeded", "1", "12.5 ms", "6,789", "5.54518")
    return table


def test_a_table_that_fits_stays_as_it_is() -> None:
    lines = printed(runs(), 160)
    assert lines[0].split() == [
        "run", "experiment", "variant", "state", "rep", "median", "step", "tokens/s", "final", "loss"
    ]  # fmt: skip
    assert len(lines) == 4


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_figure_and_no_column_is_cut(width: int) -> None:
    lines = printed(runs(), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for cell in ("1,234.5 ms", "12,345", "5.54518", "12.5 ms", "6,789", "scheduler=fork-join", "succeeded"):
        assert cell in text
    for name in ("run", "experiment", "variant", "state", "rep", "median", "tokens/s", "final"):
        assert name in text
    assert "…" not in text


def test_text_is_wrapped_between_words_before_a_row_becomes_a_block() -> None:
    wide = printed(runs(), 88)
    assert [line.split() for line in wide[:2]] == [
        ["median", "final"], ["run", "experiment", "variant", "state", "rep", "step", "tokens/s", "loss"]
    ]  # fmt: skip
    assert any(line.split() == ["threads=2"] for line in wide)
    blocks = printed(runs(), 60)
    assert ["median", "step", "1,234.5", "ms"] in [line.split() for line in blocks]


@pytest.mark.parametrize("width", [20, 160])
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[/]", "[/]"), ("[red]a[/red]", "[red]a[/red]"), ("[link=file:///etc/passwd]a", "[link=file:///etc/passwd]a"),
        ("a\x1b[2Jb\x9b5m", "a�[2Jb�5m"), ("a\u202eb\x07", "a�b�"), ("a:bug:b", "a:bug:b"),
    ],
)  # fmt: skip
def test_names_have_no_markup_and_control_no_terminal(name: str, shown: str, width: int) -> None:
    table = new_table(f"title {name}", "experiment", "name", left=2)
    table.add_row("1", name)
    lines = "".join(printed(table, width)).replace(" ", "")
    assert lines.count(shown) == 2 or width == 20, lines
    assert lines.replace("─", "").isprintable()
    file = io.StringIO()
    Screen(file=file, width=width, force_terminal=True, color_system=None).say(name)
    assert file.getvalue() == f"{shown}\n"


def test_lines_are_said_as_they_are() -> None:
    file = io.StringIO()
    Screen(file=file, width=20).say("[bold] " + "x" * 40, "second")
    assert file.getvalue() == f"[bold] {'x' * 40}\nsecond\n"


@pytest.mark.parametrize("columns", ["²", "٨٠", "99999999", 5000 * "9", "-3", "0", "00", "abc", ""])
@pytest.mark.parametrize("terminal", ["dumb", "xterm", ""])
def test_widths_that_no_terminal_has_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, columns: str, terminal: str
) -> None:
    for name, value in (("COLUMNS", columns), ("LINES", columns), ("TERM", terminal)):
        monkeypatch.setenv(name, value)
    file = io.StringIO()
    screen = Screen(file=file, force_terminal=True)
    assert 20 < screen.width < 10_000
    assert 1 < screen.height < 10_000
    with Bar(screen, shown=True, text="drawn"):
        screen.print(new_table("title", "name"))
    assert "title" in file.getvalue()


def test_the_width_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "47")
    assert Screen(file=io.StringIO()).width == 47
