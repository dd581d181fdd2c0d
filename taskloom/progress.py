"""Progress of a command: a bar on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from taskloom.contract.logs import printable_lines
from taskloom.screen import Screen

SAY_EVERY_S = 10.0  # without a terminal; later after a tenth of the elapsed time


class Bar:
    """Progress that is shown inside a `with` block. Without `shown`, only `line` prints."""

    def __init__(self, console: Screen, shown: bool, text: str, say_every_s: float = SAY_EVERY_S) -> None:
        self._console, self._say_every_s = console, say_every_s
        self._drawn, self._said = shown and console.is_terminal, shown and not console.is_terminal
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(
            *columns, TimeElapsedColumn(), console=console, disable=not self._drawn, transient=True
        )
        self._task = self._progress.add_task(text, total=None)
        self._state: tuple[str, int | None, int | None] = (text, None, None)
        self._ended = threading.Event()
        self._speaker = threading.Thread(target=self._speak, name="progress", daemon=True)

    def __enter__(self) -> Bar:
        self._progress.start()
        if self._said:
            self._speaker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._said:
            self._speaker.join()
        self._progress.stop()

    def update(self, text: str | None = None, completed: int | None = None, total: int | None = None) -> None:
        """Change the text or the count; arguments that are not given keep their value."""
        before = self._state
        text = None if text is None else printable_lines(text)
        self._state = (before[0] if text is None else text, before[1] if completed is None else completed,
                       before[2] if total is None else total)  # fmt: skip
        self._progress.update(self._task, description=text, completed=completed, total=total)

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.say(text)

    def _speak(self) -> None:
        begun, passed_s = time.monotonic(), 0.0
        while not self._ended.wait(max(self._say_every_s, passed_s / 10)):
            passed_s = time.monotonic() - begun
            text, completed, total = self._state
            far = f" ({completed or 0} of {total})" if total is not None else ""
            self.line(f"{passed_s:.0f} s: {text}{far}")
