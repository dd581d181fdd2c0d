"""Every error that the core raises on purpose. `slug` is stable and part of the interface; the message is for
people."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

MOST_CHARS = 300  # of a value in a message
IN_URL = re.compile(r"://[^\s'\",]*@")  # user and password; a password may have slashes and more at signs


class CoreError(Exception):
    """The trainer cannot continue."""

    slug = "core-error"
    exit_code = 1  # the work failed

    def fields(self) -> dict[str, object]:
        """The error's data beside the message; JSON values only."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Its message and data, since other processes cannot call every constructor with the message alone."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[CoreError], args: tuple[Any, ...]) -> CoreError:
    return kind.__new__(kind, *args)


class InputError(CoreError):
    """The request or a file named by it is not usable."""

    slug = "bad-input"
    exit_code = 2  # bad usage or bad input


class ConfigError(InputError, ValueError):
    """A setting has a value that is not accepted. others: further settings of which the same is true."""

    slug = "bad-config"

    def __init__(self, field: str, value: object, accepted: str, others: Sequence[ConfigError] = ()) -> None:
        this = f"{field} = {said(value)} is not accepted: {accepted}"
        super().__init__("; ".join([this, *map(str, others)]))
        self.field, self.value, self.accepted, self.others = field, value, accepted, tuple(others)

    def fields(self) -> dict[str, object]:
        this: dict[str, object] = {"field": self.field, "value": _in_json(self.value), "accepted": self.accepted}
        return {**this, "others": [other.fields() for other in self.others]} if self.others else this


def said(value: object) -> str:
    """A value in a message, without the user and password of a URL."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of thousands of digits
        text = "an integer of thousands of digits"
    text = IN_URL.sub("://***@", text)
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}..."


def _in_json(value: object) -> object:
    """The value, or the text of one that JSON does not know, such as a date of TOML or infinity."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return said(value)
    return value


def raise_together(errors: Sequence[ConfigError]) -> None:
    """Raise the first error with the others, if there is any."""
    if errors:
        first, *others = errors
        raise ConfigError(first.field, first.value, first.accepted, others)


class FileError(InputError):
    """A file cannot be used."""

    slug = "bad-file"

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = str(path), reason

    def fields(self) -> dict[str, object]:
        return {"path": self.path, "reason": self.reason}


class UnreadableFile(FileError):
    """The file cannot be opened or written."""

    slug = "unreadable-file"


class BadMagic(FileError):
    """The file is of another kind."""

    slug = "bad-magic"


class BadVersion(FileError):
    """The version of the file's format is not supported."""

    slug = "bad-version"


class TruncatedFile(FileError):
    """The file is shorter than its header says."""

    slug = "truncated-file"


class CountMismatch(FileError):
    """The file's header disagrees with its size."""

    slug = "count-mismatch"


class ShapeMismatch(FileError):
    """The file's model has another shape than the requested one."""

    slug = "shape-mismatch"


class TokenOutOfRange(FileError):
    """The data contains a token that is not in the model's vocabulary."""

    slug = "token-out-of-range"


class NotEnoughMemory(InputError):
    """The arenas do not fit into the memory that this process may use."""

    slug = "not-enough-memory"

    def __init__(self, needed_bytes: int, available_bytes: int, fits: str) -> None:
        gib = 1 << 30
        super().__init__(
            f"this run needs {needed_bytes / gib:.2f} GiB ({needed_bytes} bytes), but "
            f"{available_bytes / gib:.2f} GiB ({available_bytes} bytes) are available; {fits}"
        )
        self.needed_bytes, self.available_bytes, self.fits = needed_bytes, available_bytes, fits

    def fields(self) -> dict[str, object]:
        return {"needed_bytes": self.needed_bytes, "available_bytes": self.available_bytes, "fits": self.fits}


class NotFinite(CoreError):
    """The loss, or the gradients' norm, stopped being a finite number."""

    slug = "not-finite"

    def __init__(self, step: int, value: float, name: str = "loss") -> None:
        super().__init__(f"the {name.replace('_', ' ')} of step {step} is {value}: the run was stopped")
        self.step, self.value, self.name = step, value, name

    def fields(self) -> dict[str, object]:
        return {"step": self.step, self.name: str(self.value)}


class Cancelled(CoreError):
    """The run was cancelled and stopped at the end of a step."""

    slug = "cancelled"

    def __init__(self, step: int) -> None:
        super().__init__(f"cancelled after {step} steps")
        self.step = step

    def fields(self) -> dict[str, object]:
        return {"step": self.step}


class Unheard(CoreError):
    """Standard output is closed or full, so events would be lost. The run stops at the end of its step."""

    slug = "unheard"


class Violated(CoreError):
    """A task of a benchmark ran before its inputs, did not run, or wrote wrong numbers."""

    slug = "violated"

    def __init__(self, inputs: int, tasks: int, numbers: int = 0) -> None:
        super().__init__(
            f"{inputs} inputs carried a wrong stamp, {tasks} tasks did not run in the last iteration, "
            f"{numbers} numbers in memory are wrong"
        )
        self.inputs, self.tasks, self.numbers = inputs, tasks, numbers

    def fields(self) -> dict[str, object]:
        return {"inputs": self.inputs, "tasks": self.tasks, "numbers": self.numbers}


class GraphError(CoreError):
    """The step program is invalid: conflicting tasks without an order, a cycle, or an unknown tensor, row or column."""

    slug = "bad-graph"


class Stalled(CoreError):
    """No task has ended for a long time: the run is considered deadlocked."""

    slug = "stalled"


class MachineError(CoreError):
    """The machine lacks something that the trainer needs."""

    slug = "machine"
