"""Taskloom's public interface: the command line and `taskloom.Client`, the Python SDK."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskloom.client import Client
    from taskloom.errors import Problem, ServerUnreachable, TaskloomError
    from taskloom.experiment import Experiment

__all__ = ["Client", "Experiment", "Problem", "ServerUnreachable", "TaskloomError"]
MODULES = {"Client": "taskloom.client", "Experiment": "taskloom.experiment"}


def __getattr__(name: str) -> Any:
    """Load public names on first use: HTTP and models take longer to load than some commands to run."""
    if name in __all__:
        return getattr(importlib.import_module(MODULES.get(name, "taskloom.errors")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
