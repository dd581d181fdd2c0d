"""Choice of a library, and of a number of columns per call, for each matrix product: measured once on a node, and
stored.

Which library is fastest depends on the shape, and some are faster if a wide product is computed in pieces
(docs/decisions/0012). The choice determines how results are rounded, so all runs on a node share one table, whose id is
part of their fingerprint.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from gpt2core.gemm.libraries import Library
from gpt2core.gemm.measuring import Choice, measure
from gpt2core.node import cache, host, load
from gpt2core.spec.errors import MachineError
from gpt2core.spec.settings import numba_settings
from gpt2core.step.ops import Product

SCHEMA = "taskloom.products/7"
LEAST_FLOP = 500_000  # smaller products (below about 5 us) take the first library


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
    Raises MachineError for a file that is not such a table.
    """
    worth = worth_choosing(products)
    if len(libraries) == 1 or not worth:
        return Products(libraries[:1], {})
    path = _path(libraries)
    with cache.revising(path) as stored:  # a second process waits, then uses the first one's choices
        table = stored.setdefault("id", uuid.uuid4().hex[:8])
        try:
            kept = {
                Product(*row["product"]): Kept(Choice(*row["choice"]), row.get("busy_cores"))
                for row in stored.get("choices", ())
            }
        except (KeyError, TypeError) as error:
            raise cache.damaged(path, error) from error
        missing = [product for product in worth if product not in kept]
        others, made = load.Others(), {}
        for done, product in enumerate(missing):
            tell({"event": "measuring", "done": done, "total": len(missing), "product": str(product)})
            made[product] = measure(product, libraries)
        if made:
            busy_cores = others.busy_cores()
            kept |= {product: Kept(choice, busy_cores) for product, choice in made.items()}
            rows = [
                {"product": astuple(product), "choice": astuple(each.choice), "busy_cores": each.busy_cores}
                for product, each in kept.items()
            ]
            stored |= {"schema": SCHEMA, "choices": rows}
    busy_cores = max(kept[product].busy_cores or 0.0 for product in worth)
    doubt = "" if busy_cores <= load.MOST_BUSY_CORES else (
        f"libraries of products were chosen while other processes kept up to {busy_cores:.1f} cores busy, so the run "
        "may be slower than it could be: see taskloom doctor"
    )
    return Products(libraries, {product: each.choice for product, each in kept.items()}, table, doubt)


def _path(libraries: Sequence[Library]) -> Path:
    about = [SCHEMA, host.cpu_model(), *((each.name, each.version) for each in libraries), *numba_settings()]
    return cache.path("products", about, ".json")
