"""No thread ends unseen: an error that a thread does not handle ends its process, which starts again or is reported as
lost. One that went on without the thread would look healthy and do nothing.
"""

from __future__ import annotations

import os
import sys
import threading

EXIT = 70  # sysexits.h: a defect of the program


def end_with_threads() -> None:
    """From now on an unhandled error of any thread is logged and ends this process."""
    threading.excepthook = _end


def _end(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    import logging  # not above: a trainer that starts does not need it

    name = args.thread.name if args.thread else "unknown"
    error = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
    logging.getLogger("taskloom").critical("thread %s has ended, so this process ends", name, exc_info=error)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(EXIT)
