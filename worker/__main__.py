"""Process of `taskloom worker` (process.py)."""

from __future__ import annotations

import sys

from gpt2core.process import streams
from gpt2core.spec.threads import end_with_threads


def main() -> int:
    from taskloom.worker import process  # within `guarded`, which says so if a library cannot be loaded

    return process.main(sys.argv[1:])


if __name__ == "__main__":
    end_with_threads()
    sys.exit(streams.guarded(main))
