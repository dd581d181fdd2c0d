"""Scripts and styles without what only their readers need: comments, and white space that separates nothing."""

from __future__ import annotations

import re

# A token of a script, and a pattern, which a slash begins where a value may stand. Elsewhere it divides.
TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+) | [\w$]+ | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | .""", re.S | re.X
)
PATTERN = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[\n])+/\w*")
BEFORE_VALUE = frozenset("(,=:[!&|?{};+>") | {""}
# A part of a template: from its begin, or from the end of a hole, to its end or its next hole.
TEMPLATE = re.compile(r"[`}](?:\\.|\$(?!\{)|[^`$\\])*(?:`|\$\{)", re.S)
# What markup does not show: indentation, and line breaks beside a tag or at an end of the template.
UNSHOWN = re.compile(r"(?<=[>`])\n\t*|\n\t*(?=[<`])|(?<=\n)\t+")
SEPARATED = re.compile(r"[\w$]{2}|\+\+|--|//")
IN_STYLE = re.compile(r"/\*.*?\*/|\n\s*", re.S)


def script(code: str) -> str:
    """A module whose statements all end with a semicolon, as `make ui-format` writes them. Of the space in its
    templates, what markup shows is left (npm/comments.mjs).
    """
    sent: list[str] = []
    last, space, at = "", "", 0
    holes: list[bool] = []  # of each open brace, whether it is the hole of a template
    while at < len(code):
        found = PATTERN.match(code, at) if last == "return" or last[-1:] in BEFORE_VALUE else None
        if code[at] == "`" or (code[at] == "}" and holes.pop()):
            found = TEMPLATE.match(code, at)
        found = found or TOKEN.match(code, at)
        assert found
        token, at = found[0], found.end()
        if found.re is TOKEN and found["space"]:
            space = " "
            continue
        if token.endswith("{"):
            holes.append(found.re is TEMPLATE)
        separated = space and SEPARATED.match(last[-1:] + token[0])
        sent.append((" " if separated else "") + (UNSHOWN.sub("", token) if found.re is TEMPLATE else token))
        last, space = ("a" if found.re is PATTERN else token), ""
    return "".join(sent)


def style(code: str) -> str:
    return IN_STYLE.sub("", code)
