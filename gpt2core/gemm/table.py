"""Choice of a library, and of a number of columns per call, for each matrix product: measured once on a node, and
stored.

Which library is fastest depends on the shape, and some are faster if a wide product is computed in pieces
(docs/decisions/0012). The choice determines how results are rounded, so all runs on a node share one table, whose id is
part of their fingerprint.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.gemm.libraries import Library
from gpt2core.gemm.multiply import (
    new_scratch,
    own_product_of_floats,
    pack_whole,
    product_of_floats,
    time_packed,
    time_product,
)
from gpt2core.gemm.sizes import panels_shape
from gpt2core.node import cache, host, load, pages
from gpt2core.spec.errors import MachineError
from gpt2core.spec.settings import numba_settings
from gpt2core.step.ops import Product

SCHEMA = "taskloom.products/7"
PIECES = (768, 1536, 3072)  # columns
LEAST_FLOP = 500_000  # smaller products (below about 5 us) take the first library
LEAST_GAIN = 0.03  # minimum gain over the first library, all columns at once
FEW_ROUNDS, MANY_ROUNDS, ROUNDS_FLOP = 2, 40, 3_000_000_000  # rounds per candidate: minimum, maximum, and their FLOP
IN_A_ROW = 6  # products with a packed operand, which a recurrence reads again at each time


@dataclass(frozen=True)
class Choice:
    """A library by its name, and columns of a piece; 0 for all at once."""

    name: str
    piece: int = 0

    def __str__(self) -> str:
        return f"{self.name}/{self.piece}" if self.piece else self.name


@dataclass(frozen=True)
class Kept:
    """A choice, and the number of cores that other processes kept busy during its measurement; None: unknown."""

    choice: Choice
    busy_cores: float | None = None


class Products:
    """The choice for each product. Without choices the first library computes every product in one call. `doubt`: why
    some may be slow ones."""

    def __init__(
        self, libraries: Sequence[Library], choices: Mapping[Product, Choice], table: str = "", doubt: str = ""
    ) -> None:
        self.doubt = doubt
        self.libraries = {library.name: library for library in libraries}
        self.first, self.choices, self.table = libraries[0], choices, table
        self.name, self.version = self.first.name, self.first.version
        if len(libraries) > 1:
            self.name = "auto"
            self.version = ", ".join(f"{library.name} {library.version}" for library in libraries)
        if table:
            self.version += f", table {table}"

    @property
    def choice(self) -> tuple[list[str], Mapping[Product, Choice], str]:
        """Names of the libraries, the choices and the id of their table: what another process needs to compute alike.
        """
        return list(self.libraries), self.choices, self.table

    @classmethod
    def chosen(
        cls, libraries: Sequence[Library], names: Sequence[str], choices: Mapping[Product, Choice], table: str
    ) -> Products:
        """The `choice` of another process, among this one's libraries. Raises MachineError if one is missing here."""
        here = {library.name: library for library in libraries}
        if missing := [name for name in names if name not in here]:
            raise MachineError(f"rank 0 computes products with {', '.join(missing)}, which is not installed here")
        return cls([here[name] for name in names], choices, table)

    def of(self, product: Product) -> Choice:
        return self.choices.get(product, Choice(self.first.name))

    def operand(self, product: Product) -> tuple[int, int, int, int]:
        """Arguments of a kernel for this product, without its thread's scratch."""
        choice = self.of(product)
        return self.libraries[choice.name].by(choice.piece)


def worth_choosing(products: Sequence[Product]) -> list[Product]:
    """The products that are large enough for a choice, without repeats."""
    return [p for p in dict.fromkeys(products) if 2 * p.m * p.n * p.k >= LEAST_FLOP]


def choose(
    libraries: Sequence[Library], products: Sequence[Product], tell: Callable[[dict[str, Any]], None]
) -> Products:
    """This node's table of the fastest library for each product. Missing products are measured and kept.

    A kept choice never changes, since it determines how results are rounded. It is kept with the load during the
    measurement; `taskloom doctor` names choices made under load. tell gets events `measuring` (done, total, product).
    """
    worth = worth_choosing(products)
    if len(libraries) == 1 or not worth:
        return Products(libraries[:1], {})
    path = _path(libraries)
    with cache.locked(path):  # a second process waits, then uses the first one's choices
        table, kept = _read(path)
        missing = [product for product in worth if product not in kept]
        others, made = load.Others(), {}
        for done, product in enumerate(missing):
            tell({"event": "measuring", "done": done, "total": len(missing), "product": str(product)})
            made[product] = measure(product, libraries)
        if made:
            busy_cores = others.busy_cores()
            kept |= {product: Kept(choice, busy_cores) for product, choice in made.items()}
            _write(path, table, kept)
    busy_cores = max(kept[product].busy_cores or 0.0 for product in worth)
    doubt = "" if busy_cores <= load.MOST_BUSY_CORES else (
        f"libraries of products were chosen while other processes kept up to {busy_cores:.1f} cores busy, so the run "
        "may be slower than it could be: see taskloom doctor"
    )
    return Products(libraries, {product: each.choice for product, each in kept.items()}, table, doubt)


