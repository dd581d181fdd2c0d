"""The process of `taskloom`: Ctrl-C is no traceback while modules are loaded, nor while the interpreter ends."""

from __future__ import annotations

import signal


def main() -> None:
    """Execute the command line."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # it waits until it is in streams.guarded
    from taskloom import cli

    try:
        cli.main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
