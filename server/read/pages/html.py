"""Pages as plain HTML, without scripts and without files of other sites: the API reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#f3f3f3;border-radius:3px}code{padding:0 .2em}
pre{padding:.6em;overflow-x:auto}summary{cursor:pointer;padding:.3em 0}.method{display:inline-block;min-width:4em;
font-weight:600}table{border-collapse:collapse}td,th{text-align:left;padding:.15em .8em .15em 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code,pre{background:#262626}a{color:#8bf}}
"""


def page(title: str, body: str) -> str:
    """A page without scripts. body: HTML."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><main>{body}</main></html>"
    )


def reference_page(openapi: Mapping[str, Any]) -> str:
    """Every path of the OpenAPI document with its parameters, bodies, answers and examples."""
    parts = [f"<h1>{escape(openapi['info']['title'])} API</h1>", '<p><a href="/openapi.json">openapi.json</a></p>']
    tag = None
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            first = (operation.get("tags") or ["other"])[0]
            if first != tag:
                tag = first
                parts.append(f"<h2>{escape(tag)}</h2>")
            parts.append(_operation(path, method, operation))
    parts.append("<h2>schemas</h2>")
    for name, schema in openapi["components"]["schemas"].items():
        parts.append(
            f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>{_json(schema)}</details>'
        )
    return page("Taskloom API", "".join(parts))


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
        f"<td>{escape(p.get('description', ''))}</td></tr>"
        for p in operation.get("parameters", [])
    )
    body = operation.get("requestBody")
    answers = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(answer.get('description', ''))}</td><td>{_links(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return (
        f'<details><summary><span class="method">{escape(method.upper())}</span> <code>{escape(path)}</code> '
        f"{escape(operation.get('summary', ''))}</summary><p>{escape(operation.get('description', ''))}</p>"
        + (f"<table>{rows}</table>" if rows else "")
        + (f"<p>Body: {_links(body)}</p>" if body else "")
        + f"<table>{answers}</table></details>"
    )


def _links(holder: Mapping[str, Any]) -> str:
    """Links to the schemas that a body refers to."""
    names = []
    for media in holder.get("content", {}).values():
        reference = media.get("schema", {}).get("$ref", "")
        if reference:
            names.append(reference.rsplit("/", 1)[-1])
    return ", ".join(f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>' for name in dict.fromkeys(names))


def _json(value: object) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2))}</pre>"
