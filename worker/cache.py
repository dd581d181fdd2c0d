"""Cache folder of trainers on a node whose default cache folder is not writable."""

from __future__ import annotations

import os
from pathlib import Path

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.settings import make_cache_folder, make_numba_cache
from taskloom.worker.report import Report


def settle(spool: Path, report: Report) -> None:
    """If the cache folder is not writable, let trainers use the folder `cache` in the spool, and report it. So for
    NUMBA_CACHE_DIR, without which compiled code is stored in the cache folder."""
    try:
        make_cache_folder()
    except ConfigError as error:
        os.environ["TASKLOOM_CACHE_DIR"] = str(spool / "cache")  # trainers inherit it
        report.say("cache-moved", f"{error}; compiled code and peaks are stored in {make_cache_folder()}")
    try:
        make_numba_cache()
    except ConfigError as error:
        del os.environ["NUMBA_CACHE_DIR"]
        report.say("cache-moved", f"{error}; compiled code is stored in {make_cache_folder()}")
