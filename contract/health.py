"""What the server says of itself to those who watch it."""

from __future__ import annotations

from typing import Literal

from taskloom.contract.runs import Model


class Health(Model):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Model):
    """The server can do its work."""

    status: Literal["ready"]
