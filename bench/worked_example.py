"""The worked example of docs/methodology.md, from the raw samples of docs/examples/gpt2-124m.json.gz.

`python -m bench.worked_example` writes the section and its picture again.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
import statistics
import textwrap
from pathlib import Path
from typing import Any

from taskloom.analysis.comparison import decide
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import TAIL, logarithms
from taskloom.analysis.family import Family
from taskloom.analysis.pooling import pool
from taskloom.analysis.rank_tests import signed_rank_cut
from taskloom.analysis.report.svg import INK, SOFT, Scale, line, text
from taskloom.analysis.report.tokens import COLOURS, light
from taskloom.analysis.statistics import holm

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs/examples/gpt2-124m.json.gz"
PAGE = ROOT / "docs/methodology.md"
PICTURE = ROOT / "docs/images/worked-example.svg"
BEGIN, END = "<!-- made by python -m bench.worked_example; do not edit -->", "<!-- up to here -->"
SLICINGS = ({"batch_slice": 1, "token_slice": 64}, {"batch_slice": 1, "token_slice": 32},
            {"batch_slice": 2, "token_slice": 64})  # fmt: skip
PLACE = {"threads": 2, **SLICINGS[0]}
VARIANTS = 12  # runs of a block
FLOOR = 0.01


def medians_ms(document: dict[str, Any], scheduler: str, place: dict[str, int]) -> list[float]:
    """Median of the timed steps of each process of a variant, by block."""
    for row in document["samples"]:
        if row["variant"]["variant"] == {"scheduler": scheduler, **place}:
            of_blocks = {(p["run_id"] - 1) // VARIANTS: statistics.median(p["step_s"]) for p in row["processes"]}
            return [of_blocks[block] * 1e3 for block in sorted(of_blocks)]
    raise ValueError(f"no variant of {scheduler} at {place}")


def family_p_values(document: dict[str, Any]) -> list[float]:
    """p-values of all statements of the sweep, that of PLACE first."""
    found = []
    for threads in (2, 1):
        logs = []
        for place in SLICINGS:
            a, b = (medians_ms(document, name, {"threads": threads, **place}) for name in ("fork-join", "task"))
            found.append(decide(a, b, True, FLOOR).p_value)
            logs.append(logarithms(a) - logarithms(b))
        found.append(pool(logs, "places").estimate.p_value)
    return [p for p in found if p is not None]


def section(document: dict[str, Any]) -> str:
    """The Markdown of the example."""
    a, b = (medians_ms(document, name, PLACE) for name in ("fork-join", "task"))
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    logs = [math.log(ratio) for ratio in ratios]
    walsh = sorted((x + y) / 2 for x, y in itertools.combinations_with_replacement(logs, 2))
    alone = decide(a, b, True, FLOOR)
    assert not diagnose(ratios).broken
    found, cut = alone.ratio, signed_rank_cut(len(logs), TAIL)
    assert found.low is not None and found.high is not None and cut is not None  # noqa: PT018
    p_values = family_p_values(document)
    family = Family(2 * len(SLICINGS), 2)
    adjusted = holm(p_values)[0]
    largest = sorted(range(len(ratios)), key=ratios.__getitem__)[-2:]
    disturbed = " and ".join(str(block + 1) for block in sorted(largest))
    table = "\n".join(
        f"| {block} | {x:.1f} | {y:.1f} | {x / y:.4f} | {math.log(x / y):+.4f} |"
        for block, (x, y) in enumerate(zip(a, b, strict=True), 1)
    )
    return wrapped(f"""Is `task` faster than `fork-join` on two threads with slices 1x64? The experiment is the first
of the [examples](examples/README.md): in each of 8 blocks every variant ran once, in a new process with one warm-up
and five timed steps. A process contributes the median of its timed steps. The two processes of a block are a pair.

| block | fork-join, ms | task, ms | ratio | log ratio |
| -- | -- | -- | -- | -- |
{table}

![Ratio of each pair, the estimate with its interval, and the noise floor](images/worked-example.svg)

1. **Estimate.** Eight log ratios have {len(walsh)} means of two, each ratio also with itself. Their median is
   {statistics.median(walsh):+.4f}, so the ratio is **{found.value:.4f}**. The mean ratio is
   {statistics.mean(ratios):.4f}: in blocks {disturbed} fork-join took much longer, and ranks keep the estimate from
   following these two.
