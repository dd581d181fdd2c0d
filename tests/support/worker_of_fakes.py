"""A real worker with fake_trainer.py, which has FAKE_GRACE_S to stop, and with the peaks of fake_roof.py, which
`--peaks idle` measures after FAKE_IDLE_S seconds without a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpt2core.node import load
from gpt2core.spec.threads import end_with_threads
from taskloom.worker import claim_loop, peaks
from taskloom.worker.process import main

HERE = Path(__file__).parent
load.MOST_BUSY_CORES = float("inf")  # other tests run at the same time
claim_loop.IDLE_S = float(os.environ.get("FAKE_IDLE_S", peaks.IDLE_S))  # type: ignore[attr-defined]

if __name__ == "__main__":
    end_with_threads()
    trainer, roof = ([sys.executable, str(HERE / name), "--result"] for name in ("fake_trainer.py", "fake_roof.py"))
    grace_s = float(os.environ["FAKE_GRACE_S"]) if "FAKE_GRACE_S" in os.environ else None
    sys.exit(main(sys.argv[1:], lambda result: [*trainer, str(result)], lambda result: [*roof, str(result)], grace_s))
