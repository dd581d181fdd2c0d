"""A real worker whose trainer is fake_trainer.py: the command is the only thing that differs."""

from __future__ import annotations

import sys
from pathlib import Path

from worker.__main__ import main

FAKE = Path(__file__).with_name("fake_trainer.py")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], command=lambda result: [sys.executable, str(FAKE), "--result", str(result)]))
