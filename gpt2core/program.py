"""The step program of GPT-2: the ONE description of a training step that every scheduler runs.

Ops follow each other as in a plain loop nest; what may overlap is not said here but follows from the accesses. Regions
are (tensor, layer, slice) for activations and (tensor, layer, block) for weights and their gradients, a block being
some output rows of a matrix with their biases.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from gpt2core import slicing, tensors
from gpt2core.blocks import Block, WeightBlocks
from gpt2core.config import TrainConfig
from gpt2core.errors import ConfigError
from gpt2core.kernels import adamw, attention, cross_entropy, encoder, gelu, layernorm, matmul, residual, tokens
from gpt2core.machine.jit import Entry
from gpt2core.ops import ABSENT, Access, Arena, Operand, Program, Tensor, Tile
from gpt2core.slicing import Slice

BLOCK_ELEMENTS = 384 * 768  # of a weight matrix in one tile: its gradient and moments fit in a core's caches
MAX_SLICES = 512  # 124M then has 75,000 tasks
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


class Gpt2:
    """Builds the program for one configuration."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = slicing.resolve(config)
        self.model = self.config.model
        self.slices = slicing.cut(self.config)
        self.token_slice = slicing.sizes(self.config)[1]
        self.program = Program()
        self.ring = tensors.ring_layers(self.model)
        self.blocks = WeightBlocks(self.config)
        self.shape = self.blocks.shape

    def build(self) -> Program:
        L = self.model.layers
        self.data()
        for layer in range(L):
            self.block_forward(layer)
        self.layernorm("layernorm", 2 * L, None, Tensor("lnfw"), Tensor("lnfb"), ("lnf",))
        self.linear("logits", None, ("logits",), ("normed", 2 * L), Tensor("logits"), Tensor("normed", 2 * L))
        self.loss()
        self.linear_dinp("logits", None, ("dnormed",), ("logits",), Tensor("dnormed"), Tensor("logits"))
        self.linear_dweight("logits", None, ("logits",), ("normed", 2 * L), Tensor("logits"), Tensor("normed", 2 * L))
        self.layernorm_backward(2 * L, None, None, Tensor("lnfw"), ("lnf",))
        for layer in reversed(range(L)):
            self.block_backward(layer)
        self.encoder_backward()
        self.layernorm_dweight()
        self.update()
        return self.program

    # --- the pieces of a program

    def weight(self, name: str, layer: int | None) -> Tensor:
        return Tensor(name, layer) if name else ABSENT

    def gradient(self, name: str, layer: int | None) -> Tensor:
        return Tensor("d" + name, layer) if name else ABSENT

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
        slot: bool = False,
    ) -> None:
        """An op with a tile for each slice's rows: `reads` and so on are regions less the slice, `shared` are whole."""
        reads, writes, updates, shared = list(reads), list(writes), list(updates), list(shared)
        self.program.add(name, phase, entry, operands, layer=layer, tiles=[
            Tile(
                (s.row0, s.row1, s.index) if slot else (s.row0, s.row1),
                self.program.accesses(
                    reads=[*((*key, s.index) for key in reads), *shared],
                    writes=[(*key, s.index) for key in writes],
                    updates=[(*key, s.index) for key in updates],
                ),
                row_flop * s.rows,
                row_bytes * s.rows + tile_bytes,
                f"s{s.index}",
            )
            for s in self.slices
        ])  # fmt: skip

    def linear(self, name: str, layer: int | None, out: Key, inp: Key, y: Tensor, x: Tensor) -> None:
        weight, bias = LINEAR[name]
        rows, columns = self.shape[weight][-2:]
        self.per_slice(
            name, "forward", matmul.matmul_forward_entry,
            [y, x, Tensor(weight, layer), self.weight(bias, layer)], layer,
            reads=[inp], writes=[out], shared=self.blocks.regions(weight, layer),
            row_flop=2 * rows * columns, row_bytes=F32 * (rows + columns), tile_bytes=F32 * rows * columns,
        )  # fmt: skip

    def linear_dinp(self, name: str, layer: int | None, dinp: Key, dout: Key, dx: Tensor, dy: Tensor) -> None:
        weight, _ = LINEAR[name]
        rows, columns = self.shape[weight][-2:]
        self.per_slice(
            f"{name}_dinp", "backward", matmul.matmul_backward_input_entry,
            [dx, dy, Tensor(weight, layer)], layer,
            reads=[dout], writes=[dinp], shared=self.blocks.regions(weight, layer),
            row_flop=2 * rows * columns, row_bytes=F32 * (rows + columns), tile_bytes=F32 * rows * columns,
        )  # fmt: skip

    def linear_dweight(self, name: str, layer: int | None, dout: Key, inp: Key, dy: Tensor, x: Tensor) -> None:
        weight, bias = LINEAR[name]
        columns, rows = self.shape[weight][-1], self.config.batch * self.config.seq
        reads = [(*key, s.index) for key in (dout, inp) for s in self.slices]
        self.program.add(
            f"{name}_dweight", "backward", matmul.matmul_backward_weight_entry,
            [self.gradient(weight, layer), self.gradient(bias, layer), dy, x], layer=layer,
            tiles=[
                Tile(
                    block,
                    self.program.accesses(reads=reads, writes=[("d" + weight, layer, i)]),
                    2 * rows * columns * (block[1] - block[0]),
                    F32 * (rows * columns + (rows + columns) * (block[1] - block[0])),
                    f"b{i}",
                )
                for i, block in enumerate(self.blocks.of(weight))
            ],
        )  # fmt: skip

    def layernorm(self, name: str, index: int, layer: int | None, weight: Tensor, bias: Tensor, param: Key) -> None:
        C = self.model.channels
        self.per_slice(
            name, "forward", layernorm.layernorm_forward_entry,
            [
                Tensor("normed", index), Tensor("mean", index), Tensor("rstd", index), Tensor("residual", index),
                weight, bias,
            ],
            layer, reads=[("residual", index)], writes=[("normed", index)], shared=[param],
            row_flop=8 * C, row_bytes=2 * F32 * C,
        )  # fmt: skip

    def layernorm_backward(self, index: int, layer: int | None, past: int | None, weight: Tensor, param: Key) -> None:
        """From dnormed to dresidual[index]; `past` is the residual gradient that goes around, if there is one."""
        C = self.model.channels
        reads: list[Key] = [("dnormed",), ("residual", index), ("normed", index)]
        if past is not None:
            reads.append(("dresidual", self.ring_of(past)))
        self.per_slice(
            "layernorm", "backward", layernorm.layernorm_backward_entry,
            [
                self.dresidual(index), Tensor("partial", index), ABSENT if past is None else self.dresidual(past),
                Tensor("dnormed"), Tensor("residual", index), weight, Tensor("mean", index), Tensor("rstd", index),
            ],
            layer, reads=reads, writes=[("dresidual", self.ring_of(index)), ("partial", index)], shared=[param],
            row_flop=17 * C, row_bytes=4 * F32 * C, slot=True,
        )  # fmt: skip

    def ring_of(self, index: int) -> int:
        return index % (2 * self.ring + 1)

    def dresidual(self, index: int) -> Tensor:
        return Tensor("dresidual", self.ring_of(index))

    # --- the step, phase by phase

    def data(self) -> None:
        C = self.model.channels
        self.per_slice(
            "tokens", "data", tokens.tokens_load_entry,
            [
                Tensor("inputs"), Tensor("targets"), Tensor("stream"), Tensor("row_batch"), Tensor("row_time"),
                self.config.seq,
            ],
            None, writes=[("inputs",), ("targets",)], row_bytes=10,
        )  # fmt: skip
        self.per_slice(
            "encoder", "forward", encoder.encoder_forward_entry,
            [Tensor("residual", 0), Tensor("inputs"), Tensor("row_time"), Tensor("wte"), Tensor("wpe")], None,
            reads=[("inputs",)], writes=[("residual", 0)],
            shared=[*self.blocks.regions("wte", None), *self.blocks.regions("wpe", None)],
            row_flop=C, row_bytes=3 * F32 * C,
        )  # fmt: skip

    def block_forward(self, layer: int) -> None:
        ln1, ln2, C = 2 * layer, 2 * layer + 1, self.model.channels
        self.layernorm("layernorm", ln1, layer, Tensor("ln1w", layer), Tensor("ln1b", layer), ("ln1", layer))
        self.linear("qkv", layer, ("qkv", layer), ("normed", ln1), Tensor("qkv", layer), Tensor("normed", ln1))
        self.attention(layer)
        self.linear("projection", layer, ("branch",), ("attended", layer), Tensor("branch"), Tensor("attended", layer))
        self.residual(layer, ln2)
        self.layernorm("layernorm", ln2, layer, Tensor("ln2w", layer), Tensor("ln2b", layer), ("ln2", layer))
        self.linear("fc", layer, ("hidden", layer), ("normed", ln2), Tensor("hidden", layer), Tensor("normed", ln2))
        self.per_slice(
            "gelu", "forward", gelu.gelu_forward_entry, [Tensor("activated", layer), Tensor("hidden", layer)], layer,
            reads=[("hidden", layer)], writes=[("activated", layer)], row_flop=18 * 4 * C, row_bytes=2 * F32 * 4 * C,
        )  # fmt: skip
        self.linear(
            "fc_projection", layer, ("branch",), ("activated", layer), Tensor("branch"), Tensor("activated", layer)
        )
        self.residual(layer, ln2 + 1)

    def residual(self, layer: int, index: int) -> None:
        C = self.model.channels
        self.per_slice(
            "residual", "forward", residual.residual_forward_entry,
            [Tensor("residual", index), Tensor("residual", index - 1), Tensor("branch")], layer,
            reads=[("residual", index - 1), ("branch",)], writes=[("residual", index)],
            row_flop=C, row_bytes=3 * F32 * C,
        )  # fmt: skip

    def attention_tile(self, s: Slice, accesses: tuple[Access, ...], flop: int, row_bytes: int) -> Tile:
        return Tile((s.first, s.last, s.time0, s.time1), accesses, flop, row_bytes * s.rows, f"s{s.index}")

    def attention(self, layer: int) -> None:
        C, T, TS, NH = self.model.channels, self.config.seq, self.token_slice, self.model.heads
        self.program.add(
            "attention", "forward", attention.attention_forward_entry,
            [Tensor("attended", layer), Tensor("lse", layer), Tensor("qkv", layer), T, TS, tensors.ATTENTION_BLOCK * T],
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

    def loss(self) -> None:
        V, Vp = self.model.vocab, self.model.padded_vocab
        self.per_slice(
            "cross_entropy", "loss", cross_entropy.cross_entropy_entry,
            [Tensor("logits"), Tensor("loss"), Tensor("targets"), V], None,
            reads=[("targets",)], writes=[("loss",)], updates=[("logits",)], row_flop=12 * V, row_bytes=2 * F32 * Vp,
        )  # fmt: skip
        rows = self.config.batch * self.config.seq
        self.program.add(
            "mean_loss", "loss", cross_entropy.mean_loss_entry, [Tensor("losses"), Tensor("control"), Tensor("loss")],
            [Tile((0,), self.program.accesses(
                reads=[("loss", s.index) for s in self.slices], writes=[("losses",)]), rows, F32 * rows, "")],
        )  # fmt: skip

    def block_backward(self, layer: int) -> None:
        ln1, ln2, C, r = 2 * layer, 2 * layer + 1, self.model.channels, layer % self.ring
        after, middle = ("dresidual", self.ring_of(ln2 + 1)), ("dresidual", self.ring_of(ln2))
        self.linear_dinp("fc_projection", layer, ("dhidden", r), after, Tensor("dhidden", r), self.dresidual(ln2 + 1))
        self.linear_dweight(
            "fc_projection", layer, after, ("activated", layer), self.dresidual(ln2 + 1), Tensor("activated", layer)
        )
        self.per_slice(
            "gelu", "backward", gelu.gelu_backward_entry, [Tensor("dhidden", r), Tensor("hidden", layer)], layer,
            reads=[("hidden", layer)], updates=[("dhidden", r)], row_flop=26 * 4 * C, row_bytes=3 * F32 * 4 * C,
        )  # fmt: skip
        self.linear_dinp("fc", layer, ("dnormed",), ("dhidden", r), Tensor("dnormed"), Tensor("dhidden", r))
        self.linear_dweight("fc", layer, ("dhidden", r), ("normed", ln2), Tensor("dhidden", r), Tensor("normed", ln2))
        self.layernorm_backward(ln2, layer, ln2 + 1, Tensor("ln2w", layer), ("ln2", layer))
        self.linear_dinp("projection", layer, ("dattended", r), middle, Tensor("dattended", r), self.dresidual(ln2))
        self.linear_dweight(
            "projection", layer, middle, ("attended", layer), self.dresidual(ln2), Tensor("attended", layer)
        )
        self.attention_backward(layer, r)
        self.linear_dinp("qkv", layer, ("dnormed",), ("dqkv", r), Tensor("dnormed"), Tensor("dqkv", r))
        self.linear_dweight("qkv", layer, ("dqkv", r), ("normed", ln1), Tensor("dqkv", r), Tensor("normed", ln1))
        self.layernorm_backward(ln1, layer, ln2, Tensor("ln1w", layer), ("ln1", layer))

    def attention_backward(self, layer: int, r: int) -> None:
        C, T, TS, NH = self.model.channels, self.config.seq, self.token_slice, self.model.heads
        later: list[Key] = [("attended", layer), ("dattended", r)]
        self.program.add(
            "attention", "backward", attention.attention_backward_entry,
            [
                Tensor("dqkv", r), Tensor("dattended", r), Tensor("qkv", layer), Tensor("attended", layer),
                Tensor("lse", layer), T, TS, tensors.ATTENTION_BLOCK * T,
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
                    (s.last - s.first) * C * (
                        10 * pairs_before(s.time0, s.time1) + 8 * (s.time1 - s.time0) * (T - s.time1)
                    ),
                    F32 * (8 * C + NH),
                )
                for s in reversed(self.slices)
            ],
        )  # fmt: skip

    def encoder_backward(self) -> None:
        C, rows = self.model.channels, self.config.batch * self.config.seq
        dresidual = [("dresidual", self.ring_of(0), s.index) for s in self.slices]
        tokens_read = [("inputs", s.index) for s in self.slices]
        wte, wpe = self.blocks.of("wte"), [b for b in self.blocks.of("wpe") if b[0] < self.config.seq]
        for name, entry, blocks, reads, updates in (
            ("wte", encoder.encoder_backward_wte_entry, wte, dresidual + tokens_read, True),
            ("wpe", encoder.encoder_backward_wpe_entry, wpe, dresidual, False),
        ):
            column = Tensor("inputs") if updates else Tensor("row_time")
            self.program.add(
                "encoder", "backward", entry, [Tensor("d" + name), self.dresidual(0), column],
                [
                    Tile(
                        block,
                        self.program.accesses(
                            reads=reads,
                            writes=[] if updates else [("d" + name, None, i)],
                            updates=[("d" + name, None, i)] if updates else [],
                        ),
                        rows * C // len(blocks),
                        3 * F32 * rows * C // len(blocks),
                        f"{name} b{i}",
                    )
                    for i, block in enumerate(blocks)
                ],
            )  # fmt: skip

    def layernorms(self) -> list[tuple[int, int | None, str]]:
        """(index, layer, name) of every LayerNorm."""
        kinds = [(2 * layer + i, layer, f"ln{i + 1}") for layer in range(self.model.layers) for i in (0, 1)]
        return [*kinds, (2 * self.model.layers, None, "lnf")]

    def layernorm_dweight(self) -> None:
        C, slots = self.model.channels, len(self.slices)
        for index, layer, name in reversed(self.layernorms()):
            self.program.add(
                "layernorm_dweight", "backward", layernorm.layernorm_backward_weight_entry,
                [self.gradient(name + "w", layer), self.gradient(name + "b", layer), Tensor("partial", index)],
                [Tile((0,), self.program.accesses(
                    reads=[("partial", index, s.index) for s in self.slices], writes=[("d" + name, layer)]
                ), 2 * C * slots, 2 * F32 * C * slots, name)],
                layer=layer,
            )  # fmt: skip

    def update(self) -> None:
        """AdamW over every block of every weight: a matrix's rows with their biases, a LayerNorm, some positions."""
        C = self.model.channels
        tiles: list[Tile] = []

        def tile(ranges: list[Block], weight: Key, gradient: Key, label: str) -> Tile:
            (a0, a1), (b0, b1) = [*ranges, (0, 0)][:2]
            size = (a1 - a0) + (b1 - b0)
            accesses = self.program.accesses(reads=[gradient] if gradient else [], updates=[weight])
            return Tile((a0, a1, b0, b1), accesses, 14 * size, 28 * size, label)

        def matrix(weight: str, bias: str, layer: int | None) -> None:
            for i, rows in enumerate(self.blocks.of(weight)):
                ranges = [self.blocks.span(name, layer, rows) for name in (weight, bias) if name]
                tiles.append(tile(ranges, (weight, layer, i), ("d" + weight, layer, i), f"{weight} b{i}"))

        def norm(layer: int | None, name: str) -> None:
            ranges = [self.blocks.span(name + kind, layer, (0, C)) for kind in "wb"]
            key = (name,) if layer is None else (name, layer)
            tiles.append(tile(ranges, key, ("d" + name, layer), name))

        for i, rows in enumerate(self.blocks.of("wpe")):
            gradient = ("dwpe", None, i) if rows[0] < self.config.seq else ()  # unused positions: it stays 0
            tiles.append(tile([self.blocks.span("wpe", None, rows)], ("wpe", None, i), gradient, f"wpe b{i}"))
        matrix("wte", "", None)
        for layer in range(self.model.layers):
            norm(layer, "ln1")
            norm(layer, "ln2")
            for name in ("qkv", "projection", "fc", "fc_projection"):
                matrix(*LINEAR[name], layer)
        norm(None, "lnf")
        arenas: list[Operand] = [Arena("weights"), Arena("gradients"), Tensor("first_moment"), Tensor("second_moment")]
        self.program.add("adamw", "update", adamw.adamw_update_entry, [*arenas, Tensor("settings")], tiles)


def pairs_before(time0: int, time1: int) -> int:
    """(query, key) pairs of one sequence with time0 <= query < time1 and key <= query."""
    return (time1 * (time1 + 1) - time0 * (time0 + 1)) // 2


def build(config: TrainConfig) -> Program:
    """The step program for a configuration; its slices are resolved first.

    Raises ConfigError if the slices are so small that the graph would be too large to build and prove.
    """
    slices = slicing.count(config)
    if slices > MAX_SLICES:
        accepted = f"a size that cuts the batch into at most {MAX_SLICES} slices, not {slices}"
        raise ConfigError("token_slice", slicing.sizes(config)[1], accepted)
    return Gpt2(config).build()
