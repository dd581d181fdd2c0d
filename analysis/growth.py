"""Memory of training beside inference against the batch, the length of samples and the side of images: the exact size
of all arenas, and measured peaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

DOUBLINGS = 4  # beyond the measured shape
HALF = 0.5
MIB = 1 << 20

Shape = Mapping[str, int]  # batch, seq, and side of a model of images
SizesOf = Callable[[str, Shape], Mapping[str, int]]  # mode, shape -> bytes of each arena


@dataclass(frozen=True)
class Peak:
    """Peak of the resident memory of a run's process."""

    mode: str
    shape: Shape
    bytes: int


@dataclass(frozen=True)
class GrowthPoint:
    """All arenas of each mode at one size of the axis, and the weights alone; the highest measured peaks, null without
    a run."""

    size: int
    train_bytes: int
    infer_bytes: int
    weights_bytes: int
    train_peak_bytes: int | None = None
    infer_peak_bytes: int | None = None


@dataclass(frozen=True)
class Growth:
    """Memory along one axis: batch, seq or side. fixed: the other sizes; size: that of the experiment's first variant.
    logits: those that inference keeps. ratio: arenas of inference / of training at `size`. weights_until: the largest
    size of the drawn range up to which the weights are at least half of inference's arenas; null if there is none."""

    axis: str
    size: int
    fixed: dict[str, int]
    logits: str
    points: list[GrowthPoint]
    ratio: float
    weights_until: int | None
    sentence: str


def growth(
    shape: Shape, limits: Mapping[str, tuple[int, int]], logits: str, sizes_of: SizesOf, peaks: Sequence[Peak] = ()
) -> list[Growth]:
    """Memory along each axis of `limits`, which has the smallest and the largest size of each."""
    return [_along(axis, limits[axis], dict(shape), logits, sizes_of, peaks) for axis in limits]


def _along(
    axis: str, limits: tuple[int, int], shape: dict[str, int], logits: str, sizes_of: SizesOf, peaks: Sequence[Peak]
) -> Growth:
    size, fixed = shape[axis], {name: value for name, value in shape.items() if name != axis}

    def arenas(mode: str, at: int) -> Mapping[str, int]:
        return sizes_of(mode, {**shape, axis: at})

    def weighs_half(at: int) -> bool:
        sizes = arenas("infer", at)
        return sizes["weights"] >= HALF * sum(sizes.values())

    measured = [peak for peak in peaks if {**peak.shape, axis: size} == shape]
    points = []
    for at in sorted({*_doublings(size, *limits), *(peak.shape[axis] for peak in measured)}):
        highest = {
            f"{mode}_peak_bytes": max(
                (peak.bytes for peak in measured if (peak.mode, peak.shape[axis]) == (mode, at)), default=None
            )
            for mode in ("train", "infer")
        }
        train, infer = (arenas(mode, at) for mode in ("train", "infer"))
        points.append(GrowthPoint(at, sum(train.values()), sum(infer.values()), infer["weights"], **highest))
    here = next(point for point in points if point.size == size)
    low, high = points[0].size - 1, points[-1].size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if weighs_half(middle) else (low, middle - 1)
    until = low if low >= points[0].size else None
    found = Growth(axis, size, fixed, logits, points, here.infer_bytes / here.train_bytes, until, "")
    return replace(found, sentence=_sentence(found, here))


def _doublings(size: int, least: int, most: int) -> list[int]:
    """The size, halved and doubled."""
    halves = (size >> i for i in range(1, size.bit_length()))
    return [each for each in (*halves, *(size << i for i in range(DOUBLINGS + 1))) if least <= each <= most]


def _sentence(found: Growth, here: GrowthPoint) -> str:
    others = "".join(f" and {name} {value}" for name, value in found.fixed.items())
    parts = [
        f"At {found.axis} {found.size}{others}, the arenas of inference (logits {found.logits}) have "
        f"{here.infer_bytes / MIB:,.1f} MiB, {found.ratio:.0%} of training's {here.train_bytes / MIB:,.1f} MiB."
    ]
    if here.infer_peak_bytes and here.train_peak_bytes:
        parts.append(
            f"Peaks of the processes: {here.infer_peak_bytes / MIB:,.0f} MiB, "
            f"{here.infer_peak_bytes / here.train_peak_bytes:.0%} of {here.train_peak_bytes / MIB:,.0f} MiB."
        )
    last = found.points[-1].size
    if found.weights_until is None:
        where = f"at no {found.axis} from {found.points[0].size} on"
    elif found.weights_until == last:
        where = f"at every {found.axis} up to {last}"
    else:
        where = f"up to {found.axis} {found.weights_until}"
    return " ".join([*parts, f"The weights are at least half of inference's arenas {where}."])
