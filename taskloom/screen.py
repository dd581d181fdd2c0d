"""Tables that stay readable on narrow terminals: no figure is cut or broken, no column is left out."""

from __future__ import annotations

import os
import re
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from taskloom.contract.logs import printable_lines

BETWEEN = 2  # columns of the terminal between two of a table


class Screen(Console):
    """A console that reshapes tables that are too wide. Names and output of other people have no markup here, and
    control no terminal."""

    def __init__(self, **options: Any) -> None:
        # The library would fail on other digits than ours, show nothing in 0 columns, and fill lines of millions.
        odd = [name for name in ("COLUMNS", "LINES") if not re.fullmatch("[1-9][0-9]{0,3}", os.environ.get(name, ""))]
        kept = {name: value for name, value in os.environ.items() if name not in odd}
        super().__init__(markup=False, emoji=False, _environ=kept, **options)

    def say(self, *lines: str) -> None:
        """Print lines as they are; the terminal breaks long ones."""
        for line in lines:
            self.print(line, highlight=False, soft_wrap=True)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable_lines(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(fitted(each, self) if isinstance(each, Table) else each for each in objects), **options)


def fitted(table: Table, console: Console) -> Table:
    """The table if it fits; else with wrapped headings and text but whole figures; else a block of lines for each
    row."""
    unlimited = console.options.update_width(10_000)
    if Measurement.get(console, unlimited, table).maximum <= console.width:
        return table
    return _narrowed(table, console) or _blocks(table)


def _narrowed(table: Table, console: Console) -> Table | None:
    """The table with wrapped headings and text, or None if it is still too wide."""
    needed, natural = zip(*(_widths(column, console) for column in table.columns), strict=True)
    spare = console.width - BETWEEN * (len(needed) - 1) - sum(needed)
    if spare < 0:
        return None
    out = Table(title=table.title, title_justify="left", box=table.box, show_header=table.show_header,
                show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))  # fmt: skip
    for column, least, most in zip(table.columns, needed, natural, strict=True):
        more = min(spare, most - least)
        spare -= more
        header = _stacked(column) if _is_figure(column) else column.header
        out.add_column(header, justify=column.justify, width=least + more, overflow="fold")
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        out.add_row(*cells)
    return out


def _is_figure(column: Column) -> bool:
    return column.justify == "right"


def _stacked(column: Column) -> str:
    return str(column.header).replace(" ", "\n")


def _widths(column: Column, console: Console) -> tuple[int, int]:
    """Minimum and maximum width of a column: figures are never wrapped, text only between words."""
    if _is_figure(column):
        shown = [Measurement.get(console, console.options, cell) for cell in (_stacked(column), *column.cells)]
        widest = max(width.maximum for width in shown)
        return widest, widest
    shown = [Measurement.get(console, console.options, cell) for cell in (column.header, *column.cells)]
    return max(width.minimum for width in shown), max(width.maximum for width in shown)


def _blocks(table: Table) -> Table:
    """A line for each cell that is not empty, and an empty line between rows."""
    out = Table(title=table.title, title_justify="left", box=box.SIMPLE, show_header=False, pad_edge=False)
    out.add_column(style="bold", no_wrap=True)
    out.add_column(overflow="fold")
    names = [str(column.header) for column in table.columns]
    for number, cells in enumerate(zip(*(column.cells for column in table.columns), strict=True)):
        if number:
            out.add_row("", "")
        for name, cell in zip(names, cells, strict=True):
            if cell != "":
                out.add_row(name, cell)
    return out
