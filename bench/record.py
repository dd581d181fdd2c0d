"""Records of benchmarks: raw figures with the machine and the command as JSON, and a table."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import rounds
from gpt2core.node import host
from gpt2core.process import launch

ROOT = Path(__file__).parents[1]

Measured = dict[str, Any]


def results(name: str) -> Path:
    """Default path of a benchmark's record, without suffix."""
    return ROOT / "bench" / "results" / f"{datetime.date.today().isoformat()}-{name}"


def out_option(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--out", type=Path, default=results(name), help="path without suffix (default: %(default)s)")


def head(schema: str, on: Measured | None = None) -> Measured:
    """First lines of a report. on: the machine before the measurement.

    occasion: recordings of one machine and hour share their conditions; bench/combine.py combines several. at: when the
    recording is written. order_seed: of the order within rounds.
    """
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"schema": schema, "at": at, "occasion": f"{platform.node()} {at[:13]}", "command": command(),
            "order_seed": rounds.SEED, "machine": on or machine()}  # fmt: skip


def command() -> list[str]:
    """The arguments without those that name paths of this machine. A report names trees by their commits."""
    paths = argparse.ArgumentParser(add_help=False)
    for option in ("--before", "--keep", "--ours", "--out"):
        paths.add_argument(option)
    return paths.parse_known_args()[1]


def save(out: Path, report: Mapping[str, Any], text: str) -> None:
    """Write OUT.json, without white space, and OUT.md, and print the table."""
    out.parent.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(report, separators=(",", ":"))
    out.with_name(out.name + ".json").write_text(compact + "\n", encoding="utf-8")
    out.with_name(out.name + ".md").write_text(text, encoding="utf-8")
    print(text)
    print(f"written: {out}.json, {out}.md")


def machine() -> Measured:
    """Known facts about the machine."""
    return {
        "cpu_model": host.cpu_model(),
        "cores": len(launch.allowed_cores()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
    }
