"""Health of the server, for monitoring."""

from __future__ import annotations

from typing import Literal

from taskloom.contract.bodies import Model


class Health(Model):
    """Answer of a live process."""

    status: Literal["ok"]


class Readiness(Model):
    """Answer of a server that is ready to work."""

    status: Literal["ready"]
