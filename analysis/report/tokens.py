"""The colours of reports and of the dashboard: CSS custom properties, each for light and for dark.

Categories are those of Okabe & Ito 2008, distinguishable with any colour vision, lightened on dark ground.
"""

from __future__ import annotations

from gpt2core.spec.phases import PHASES

COLOURS = {
    "ground": ("#f5f6f8", "#0e1217"),
    "paper": ("#ffffff", "#161b22"),
    "raised": ("#f0f2f5", "#1e252e"),
    "ink": ("#1c2127", "#e4e9ee"),
    "soft": ("#545d68", "#9ca8b4"),
    "line": ("#dde1e6", "#2b333d"),
    "edge": ("#868f99", "#6c7885"),
    "accent": ("#00568a", "#6db9f2"),
    "tint": ("#e9f2f9", "#132a3c"),
    # schedulers and series
    "serial": ("#555555", "#a9b1b9"),
    "fork-join": ("#d55e00", "#ff9149"),
    "task": ("#0072b2", "#5ab4ec"),
    "series-1": ("#cc79a7", "#e59bc4"),
    "series-2": ("#009e73", "#3cc79c"),
    "series-3": ("#e69f00", "#f0b437"),
    "series-4": ("#56b4e9", "#8fd0f7"),
    # phases of a step; the first line is that of phases without a colour of their own
    **dict.fromkeys(PHASES, ("#cc79a7", "#e59bc4")),
    "data": ("#999999", "#8b939b"),
    "forward": ("#56b4e9", "#56b4e9"),
    "loss": ("#f0e442", "#e6da3c"),
    "backward": ("#e69f00", "#e69f00"),
    "update": ("#009e73", "#22b388"),
    # where the threads' time goes
    "useful": ("#009e73", "#22b388"),
    "no-work": ("#56b4e9", "#56b4e9"),
    "barrier": ("#d55e00", "#ff9149"),
    "scheduling": ("#999999", "#8b939b"),
    # waiting in timelines: none of them an op's colour
    "at-barrier": ("#222222", "#f2f2f2"),
    "starving": ("#f0e442", "#e6da3c"),
    "idle": ("#cfcfcf", "#3d4650"),
    "preempted": ("#7b1fa2", "#c58af9"),
    "lane": ("#eef0f2", "#1e252e"),
    # kinds of ops
    "products": ("#0072b2", "#3f9fdc"),
    "attention": ("#cc79a7", "#dc8fb8"),
    "elementwise": ("#e69f00", "#e69f00"),
    "loss-op": ("#d55e00", "#ff9149"),
    "update-op": ("#009e73", "#22b388"),
    "other-op": ("#999999", "#8b939b"),
    # states and verdicts, legible as text
    "good": ("#00664d", "#45cfa4"),
    "bad": ("#a3290f", "#ff8f7a"),
    "warn": ("#7a5200", "#f0b437"),
    "calm": ("#545d68", "#9ca8b4"),
    "odd": ("#7a3a72", "#e3a1d3"),
}  # fmt: skip


def stylesheet() -> str:
    """The custom properties: `light-dark()` follows `color-scheme`, which is the reader's unless data-theme is set."""
    lines = "".join(f"--{name}:light-dark({light},{dark});" for name, (light, dark) in COLOURS.items())
    return (
        f":root{{color-scheme:light dark;{lines}}}\n"
        ":root[data-theme=light]{color-scheme:light}\n:root[data-theme=dark]{color-scheme:dark}\n"
        "@media print{:root{color-scheme:light}}\n"
    )


def light(name: str) -> str:
    """A colour on a light ground, for files without a colour scheme."""
    return COLOURS[name][0]
