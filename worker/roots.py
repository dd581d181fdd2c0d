"""Resolution of names of data sets and checkpoints to files below the operator's roots."""

from __future__ import annotations

from pathlib import Path

from gpt2core.spec import data
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import InputError


class RefusedName(InputError):
    """A run names a file outside this worker's roots."""

    slug = "refused-name"

    def __init__(self, field: str, value: str, accepted: str) -> None:
        super().__init__(f"{field} = {value!r} is refused; accepted: {accepted}")
        self.field, self.value, self.accepted = field, value, accepted

    def fields(self) -> dict[str, object]:
        return {"field": self.field, "value": self.value, "accepted": self.accepted}


def find_file(field: str, name: str, root: Path | None, folders: bool = False) -> Path:
    """Path of the regular file with this name below `root`; with `folders`, also of a folder of weights or of data.

    Links may lead to files below the root only, and so may those of other files that are read with this one. Raises
    RefusedName.
    """
    if root is None:
        raise RefusedName(field, name, f"nothing, since this worker has no --{field.replace('_', '-')}-root")
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts or "\0" in name or not relative.parts:
        raise RefusedName(field, name, "a name relative to the root, without ..")
    path = root.resolve() / relative
    try:
        final = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise RefusedName(field, name, f"an existing file below the {field} root of this worker") from error
    is_folder = folders and final.is_dir() and final != root.resolve()
    for each in (path, *(_read_with(path, is_folder) if folders else ())):
        if not each.resolve().is_relative_to(root.resolve()):
            message = f"a file below the {field} root of this worker, also after links are resolved"
            raise RefusedName(field, name if each == path else f"{name} ({each.name})", message)
    if not (final.is_file() or is_folder):
        raise RefusedName(field, name, "a regular file" + (", or a folder" if folders else ""))
    return path if folders else final


def _read_with(path: Path, is_folder: bool) -> list[Path]:
    """Files that may be read with a file, or as a folder: parts of weights, index, configuration; parts of images."""
    if is_folder or path.suffix == ".json":
        folder = path if is_folder else path.parent
        return [each for each in folder.iterdir() if each.suffix in (".safetensors", ".json", ".bin")]
    return [path.with_name("config.json")]


def find_files(config: TrainConfig, data_root: Path | None, checkpoint_root: Path | None) -> dict[str, str]:
    """Paths for the names in `data` and `checkpoint`. Raises RefusedName.

    Settings that write files (`save`, `trace`) are rejected: a request must not write files on a node.
    """
    for field in ("save", "trace"):
        value = getattr(config, field)
        if value is not None:
            raise RefusedName(field, value, "none, since only `taskloom train` writes files")
    found: dict[str, str] = {}
    if data.form_of(config.data)[0].has_path:
        form, name = data.parts(config.data)
        found["data"] = data.with_path(config.data, str(find_file("data", name, data_root, folders=bool(form))))
    if config.checkpoint is not None:
        found["checkpoint"] = str(find_file("checkpoint", config.checkpoint, checkpoint_root, folders=True))
    return found
