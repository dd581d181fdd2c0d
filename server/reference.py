"""Regenerates the table of operations in a page: `python -m taskloom.server.reference docs/reference/api.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from taskloom.server.main import create_app
from taskloom.server.routing import operations
from taskloom.server.settings import Settings

BEGIN, END = "<!-- made by python -m taskloom.server.reference; do not edit -->", "<!-- up to here -->"


def table() -> str:
    """Markdown table of all operations: method and path, access, and summary."""
    app = create_app(Settings(database_url="sqlite:///never-opened.db"))
    rows = [
        f"| `{method} {path}` | {route.access} | {_cell(route.summary or '')} |"
        for path, route in sorted(operations(app).values(), key=lambda each: (each[1].tags, each[0]))
        if route.include_in_schema
        for method in sorted(route.methods or ())
    ]
    return "\n".join(["| operation | key | what it does |", "| -- | -- | -- |", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def render(page: str) -> str:
    """The page with a new table."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(render(file.read_text()))
