"""The extras of an installation (pyproject.toml) that a command needs. Standard library only."""

from __future__ import annotations

import importlib.util

from taskloom.errors import EXIT_BAD_INPUT, TaskloomError

# A package of each extra that no other extra has.
PROBES = {"server": "uvicorn", "worker": "numba", "provisioner": "prometheus_client"}


class NotInstalled(TaskloomError):
    """The installation lacks an extra."""

    exit_code = EXIT_BAD_INPUT


def require(*extras: str) -> None:
    """Raise NotInstalled, which names them, if some of these extras are missing."""
    missing = [extra for extra in extras if importlib.util.find_spec(PROBES[extra]) is None]
    if missing:
        extra = "extra" if len(missing) == 1 else "extras"
        raise NotInstalled(
            f"this installation lacks {' and '.join(missing)}: install Taskloom with its {extra} [{','.join(missing)}]"
        )
