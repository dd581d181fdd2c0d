"""Layers as ops: what each kernel's tiles are, and which regions they touch.

Regions are (tensor, layer, slice) for activations and (tensor, layer, block) for weights and their gradients, a block
being some output rows of a matrix with their biases.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from gpt2core.compile.jit import Entry
from gpt2core.kernels import attention, cross_entropy, encoder, gelu, layernorm, matmul, residual, tokens
from gpt2core.kernels.sizes import ATTENTION_BLOCK
from gpt2core.networks.gpt2.tensors import model_of, ring_layers, weight_specs
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.blocks import WeightBlocks
from gpt2core.step.ops import ABSENT, Access, Arena, Operand, Own, Product, Program, Tensor, Tile, Work
from gpt2core.step.slicing import Slice

F32 = 4

Key = tuple[Hashable, ...]  # of a region, or of a family of regions: then less the slice's number
# A linear layer: its name in reports, its tensors, and how the kernels see them.
LINEAR = {
    "qkv": ("qkvw", "qkvb"),
    "projection": ("attprojw", "attprojb"),
    "fc": ("fcw", "fcb"),
    "fc_projection": ("fcprojw", "fcprojb"),
    "logits": ("wte", ""),
}


class Layers:
    """Adds ops to a program, one layer's kernel at a time."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = slicing.resolve(config)
        self.model = model_of(self.config)
        self.slices = slicing.cut(self.config)
        self.token_slice = slicing.sizes(self.config)[1]
        self.most_rows = max(s.rows for s in self.slices)
        self.program = Program()
        self.ring = ring_layers(self.model)
        self.blocks = WeightBlocks(weight_specs(self.model))
        self.shape = self.blocks.shape
        self.keeps_gradients = config.fused != "all"
        # Stands for all products of attention: a block of queries by all keys of a head.
        block, width = min(ATTENTION_BLOCK, self.token_slice), self.model.channels // self.model.heads
        self.scores = Product(0, 1, block, self.config.seq, width)

    # --- what layers are made of

    def per_slice(
        self,
        name: str,
        phase: str,
        entry: Entry,
        operands: list[Operand],
        layer: int | None,
        *,
        reads: Iterable[Key] = (),
        writes: Iterable[Key] = (),
        updates: Iterable[Key] = (),
        shared: Iterable[Hashable] = (),
        row_flop: int = 0,
        row_bytes: int = 0,
        tile_bytes: int = 0,
        slot0: int | None = None,
    ) -> None:
        """An op with a tile for each slice's rows: `reads` and so on are regions less the slice, `shared` are whole.

        With `slot0` a tile also gets a number of its own, from there on.
        """
        reads, writes, updates, shared = list(reads), list(writes), list(updates), list(shared)
        self.program.add(name, phase, entry, operands, layer=layer, tiles=[
            Tile(
                (
                    Work(
                        (s.row0, s.row1) if slot0 is None else (s.row0, s.row1, slot0 + s.index),
                        row_flop * s.rows,
                        row_bytes * s.rows + tile_bytes,
                    ),
                ),
                self.program.accesses(
                    reads=[*((*key, s.index) for key in reads), *shared],
                    writes=[(*key, s.index) for key in writes],
                    updates=[(*key, s.index) for key in updates],
                ),
                f"s{s.index}",
            )
            for s in self.slices
        ])  # fmt: skip

    def per_block(
        self,
        name: str,
        entry: Entry,
        operands: list[Operand],
        layer: int | None,
        weight: str,
        *,
        reads: Iterable[Key],
        adds: bool,
        row_flop: int,
        row_bytes: int,
        tile_bytes: int = 0,
    ) -> None:
        """An op that computes the gradient of a matrix, block by block, or adds to it."""
        reads = list(reads)
        tiles = []
        for i, rows in enumerate(self.blocks.of(weight)):
            own: list[Key] = [("d" + weight, layer, i)] if self.keeps_gradients else []
            count, to = rows[1] - rows[0], rows[0] if self.keeps_gradients else 0
            tiles.append(Tile(
                (Work((*rows, to), row_flop * count, row_bytes * count + tile_bytes),),
                self.summing(reads, own, adds),
                f"{weight} b{i}",
            ))  # fmt: skip
        self.program.add(name, "backward", entry, operands, tiles, layer, filler=True)

    @property
    def adds(self) -> bool:
        """Whether gradients are added to those of the micro-batches before."""
        return self.program.micro > 0

    def summing(self, reads: Iterable[Key], into: Iterable[Key], adds: bool) -> tuple[Access, ...]:
        """Of a task that sets what it sums up, or adds to what is there."""
        return self.program.accesses(reads=reads, writes=() if adds else into, updates=into if adds else ())

    def gradients(self, weight: str, bias: str, layer: int | None) -> tuple[Operand, Operand]:
        """Where the gradients of a matrix and its bias go: to their own places, or to the thread's, which are read by
        the same task.
        """
        if self.keeps_gradients:
            return Tensor("d" + weight, layer), Tensor("d" + bias, layer) if bias else ABSENT
        rows, columns = self.blocks.largest(weight)
        return Own("gradient", 0, (rows, columns)), Own("gradient", rows * columns, (rows,)) if bias else ABSENT

    # --- layers

    def linear(self, name: str, layer: int | None, out: Key, inp: Key, y: Tensor, x: Tensor) -> None:
        weight, bias = LINEAR[name]
        rows, columns = self.shape[weight][-2:]
        self.per_slice(
            name, "forward", matmul.matmul_forward_entry,
            [y, x, Tensor(weight, layer), Tensor(bias, layer) if bias else ABSENT,
             Product(0, 1, self.most_rows, rows, columns)], layer,
            reads=[inp], writes=[out], shared=self.blocks.regions(weight, layer),
            row_flop=2 * rows * columns, row_bytes=F32 * (rows + columns), tile_bytes=F32 * rows * columns,
        )  # fmt: skip

    def linear_dinp(self, name: str, layer: int | None, dinp: Key, dout: Key, dx: Tensor, dy: Tensor) -> None:
        weight, _ = LINEAR[name]
        rows, columns = self.shape[weight][-2:]
        self.per_slice(
            f"{name}_dinp", "backward", matmul.matmul_backward_input_entry,
            [dx, dy, Tensor(weight, layer), Product(0, 0, self.most_rows, columns, rows)], layer,
            reads=[dout], writes=[dinp], shared=self.blocks.regions(weight, layer),
            row_flop=2 * rows * columns, row_bytes=F32 * (rows + columns), tile_bytes=F32 * rows * columns,
        )  # fmt: skip

    def linear_dweight(self, name: str, layer: int | None, dout: Key, inp: Key, dy: Tensor, x: Tensor) -> None:
        weight, bias = LINEAR[name]
        columns, rows = self.shape[weight][-1], self.config.batch * self.config.seq
        self.per_block(
            f"{name}_dweight", matmul.matmul_backward_weight_entry,
            [*self.gradients(weight, bias, layer), dy, x, Product(1, 0, self.blocks.largest(weight)[0], columns, rows),
             int(self.adds)],
            layer, weight, reads=[(*key, s.index) for key in (dout, inp) for s in self.slices], adds=self.adds,
            row_flop=2 * rows * columns, row_bytes=F32 * (rows + columns), tile_bytes=F32 * rows * columns,
        )  # fmt: skip

    def layernorm(self, index: int, layer: int | None, name: str) -> None:
        C = self.model.channels
        self.per_slice(
            "layernorm", "forward", layernorm.layernorm_forward_entry,
            [
                Tensor("normed", index), Tensor("mean", index), Tensor("rstd", index), Tensor("residual", index),
                Tensor(name + "w", layer), Tensor(name + "b", layer),
            ],
            layer, reads=[("residual", index)], writes=[("normed", index)], shared=[(name, layer)],
            row_flop=8 * C, row_bytes=2 * F32 * C,
        )  # fmt: skip

    def layernorm_backward(self, index: int, layer: int | None, name: str, past: int | None) -> None:
        """From dnormed to dresidual[index]; `past` is the residual gradient that goes around, if there is one."""
        C = self.model.channels
        reads: list[Key] = [("dnormed",), ("residual", index), ("normed", index)]
        if past is not None:
            reads.append(("dresidual", self.ring_of(past)))
        self.per_slice(
            "layernorm", "backward", layernorm.layernorm_backward_entry,
            [
                self.dresidual(index), Tensor("partial"), ABSENT if past is None else self.dresidual(past),
                Tensor("dnormed"), Tensor("residual", index), Tensor(name + "w", layer), Tensor("mean", index),
                Tensor("rstd", index),
            ],
            layer, reads=reads, writes=[("dresidual", self.ring_of(index)), ("partial", index)], shared=[(name, layer)],
            row_flop=17 * C, row_bytes=4 * F32 * C, slot0=index * len(self.slices),
        )  # fmt: skip

    def layernorms(self) -> list[tuple[int, str, int | None]]:
        """(index, name, layer) of every LayerNorm."""
        L = self.model.layers
        return [(2 * layer + i, f"ln{i + 1}", layer) for layer in range(L) for i in (0, 1)] + [(2 * L, "lnf", None)]

    def layernorm_dweight(self) -> None:
        """The gradients of all LayerNorms' parameters, a tile each."""
        C, slots = self.model.channels, len(self.slices)
        tiles = []
        for index, name, layer in self.layernorms():
            at = [self.blocks.span(name + kind, layer, (0, C))[0] for kind in "wb"] if self.keeps_gradients else [0, C]
            own: list[Key] = [("d" + name, layer)] if self.keeps_gradients else []
            tiles.append(Tile(
                (Work((*at, C, index * slots, (index + 1) * slots), 2 * C * slots, 2 * F32 * C * slots),),
                self.summing([("partial", index, s.index) for s in self.slices], own, self.adds),
                name if layer is None else f"{name}[{layer}]",
            ))  # fmt: skip
        where: Operand = Arena("gradients") if self.keeps_gradients else Own("gradient")
        entry = layernorm.layernorm_backward_weight_entry
        operands = [where, Tensor("partial"), int(self.adds)]
        self.program.add("layernorm_dweight", "backward", entry, operands, tiles, filler=True)

    def ring_of(self, index: int) -> int:
        return index % (2 * self.ring + 1)

    def dresidual(self, index: int) -> Tensor:
        return Tensor("dresidual", self.ring_of(index))

    def residual(self, layer: int, index: int) -> None:
        C = self.model.channels
        self.per_slice(
            "residual", "forward", residual.residual_forward_entry,
            [Tensor("residual", index), Tensor("residual", index - 1), Tensor("branch")], layer,
            reads=[("residual", index - 1), ("branch",)], writes=[("residual", index)],
            row_flop=C, row_bytes=3 * F32 * C,
        )  # fmt: skip

    def gelu(self, layer: int, r: int) -> None:
        M = 4 * self.model.channels
        self.per_slice(
            "gelu", "forward", gelu.gelu_forward_entry, [Tensor("activated", r), Tensor("hidden", layer)], layer,
            reads=[("hidden", layer)], writes=[("activated", r)], row_flop=18 * M, row_bytes=2 * F32 * M,
        )  # fmt: skip

    def gelu_backward(self, layer: int, r: int) -> None:
        """Gives the GELU's output again, which the gradient of the next weight needs."""
        M = 4 * self.model.channels
        self.per_slice(
            "gelu", "backward", gelu.gelu_backward_entry,
            [Tensor("dhidden", r), Tensor("activated", r), Tensor("hidden", layer)], layer,
            reads=[("hidden", layer)], writes=[("activated", r)], updates=[("dhidden", r)],
            row_flop=27 * M, row_bytes=4 * F32 * M,
        )  # fmt: skip

    def attention_tile(self, s: Slice, accesses: tuple[Access, ...], flop: int, row_bytes: int) -> Tile:
        work = Work((s.first, s.last, s.time0, s.time1), flop, row_bytes * s.rows)
        return Tile((work,), accesses, f"s{s.index}")

    def attention(self, layer: int) -> None:
        C, T, TS, NH = self.model.channels, self.config.seq, self.token_slice, self.model.heads
        self.program.add(
            "attention", "forward", attention.attention_forward_entry,
            [
                Tensor("attended", layer), Tensor("lse", layer), Tensor("qkv", layer), Own("strips"), T, TS,
                self.scores,
            ],
            layer=layer,
            tiles=[
                self.attention_tile(
                    s,
                    self.program.accesses(
                        reads=[("qkv", layer, k) for k in s.peers if k <= s.index],
                        writes=[("attended", layer, s.index)],
                    ),
                    (s.last - s.first) * 4 * C * pairs_before(s.time0, s.time1),
                    F32 * (4 * C + NH),
                )
                for s in self.slices
            ],
        )  # fmt: skip

    def attention_backward(self, layer: int, r: int) -> None:
        C, T, TS, NH = self.model.channels, self.config.seq, self.token_slice, self.model.heads
        later: list[Key] = [("attended", layer), ("dattended", r)]
        self.program.add(
            "attention", "backward", attention.attention_backward_entry,
            [
                Tensor("dqkv", r), Tensor("dattended", r), Tensor("qkv", layer), Tensor("attended", layer),
                Tensor("lse", layer), Own("strips"), T, TS, self.scores,
            ],
            layer=layer,
            tiles=[
                self.attention_tile(
                    s,
                    self.program.accesses(
                        reads=[
                            *(("qkv", layer, k) for k in s.peers),
                            *((*key, k) for key in later for k in s.peers if k >= s.index),
                        ],
                        writes=[("dqkv", r, s.index)],
                    ),
                    (s.last - s.first) * C * pair_flop_backward(s.time0, s.time1, T),
                    F32 * (8 * C + NH),
                )
                for s in reversed(self.slices)
            ],
        )  # fmt: skip

    def tokens(self) -> None:
        self.per_slice(
            "tokens", "data", tokens.tokens_load_entry,
            [
                Tensor("inputs"), Tensor("targets"), Tensor("stream"), Tensor("row_batch"), Tensor("row_time"),
                self.config.seq, self.config.grad_accum, self.program.micro,
            ],
            None, writes=[("inputs",), ("targets",)], row_bytes=10,
        )  # fmt: skip

    def encoder(self) -> None:
        C = self.model.channels
        self.per_slice(
            "encoder", "forward", encoder.encoder_forward_entry,
            [Tensor("residual", 0), Tensor("inputs"), Tensor("row_time"), Tensor("wte"), Tensor("wpe")], None,
            reads=[("inputs",)], writes=[("residual", 0)],
            shared=[*self.blocks.regions("wte", None), *self.blocks.regions("wpe", None)],
            row_flop=C, row_bytes=3 * F32 * C,
        )  # fmt: skip

    def encoder_backward_wte(self) -> None:
        """Adds to the gradient that the logits gave."""
        share = self.model.channels * self.config.batch * self.config.seq // self.model.padded_vocab
        reads = [key for s in self.slices for key in (("dresidual", self.ring_of(0), s.index), ("inputs", s.index))]
        self.per_block(
            "encoder", encoder.encoder_backward_wte_entry,
            [self.gradients("wte", "", None)[0], self.dresidual(0), Tensor("inputs")], None, "wte",
            reads=reads, adds=True, row_flop=share, row_bytes=3 * F32 * share,
        )  # fmt: skip

    def encoder_backward_wpe(self) -> None:
        share = self.model.channels * self.config.batch * self.config.seq // self.model.context
        self.per_block(
            "encoder", encoder.encoder_backward_wpe_entry,
            [self.gradients("wpe", "", None)[0], self.dresidual(0), Tensor("row_time"), int(self.adds)], None, "wpe",
            reads=[("dresidual", self.ring_of(0), s.index) for s in self.slices], adds=self.adds,
            row_flop=share, row_bytes=3 * F32 * share,
        )  # fmt: skip

    def loss(self) -> None:
        V, Vp, micros = self.model.vocab, self.model.padded_vocab, self.config.grad_accum
        self.per_slice(
            "cross_entropy", "loss", cross_entropy.cross_entropy_entry,
            [Tensor("logits"), Tensor("loss"), Tensor("targets"), V, micros], None,
            reads=[("targets",)], writes=[("loss",)], updates=[("logits",)], row_flop=12 * V, row_bytes=2 * F32 * Vp,
        )  # fmt: skip
        rows = self.config.batch * self.config.seq
        self.program.add(
            "mean_loss", "loss", cross_entropy.mean_loss_entry,
            [Tensor("losses"), Tensor("control"), Tensor("loss"), self.program.micro, micros],
            [Tile(
                (Work((0,), rows, F32 * rows),),
                self.summing([("loss", s.index) for s in self.slices], [("losses",)], self.adds),
                "",
            )],
        )  # fmt: skip


def pairs_before(time0: int, time1: int) -> int:
    """(query, key) pairs of one sequence with time0 <= query < time1 and key <= query."""
    return (time1 * (time1 + 1) - time0 * (time0 + 1)) // 2


def pair_flop_backward(time0: int, time1: int, T: int) -> int:
    """Flop a channel of attention's backward pass over one slice of a sequence of T tokens.

    A pair of a query and a key takes five products. If both are in this slice, all five are made here; if only the
    query is, p, dp and dq; if only the key is, p and dp again, dk and dv.
    """
    own = time1 - time0
    return 10 * (pairs_before(time0, time1) - own * time0) + 6 * own * time0 + 8 * own * (T - time1)
