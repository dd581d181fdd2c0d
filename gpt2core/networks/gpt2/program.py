"""GPT-2's forward pass: the one description of a training step that every scheduler runs. The reverse pass follows.

Ops follow each other as in a plain loop nest; what may overlap follows from the accesses.
"""

from __future__ import annotations

from gpt2core.layers import attention, embedding, gelu, layernorm, linear, residual, rounding
from gpt2core.networks import language
from gpt2core.networks.gpt2.tensors import model_of
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Own, Tensor


class Forward:
    """Adds a micro-batch of one configuration, from its tokens to its loss.

    The residual stream is counted as the LayerNorms are: 2 for each layer and one at the end. Stream and branch are
    summed in the branch's place. With bfloat16, what attention gives (`heads`) and what fc gives (`expanded`) are
    rounded to `attended` and `hidden`. Ranks may divide the matrices: each has some heads, some columns between fc and
    fc_projection, and some tokens of the vocabulary (docs/decisions/0039).
    """

    def __init__(self, step: Builder, config: TrainConfig) -> None:
        self.step, self.config, self.layers = step, config, model_of(config).layers
        self.slices = slicing.cut(config)
        self.grid = slicing.grid(self.slices)
        self.divided = config.matrix_ranks > 1

    def add(self) -> None:
        language.load(self.step, self.config, self.grid)
        with self.step.fused():
            embedding.forward(
                self.step, self.grid, out=Tensor("residual", 0), tokens=Tensor("inputs"),
                positions=Tensor("row_time"), wte=Tensor("wte"), wpe=Tensor("wpe"), divided=self.divided,
            )  # fmt: skip
            self.layernorm(0)
        for layer in range(self.layers):
            self.attention(layer)
            self.feed_forward(layer)
        inp = Tensor("normed", 2 * self.layers)
        language.head(self.step, self.config, self.slices, inp=inp, weight=Tensor("wte"), divided=self.divided)

    def attention(self, layer: int) -> None:
        index, qkv, attended = 2 * layer, Tensor("qkv", layer), Tensor("attended", layer)
        heads = Tensor("heads", layer) if self.step.is_half(attended) else attended
        self.linear("qkv", layer, qkv, Tensor("normed", index), "qkv")
        with self.step.fused():
            attention.forward(
                self.step, self.grid, self.slices, layer, out=heads, lse=Tensor("lse", layer), qkv=qkv,
                strips=Own("strips"), T=self.config.seq, TS=slicing.sizes(self.config)[1],
            )  # fmt: skip
            if heads != attended:
                rounding.forward(self.step, "attention_rounding", self.grid, layer, out=attended, inp=heads)
        self.branch("projection", layer, index, attended, "attproj")

    def feed_forward(self, layer: int) -> None:
        index, expanded, activated = 2 * layer + 1, Tensor("expanded", layer), Tensor("activated", layer)
        with self.step.fused():
            self.linear("fc", layer, expanded, Tensor("normed", index), "fc")
            gelu.forward(self.step, self.grid, layer, out=activated, kept=Tensor("hidden", layer), inp=expanded)
        self.branch("fc_projection", layer, index, activated, "fcproj")

    def branch(self, name: str, layer: int, index: int, inp: Tensor, weight: str) -> None:
        """The end of a branch, its sum with the residual stream, and the LayerNorm of the sum."""
        stream, total = Tensor("residual", index), Tensor("residual", index + 1)
        with self.step.fused():
            self.linear(name, layer, total, inp, weight)
            residual.forward(self.step, self.grid, layer, out=total, inp=stream)
            self.layernorm(index + 1)

    def linear(self, name: str, layer: int, out: Tensor, inp: Tensor, weight: str) -> None:
        divided: linear.Divided = "inputs" if name in ("projection", "fc_projection") else "outputs"
        linear.forward(
            self.step, name, self.grid, layer,
            out=out, inp=inp, weight=Tensor(weight + "w", layer), bias=Tensor(weight + "b", layer),
            packs=not self.config.has_gradients, divided=divided if self.divided else None,
        )  # fmt: skip

    def layernorm(self, index: int) -> None:
        """LayerNorm `index`, counted 0 to 2L."""
        layer, second = divmod(index, 2)
        name, at = (f"ln{second + 1}", layer) if layer < self.layers else ("lnf", None)
        layernorm.forward(
            self.step, self.grid, at, out=Tensor("normed", index), mean=Tensor("mean", index),
            rstd=Tensor("rstd", index), inp=Tensor("residual", index), weight=Tensor(name + "w", at),
            bias=Tensor(name + "b", at), partial=Tensor("partial"),
        )  # fmt: skip
