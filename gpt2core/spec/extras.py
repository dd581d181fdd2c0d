"""The extras of an installation (pyproject.toml): every package that Taskloom can be installed without."""

from __future__ import annotations

import importlib.util

from gpt2core.spec.errors import InputError

# The modules of each extra. Without mkl, products are computed by other code.
MODULES = {
    "server": (
        "fastapi", "uvicorn", "httptools", "pydantic_settings", "sqlalchemy", "alembic", "prometheus_client",
        "ruptures", "orjson", "optuna", "pyparsing",
    ),
    "worker": ("numba", "psutil", "threadpoolctl", "safetensors"),
    "provisioner": ("prometheus_client",),
    "postgres": ("psycopg",),
    "exports": ("pyarrow",),
    "mpi": ("mpi4py",),
    "oidc": ("authlib", "joserfc"),
}  # fmt: skip


class NotInstalled(InputError):
    """The installation lacks an extra."""

    slug = "not-installed"

    def __init__(self, missing: dict[str, list[str]]) -> None:
        self.missing = missing
        modules = dict.fromkeys(module for modules in missing.values() for module in modules)
        super().__init__(
            f"this installation lacks {' and '.join(missing)} ({', '.join(modules)}): "
            f"install taskloom[{','.join(missing)}]"
        )

    def fields(self) -> dict[str, object]:
        return {"extras": list(self.missing)}


class NotLoaded(InputError):
    """A library is there but cannot be loaded: the machine or the environment does not fit."""

    slug = "not-loaded"

    def __init__(self, error: ImportError) -> None:
        text = " ".join(str(error).split())[-300:]
        super().__init__(f"a library cannot be loaded; check LD_LIBRARY_PATH, LD_PRELOAD and NPY_*: {text}")


def has(extra: str) -> bool:
    """Whether the modules of an extra are installed."""
    return all(importlib.util.find_spec(name) is not None for name in MODULES[extra])


def require(*extras: str) -> None:
    """Raise NotInstalled if modules of these extras are missing."""
    lacking = {extra: [name for name in MODULES[extra] if importlib.util.find_spec(name) is None] for extra in extras}
    missing = {extra: names for extra, names in lacking.items() if names}
    if missing:
        raise NotInstalled(missing)