1. **Interval.** If there is no difference, all {2 ** len(logs)} combinations of signs are equally likely. A 95 %
   interval then leaves out {cut} means at each end. It is **{found.low:.4f} to {found.high:.4f}**.
1. **Test.** All eight log ratios are positive, which happens in 2 of {2 ** len(logs)} cases:
   p = **{found.p_value:.4f}**.
1. **Noise floor.** The floor of 1 % was declared beforehand. The ratio is beyond it, and the interval excludes 1.
1. **Diagnosis.** The ratios neither resemble their neighbours nor drift over the blocks.
1. **Alone**, as the declared question of an experiment, the verdict would therefore be **{alone.verdict}**.
1. **Family.** This experiment declared no question, so the comparison is one of {family.size} statements: {family}.
   Holm's correction makes p = **{adjusted:.4f}**. With 8 pairs it cannot become smaller than
   {family.smallest_p(len(logs)):.4f} while no other statement is significant; {family.needed()} pairs could decide.
1. **Verdict:** **{alone.verdict if adjusted < 0.05 else "undecided"}**, with the reason
   `too-few-in-family`. The way out is more blocks, or a declared question (`primary`) before the experiment runs.

The page of the example was written when pooled ratios were not part of the family. It calls this comparison faster.""")


def wrapped(text: str) -> str:
    """Paragraphs and items of at most 120 columns."""
    lines: list[str] = []
    for paragraph in re.split(r"\n(?=1\. |\||!|\n|$)", text):
        is_table = paragraph.startswith(("|", "!")) or not paragraph.strip()
        hanging = "   " if paragraph.startswith("1. ") else ""
        filled = textwrap.fill(" ".join(paragraph.split()), 120, subsequent_indent=hanging, break_on_hyphens=False)
        lines += [""] * paragraph.startswith("\n") + [paragraph if is_table else filled]
    return "\n".join(lines)


def picture(document: dict[str, Any]) -> str:
    """Ratio of each pair, and the estimate with its interval over the noise floor, as SVG."""
    a, b = (medians_ms(document, name, PLACE) for name in ("fork-join", "task"))
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    found = decide(a, b, True, FLOOR).ratio
    low, high = found.low, found.high
    assert low is not None
    assert high is not None
    x = Scale(0.98, 1.2, 120, 620)
    bottom = 40 + 26 * len(ratios)
    parts = [f'<rect x="{x(1 / (1 + FLOOR)):.1f}" y="16" width="{x(1 + FLOOR) - x(1 / (1 + FLOOR)):.1f}" '
             f'height="{bottom}" fill="var(--raised)"/>']  # fmt: skip
    for tick in (1.0, 1.05, 1.1, 1.15, 1.2):
        parts += [line([(x(tick), 16), (x(tick), bottom + 16)], "var(--line)", 1),
                  text(x(tick), bottom + 34, f"{tick:.2f}", "middle", 11, SOFT)]  # fmt: skip
    parts.append(line([(x(1), 16), (x(1), bottom + 16)], INK, 1.4))
    for i, ratio in enumerate(ratios):
        y = 36 + 26 * i
        parts += [text(108, y + 4, f"block {i + 1}", "end", 12),
                  f'<circle cx="{x(ratio):.1f}" cy="{y}" r="4.5" fill="var(--task)"/>']  # fmt: skip
    y = 36 + 26 * len(ratios)
    parts += [text(108, y + 4, "estimate", "end", 12, INK, True), line([(x(low), y), (x(high), y)], INK, 2),
              *(line([(x(end), y - 5), (x(end), y + 5)], INK, 2) for end in (low, high)),
              f'<circle cx="{x(found.value):.1f}" cy="{y}" r="6" fill="{INK}"/>']  # fmt: skip
    label = "time of fork-join / time of task; grey: the noise floor of 1 %"
    parts.append(text(370, bottom + 54, label, "middle", 12, SOFT))
    body = "".join(parts)
    for name in COLOURS:
        body = body.replace(f"var(--{name})", light(name))
    size = f'viewBox="0 0 660 {bottom + 66}" font-family="system-ui, sans-serif"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{ground}{body}</svg>\n'


def render(page: str, document: dict[str, Any]) -> str:
    """The page with its example made again."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{section(document)}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    document = json.loads(gzip.decompress(SOURCE.read_bytes()))
    PAGE.write_text(render(PAGE.read_text(), document))
    PICTURE.write_text(picture(document))


if __name__ == "__main__":
    main()
