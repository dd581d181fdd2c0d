"""The workload of six networks for bench/example.py: what runs, its real data, and the figures that are kept.

No data is downloaded. Tokens are the text of Python's standard library. Pairs are each line of it with the line that
follows, as bytes. Cloze records are made from it in the form of the Children's Book Test: 20 lines, and the next one,
of which a word that occurs in the lines before is missing. Images are generated ones in a file of CIFAR's form, so they
show what reading from a file costs, and nothing about real images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpt2core.data import cbt, pairs
from gpt2core.data.images import synthetic_images
from gpt2core.data.sources import stdlib_tokens, write_tokens
from gpt2core.spec.data import CIFAR_SIDE, END

SEQ, WORDS, QUERY, VOCAB = 32, 160, 16, 4000  # positions of pairs; words of a document and of a query; of both
PAIRS, RECORDS = 4096, 512
SHORTEST, LONGEST = 4, WORDS // cbt.SENTENCES  # words of a line of a record
TEXT_BYTES = 4 << 20
NETWORKS = [
    {"model": "small", "batch": 4, "seq": 64},
    {"model": {"network": "lstm", "embedding": 256, "hidden": 256, "layers": 2, "vocab": 256, "name": "lstm-256"},
     "batch": 8, "seq": 32},
    {"model": "resnet14-cifar", "batch": 16},
    {"model": "vgg11-cifar", "batch": 2},
    {"model": {"network": "seq2seq", "embedding": 128, "hidden": 256, "vocab": 256 + pairs.FIRST_WORD,
               "name": "seq2seq-256"}, "batch": 8, "seq": SEQ},
    {"model": {"network": "reader", "embedding": 128, "hidden": 128, "vocab": VOCAB, "query": QUERY,
               "name": "reader-128"}, "batch": 4, "seq": WORDS},
]  # fmt: skip
TERMS = {
    "networks": NETWORKS, "threads": [1, 2], "batches": [2, 4],
    "images": "cifar10:generated.bin", "pairs": "pairs:stdlib-lines", "cloze": "cloze:stdlib-lines",
}  # fmt: skip
OF_ROW = ("mode", "data", "batch", "seq", "side", "step_s", "step_low_s", "step_high_s", "memory_bytes",
          "peak_rss_bytes", "mfu")  # fmt: skip
OF_DOCUMENT = ("question", "answer", "design", "environment", "left_out", "calibration")
DIGITS = 5


def make(folder: Path) -> None:
    """Write the real data into a folder, below which runs name them."""
    lines = [line.strip() for line in stdlib_tokens(TEXT_BYTES).astype(np.uint8).tobytes().split(b"\n")]
    _pairs(folder / "stdlib-lines", [line[: SEQ - 1] for line in lines if line][: PAIRS + 1])
    text = folder / "stdlib-lines.txt"
    text.write_text("".join(_records(lines)), encoding="utf-8")
    cbt.convert(text, folder / "stdlib-lines", vocab=VOCAB)
    images = synthetic_images(1, CIFAR_SIDE, 10, 0, seed=2)
    (folder / "generated.bin").write_bytes(images.samples.tobytes())


def _pairs(folder: Path, lines: Sequence[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, side in zip((pairs.SOURCE, pairs.TARGET), zip(*pairwise(lines), strict=True), strict=True):
        tokens = [token for line in side for token in (*(byte + pairs.FIRST_WORD for byte in line), END)]
        write_tokens(folder / name, np.array(tokens))


def _records(lines: Sequence[bytes]) -> Iterator[str]:
    """Records in the form of the Children's Book Test."""
    words = [[word for word in line.decode(errors="replace").split()
              if word.isalpha() and word != cbt.GAP] for line in lines]  # fmt: skip
    sentences = [line[:LONGEST] for line in words if len(line) >= SHORTEST]
    found = 0
    for first in range(0, len(sentences) - cbt.SENTENCES, cbt.SENTENCES + 1):
        *document, query = sentences[first : first + cbt.SENTENCES + 1]
        known = {word for line in document for word in line}
        at = next((i for i, word in enumerate(query) if word in known), None)
        if at is None or found == RECORDS:
            continue
        found += 1
        answer, query[at] = query[at], cbt.GAP
        yield "".join(f"{number} {' '.join(line)}\n" for number, line in enumerate(document, 1))
        yield f"{cbt.SENTENCES + 1} {' '.join(query)}\t{answer}\t\t{answer}\n\n"


def figures(document: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a report that documents cite, without samples, ops and what bench/example.py declares."""
    experiment = {name: value for name, value in document["experiment"].items() if name != "request"}
    networks = [_network(of) for of in document["workload"]["networks"]]
    kept = {name: document[name] for name in OF_DOCUMENT}
    kept["design"] = {name: value for name, value in document["design"].items() if name != "zip"}
    found: dict[str, Any] = _rounded({"experiment": experiment, **kept, "networks": networks})
    return found


def _network(of: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {
            **{name: row[name] for name in OF_ROW},
            **{name: row["variant"][name] for name in ("scheduler", "threads", "runs")},
            "phases": {each["phase"]: [each["time_s"], each["memory_bound"]] for each in row["phases"]},
        }
        for row in of["rows"]
    ]
    schedulers = [{name: value for name, value in row.items() if name != "sentence"} for row in of["schedulers"]]
    return {**of, "rows": rows, "schedulers": schedulers}


def _rounded(value: Any) -> Any:
    """The same with DIGITS significant digits of each fraction."""
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
