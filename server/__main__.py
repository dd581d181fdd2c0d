"""Process of `taskloom serve`. Exit codes: 0 stopped on request, 1 failed, 2 cannot start with these arguments."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path

from gpt2core.spec import extras
from gpt2core.spec.threads import end_with_threads
from taskloom.server.errors import StartRefused


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m taskloom.server",
        description="Taskloom's server.",
        epilog="To manage keys without a running server: `python -m taskloom.server keys --help`.",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="default %(default)s; other addresses than loopback need an admin key",
    )
    parser.add_argument("--port", type=int, default=8321, help="0 selects a free one (default %(default)s)")
    parser.add_argument(
        "--database-url",
        help="sqlite:///FILE or postgresql://USER@HOST/NAME; default TASKLOOM_DATABASE_URL, or sqlite:///taskloom.db",
    )
    parser.add_argument("--port-file", type=Path, help="file into which the port is written when the server listens")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        choices=range(1, 65),
        metavar="N",
        help="processes, 1 to 64; more than one needs PostgreSQL (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON also on a terminal")
    parser.add_argument("--replica", type=int, metavar="FD", help=argparse.SUPPRESS)  # this process is one of several
    parser.add_argument("--public", action="store_true", help=argparse.SUPPRESS)
    try:
        extras.require("server")
        if sys.argv[1:2] == ["keys"]:
            from taskloom.server.access.keys.command import main as keys

            return keys(sys.argv[2:])
        options = parser.parse_args()
        gc.disable()  # loaded modules stay, and collecting garbage among them takes a tenth of the time to load
        from taskloom.server.main import serve, serve_replica  # loads the whole server, so after quick checks

        gc.freeze()
        gc.enable()
        if options.replica is not None:
            serve_replica(options.replica, options.public, options.json)
        else:
            serve(
                options.host, options.port, options.database_url, options.port_file, options.workers, options.json
            )
    except (StartRefused, extras.NotInstalled) as error:
        told = json.dumps({"error": str(error)}) if "--json" in sys.argv else f"taskloom: {error}"
        print(told, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    end_with_threads()
    sys.exit(main())
