"""Whether memory may be reserved: NumPy's and SciPy's OpenBLAS ask for ever where a limit forbids it. Standard library
only."""

from __future__ import annotations

import mmap

from gpt2core.spec.errors import InputError

START_BYTES = 192 << 20  # for NumPy, and what is loaded with it


def check(size: int = START_BYTES) -> str:
    """Raises InputError if this process may not reserve as many bytes."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise InputError(
            f"{size >> 20} MiB of address space cannot be reserved ({error.strerror}): raise the limit (ulimit -v and "
            "-d, or that of the container)"
        ) from None
    return f"{size >> 20} MiB can be reserved"
