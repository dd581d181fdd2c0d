"""A measurement of peaks that measures nothing. It implements the protocol of gpt2core.run.roof; FAKE_ROOF selects:

quick  stores peaks at once
gated  reports that it has begun, and stores peaks as soon as the file FAKE_ROOF_GATE exists
crash  exits 1
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from gpt2core.node import peaks


def main() -> int:
    behaviour = os.environ["FAKE_ROOF"]
    if behaviour == "crash":
        return 1
    print(json.dumps({"event": "peak", "done": 0, "total": 1, "threads": 1}), flush=True)
    while behaviour == "gated" and not Path(os.environ["FAKE_ROOF_GATE"]).exists():
        time.sleep(0.02)
    peaks.keep({"schema": peaks.SCHEMA, "threads": {"1": {"gflop_per_s": 1.0, "triad_gb_per_s": 1.0}}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
