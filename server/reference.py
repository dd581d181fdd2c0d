"""Regenerates the tables in a page: `python -m taskloom.server.reference docs/reference/api.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from taskloom.server.main import create_app
from taskloom.server.read.exports.tables import TABLES
from taskloom.server.routing import operations
from taskloom.server.settings import PREFIX, Settings

MIB = 1 << 20
OPERATIONS = "<!-- made by python -m taskloom.server.reference; do not edit -->"
COLUMNS = "<!-- columns made by python -m taskloom.server.reference; do not edit -->"
SETTINGS = "<!-- settings made by python -m taskloom.server.reference; do not edit -->"
END = "<!-- up to here -->"


def operations_table() -> str:
    """Markdown table of all operations: method and path, access, and summary."""
    app = create_app(Settings(database_url="sqlite:///never-opened.db"))
    rows = [
        f"| `{method} {path}` | {route.access} | {_cell(route.summary or '')} |"
        for path, route in sorted(operations(app).values(), key=lambda each: (each[1].tags, each[0]))
        if route.include_in_schema
        for method in sorted(route.methods or ())
    ]
    return "\n".join(["| operation | key | what it does |", "| -- | -- | -- |", *rows])


def columns_table() -> str:
    """Markdown table of the columns of every exported table, in their order."""
    rows = [
        f"| `{name}` | {', '.join(f'`{column}`' for column in exported.columns)} |" for name, exported in TABLES.items()
    ]
    return "\n".join(["| table | columns |", "| -- | -- |", *rows])


def settings_table() -> str:
    """Markdown table of the server's settings: variable, default and meaning."""
    rows = [
        f"| `{PREFIX}{name.upper()}` | {_default(name, field.default)} | {_cell(field.description or '')} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable | default | meaning |", "| -- | -- | -- |", *rows])


def _default(name: str, value: object) -> str:
    """A default as one would write it; empty if there is none."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and "bytes" in name and value % MIB == 0:
        return f"{value // MIB} MiB"
    return f"{value:g}" if isinstance(value, float) else f"`{value}`" if isinstance(value, str) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def render(page: str) -> str:
    """The page with new tables."""
    parts = (OPERATIONS, operations_table()), (COLUMNS, columns_table()), (SETTINGS, settings_table())
    for begin, made in parts:
        before, rest = page.split(begin)
        _, after = rest.split(END, 1)
        page = f"{before}{begin}\n\n{made}\n\n{END}{after}"
    return page


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(render(file.read_text()))
