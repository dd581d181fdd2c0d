"""Places the memory of a run: each thread touches its own first, so that it is near that thread's core."""

from __future__ import annotations

from collections.abc import Sequence

from gpt2core.compile.jit import kernel, pointer_i64
from gpt2core.schedulers.team import Team
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Span

PAGE_BYTES = 4096


def first_touch(cores: Sequence[int], arenas: Memory, owned: Sequence[Sequence[Span]]) -> None:
    """Let a thread on each core touch its own memory first, so that it is placed near that core. owned: spans of the
    arenas by thread."""
    start = {arena: int(block.ctypes.data) for arena, block in arenas.arenas.items()}

    def share(thread: int) -> None:
        for span in owned[thread]:
            touch(start[span.arena] + span.begin, start[span.arena] + span.end)

    Team(cores).run(share, ())


@kernel
def touch(begin, end):
    """Write a zero into each page that begins in the bytes [begin, end), so that it is placed near this thread.

    Arenas begin on a page, so every page of theirs begins in the bytes of one owner.
    """
    for page in range((begin + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES, end, PAGE_BYTES):
        pointer_i64(page)[0] = 0
