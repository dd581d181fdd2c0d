"""Cost of a trace: its raw size, and size and export time of the files for viewers.

    python -m bench.traces --model gpt2-124m --steps 20

One run is traced; each format is then written as `taskloom runs trace` writes it, including the time of reading the
trainer's file. Figures go to bench/results/.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from bench.record import Measured, head, out_option, save
from bench.step import child
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from taskloom import trace_files

MB = 1_000_000
FILES: dict[str, trace_files.Format] = {"trace.json.gz": "chrome", "trace.json": "chrome", "trace.prv": "paraver"}
WARMUP = 2


def export(raw: Path, name: str, form: trace_files.Format, folder: Path) -> Measured:
    """Read the trainer's file, write a viewer's."""
    begun_s = time.perf_counter()
    trace = trace_files.read(raw)
    written = trace_files.write(folder / name, form, [(trace.title, trace)])
    return {"file": name, "s": time.perf_counter() - begun_s, "bytes": sum(path.stat().st_size for path in written)}


def main() -> None:
    """Run, export, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--batch-slice", type=int, default=1)
    parser.add_argument("--token-slice", type=int, default=32)
    parser.add_argument("--threads", type=int, default=len(launch.allowed_cores()))
    parser.add_argument("--steps", type=int, default=20, help="timed and traced steps")
    out_option(parser, "traces")
    given = vars(parser.parse_args())
    out = given.pop("out")
    with tempfile.TemporaryDirectory(prefix="bench-traces-") as name:
        folder = Path(name)
        raw, result = folder / "raw.json.gz", folder / "result.json"
        settings = {**given, "steps": given["steps"] + WARMUP, "warmup": WARMUP, "sync": "none", "trace": str(raw)}
        config = TrainConfig.from_dict({**settings, "scheduler": "task", "data": "synthetic"})
        child(launch.command(result), json.dumps(config.to_dict()), launch.environment())
        spans = sum(map(len, trace_files.read(raw).threads))
        report = {
            **head("taskloom.bench.traces/1"),
            "given": given,
            "spans": spans,
            "trainer_bytes": raw.stat().st_size,
            "exports": [export(raw, file, form, folder) for file, form in FILES.items()],
        }
    save(out, report, table(report))


def table(report: Measured) -> str:
    """Sizes and times as Markdown."""
    given, on = report["given"], report["machine"]
    lines = [
        f"# Traces: {given['model']}, B{given['batch']} T{given['seq']}, slices {given['batch_slice']}x"
        f"{given['token_slice']}, {given['threads']} threads, {given['steps']} steps, {report['at'][:10]}", "",
        f"{report['spans']:,} spans; as the trainer leaves it (compressed) {report['trainer_bytes'] / MB:.1f} MB.", "",
        "| file | MB | s, reading included |", "|---|---|---|",
        *(f"| {each['file']} | {each['bytes'] / MB:.1f} | {each['s']:.1f} |" for each in report["exports"]), "",
        f"`{' '.join(['python -m bench.traces', *report['command']])}`. {on['cpu_model']}, {on['cores']} cores, Linux "
        f"{on['kernel']}, load average {on['load_average'][0]:.1f}.", "",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
