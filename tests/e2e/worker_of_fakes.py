"""A real worker whose trainer is fake_trainer.py, given FAKE_GRACE_S to stop, and whose peaks are fake_roof.py's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from taskloom.worker import peaks
from taskloom.worker.__main__ import main

HERE = Path(__file__).parent
peaks.MOST_BUSY_CORES = float("inf")  # other tests run beside

if __name__ == "__main__":
    trainer, roof = ([sys.executable, str(HERE / name), "--result"] for name in ("fake_trainer.py", "fake_roof.py"))
    grace_s = float(os.environ["FAKE_GRACE_S"]) if "FAKE_GRACE_S" in os.environ else None
    sys.exit(main(sys.argv[1:], lambda result: [*trainer, str(result)], lambda result: [*roof, str(result)], grace_s))
