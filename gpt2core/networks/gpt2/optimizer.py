"""The optimizer as ops: blocks of weights and their updates, and the limit on the gradients' norm."""

from __future__ import annotations

from typing import NamedTuple

from gpt2core.kernels import adamw, clipping
from gpt2core.networks.gpt2.layers import F32, Key, Layers
from gpt2core.step.blocks import Block
from gpt2core.step.ops import ABSENT, Arena, Operand, Own, Tensor, Tile, Work

F64 = 8


class Part(NamedTuple):
    """What one tile updates: one or two spans of the weights arena, and where their gradients are.

    In the thread's own gradients the second span begins at `second_at`.
    """

    spans: tuple[Block, ...]
    second_at: int
    weight: Key
    gradient: Key
    label: str

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        (a0, a1), (b0, b1) = [*self.spans, (0, 0)][:2]
        return a0, a1, b0, b1

    @property
    def size(self) -> int:
        return sum(last - first for first, last in self.spans)


class Optimizer(Layers):
    """Adds the updates to a program."""

    def matrix(self, weight: str, bias: str, layer: int | None) -> list[Part]:
        """The blocks of a matrix, with those of its bias if it has one."""
        rows, columns = self.blocks.largest(weight)
        names = [name for name in (weight, bias) if name]
        return [
            Part(
                tuple(self.blocks.span(name, layer, block) for name in names),
                rows * columns, (weight, layer, i), ("d" + weight, layer, i), f"{weight} b{i}",
            )
            for i, block in enumerate(self.blocks.of(weight))
        ]  # fmt: skip

    def all_layernorms(self) -> list[Part]:
        """Every LayerNorm's weight and bias."""
        C = self.model.channels
        return [
            Part(
                tuple(self.blocks.span(name + kind, layer, (0, C)) for kind in "wb"),
                C, (name, layer), ("d" + name, layer), name if layer is None else f"{name}[{layer}]",
            )
            for _, name, layer in self.layernorms()
        ]  # fmt: skip

    def adamw(self, parts: list[Part], layer: int | None = None) -> None:
        clips = self.config.grad_clip > 0
        gradients: Operand = Arena("gradients") if self.keeps_gradients else Own("gradient")
        operands: list[Operand] = [
            Arena("weights"), gradients, Tensor("first_moment"), Tensor("second_moment"), Tensor("settings"),
            Tensor("clipping") if clips else ABSENT,
        ]  # fmt: skip
        tiles = []
        for part in parts:
            a0, a1, b0, b1 = part.bounds
            at = (a0, b0) if self.keeps_gradients else (0, part.second_at)
            reads: list[Key] = [part.gradient] if self.keeps_gradients else []
            accesses = self.program.accesses(reads=[*reads, *([("clipping",)] if clips else [])], updates=[part.weight])
            tiles.append(Tile((Work((a0, a1, b0, b1, *at), 15 * part.size, 28 * part.size),), accesses, part.label))
        self.program.add("adamw", "update", adamw.adamw_update_entry, operands, tiles, layer, filler=True)

    def clip(self, parts: list[Part]) -> None:
        """The norm of all gradients, part by part, and by what the update scales them."""
        self.program.add(
            "gradient_squares", "update", clipping.gradient_squares_entry, [Tensor("squares"), Arena("gradients")],
            [
                Tile(
                    (Work((*part.bounds, i), 2 * part.size, F32 * part.size),),
                    self.program.accesses(reads=[part.gradient], writes=[("squares", i)]),
                    part.label,
                )
                for i, part in enumerate(parts)
            ],
            filler=True,
        )  # fmt: skip
        self.program.add(
            "clip", "update", clipping.clip_entry,
            [Tensor("clipping"), Tensor("gradient_norms"), Tensor("control"), Tensor("squares"), Tensor("settings")],
            [Tile(
                (Work((0,), len(parts), F64 * len(parts)),),
                self.program.accesses(reads=[("squares", i) for i in range(len(parts))], writes=[("clipping",)]),
                "",
            )],
            filler=True,
        )  # fmt: skip
