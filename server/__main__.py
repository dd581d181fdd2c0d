"""Process of `taskloom serve`. Exit codes: 0 stopped on request, 1 failed, 2 cannot start with these arguments."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from pathlib import Path

from gpt2core.process import streams
from gpt2core.spec import extras, preflight
from gpt2core.spec.errors import InputError
from gpt2core.spec.threads import end_with_threads
from taskloom.contract import options


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m taskloom.server",
        description="Taskloom's server.",
        epilog="To manage keys without a running server: `python -m taskloom.server keys --help`.",
    )
    options.add_to(parser, options.SERVE)
    parser.add_argument("--replica", type=int, metavar="FD", help=argparse.SUPPRESS)  # this process is one of several
    parser.add_argument("--public", action="store_true", help=argparse.SUPPRESS)
    try:
        extras.require("server")
        if sys.argv[1:] == [preflight.OPTION]:
            from taskloom.server.preflight import checks

            preflight.tell(checks(asking=True), sys.stdout)
            return 0
        if sys.argv[1:2] == ["keys"]:
            from taskloom.server.access.keys.command import main as keys

            return keys(sys.argv[2:])
        given = parser.parse_args()
        # OpenBLAS would start threads that nothing here uses and, where it may start none, raise SIGINT.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        gc.disable()  # loaded modules stay, and collecting garbage among them takes a tenth of the time to load
        from taskloom.server.main import serve, serve_replica  # loads the whole server, so after quick checks
        from taskloom.server.preflight import checks

        gc.freeze()
        gc.enable()
        if given.replica is not None:
            serve_replica(given.replica, given.public, given.json)
        else:
            preflight.require(checks(given.database_url))
            serve(
                given.host,
                given.port,
                given.database_url,
                None if given.port_file is None else Path(given.port_file),
                given.workers,
                given.json,
            )
    except (InputError, ImportError) as raised:
        error = extras.NotLoaded(raised) if isinstance(raised, ImportError) else raised
        text = json.dumps({"error": str(error)}) if "--json" in sys.argv else f"taskloom: {error}"
        print(text, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    end_with_threads()
    sys.exit(streams.guarded(main))