def candidates(product: Product, libraries: Sequence[Library]) -> list[Choice]:
    """Candidates for a product. The first one, the first library at once, is taken unless another is clearly faster."""
    pieces = [0, *(piece for piece in PIECES if 2 * piece <= product.n)]
    return [
        Choice(library.name, piece)
        for library in libraries
        for piece in (pieces if library.entry is product_of_floats else pieces[:1])
    ]


def measure(product: Product, libraries: Sequence[Library]) -> Choice:
    """The candidate with the fastest product. Candidates take turns on the calling thread. A weight's gradient is
    measured as one in the thread's own memory, which is in a cache. Products with a packed operand follow each other:
    on some processors an operand lies in the last cache only when it has been read several times."""
    named = {library.name: library for library in libraries}
    words, scratch = new_scratch()
    rng = np.random.default_rng(0)
    p = product
    a, b, c = operand(rng, p.m * p.k, p.half_a), operand(rng, p.k * p.n, p.half_b), matrix(p.m * p.n)
    tried = candidates(product, libraries)
    best = dict.fromkeys(tried, np.inf)
    shape = (p.half_a, p.half_b, p.trans_a, p.trans_b, p.m, p.n, p.k)
    panels = matrix(math.prod(panels_shape(p.n, p.k)) if p.packed else 0)
    if p.packed:
        pack_whole(panels, b, p.trans_b, p.n, p.k)
    in_a_row = IN_A_ROW if p.packed else 1
    rounds = ROUNDS_FLOP // (2 * p.m * p.n * p.k * in_a_row)
    for _ in range(max(FEW_ROUNDS, min(rounds, MANY_ROUNDS))):
        for choice in tried:
            by = named[choice.name].by(choice.piece, scratch)
            for _ in range(in_a_row):
                if p.packed and named[choice.name].entry is own_product_of_floats:
                    elapsed = time_packed(by, p.m, p.n, p.k, a, panels, c)
                else:
                    elapsed = time_product(by, *shape, a, b, c, 1 - p.trans_a)
                best[choice] = min(best[choice], elapsed)
    fastest = min(tried, key=lambda choice: best[choice])
    del words
    return fastest if best[fastest] < best[tried[0]] * (1 - LEAST_GAIN) else tried[0]


def matrix(size: int) -> NDArray[np.float32]:
    """Float32 zeros in mapped pages, as in a run. They are returned afterwards; an allocator would keep them."""
    return np.frombuffer(pages.reserve(4 * size), np.float32)[:size]


def operand(rng: np.random.Generator, size: int, half: int) -> NDArray[np.generic]:
    """Normal numbers in mapped pages: float32, or bfloat16 (as uint16) if `half` is set."""
    array = matrix(size)
    rng.standard_normal(dtype=np.float32, out=array)
    if not half:
        return array
    halves = array.view(np.uint16)
    halves[:size] = halves[1::2]  # the upper ones
    return halves[:size]


def _path(libraries: Sequence[Library]) -> Path:
    about = [SCHEMA, host.cpu_model(), *((each.name, each.version) for each in libraries), *numba_settings()]
    return cache.path("products", about, ".json")


def _read(path: Path) -> tuple[str, dict[Product, Kept]]:
    """The table's id and choices; a new id if there is none. Raises MachineError for a file that is not one."""
    try:
        found = cache.read_json(path)
        if found is None:
            return uuid.uuid4().hex[:8], {}
        return found["id"], {
            Product(*each["product"]): Kept(Choice(*each["choice"]), each.get("busy_cores"))
            for each in found["choices"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MachineError(
            f"{path} is not a table of products ({error}); remove it, and the products are measured again"
        ) from error


def _write(path: Path, table: str, choices: Mapping[Product, Kept]) -> None:
    rows = [
        {
            "product": [p.trans_a, p.trans_b, p.m, p.n, p.k, p.half_a, p.half_b, p.packed],
            "choice": [each.choice.name, each.choice.piece],
            "busy_cores": each.busy_cores,
        }
        for p, each in choices.items()
    ]
    cache.write_json(path, {"schema": SCHEMA, "id": table, "choices": rows})
