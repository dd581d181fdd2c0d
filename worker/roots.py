"""Resolution of names of data sets and checkpoints to files below the operator's roots."""

from __future__ import annotations

from pathlib import Path

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import InputError

BUILT_IN_DATA = ("synthetic", "stdlib")


class RefusedName(InputError):
    """A run names a file outside this worker's roots."""

    slug = "refused-name"

    def __init__(self, field: str, value: str, accepted: str) -> None:
        super().__init__(f"{field} = {value!r} is refused; accepted: {accepted}")
        self.field, self.value, self.accepted = field, value, accepted

    def fields(self) -> dict[str, object]:
        return {"field": self.field, "value": self.value, "accepted": self.accepted}


def find_file(field: str, name: str, root: Path | None) -> Path:
    """Path of the regular file with this name below `root`, with links resolved. Raises RefusedName."""
    if root is None:
        raise RefusedName(field, name, f"nothing, since this worker has no --{field.replace('_', '-')}-root")
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts or "\0" in name or not relative.parts:
        raise RefusedName(field, name, "a name relative to the root, without ..")
    try:
        path = (root / relative).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise RefusedName(field, name, f"an existing file below the {field} root of this worker") from error
    if not path.is_relative_to(root.resolve()):
        raise RefusedName(field, name, f"a file below the {field} root of this worker, also after links are resolved")
    if not path.is_file():
        raise RefusedName(field, name, "a regular file")
    return path


def find_files(config: TrainConfig, data_root: Path | None, checkpoint_root: Path | None) -> dict[str, str]:
    """Paths for the names in `data` and `checkpoint`. Raises RefusedName.

    Settings that write files (`save`, `trace`) are rejected: a request must not write files on a node.
    """
    for field in ("save", "trace"):
        value = getattr(config, field)
        if value is not None:
            raise RefusedName(field, value, "none, since only `taskloom train` writes files")
    found: dict[str, str] = {}
    if config.data not in BUILT_IN_DATA:
        found["data"] = str(find_file("data", config.data, data_root))
    if config.checkpoint is not None:
        found["checkpoint"] = str(find_file("checkpoint", config.checkpoint, checkpoint_root))
    return found
