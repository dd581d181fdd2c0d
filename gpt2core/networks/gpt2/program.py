"""The step program of GPT-2: the ONE description of a training step that every scheduler runs.

Ops follow each other as in a plain loop nest; what may overlap is not said here but follows from the accesses.
"""

from __future__ import annotations

from gpt2core.networks.gpt2.layers import LINEAR
from gpt2core.networks.gpt2.optimizer import Optimizer
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step import slicing
from gpt2core.step.ops import Program, Tensor

MAX_SLICES = 512  # 124M then has 75,000 tasks


class Gpt2(Optimizer):
    """Builds the program for one configuration.

    `fusion` makes one op, and so one task a slice, of neighbours: with "rows" a linear layer and what follows it row by
    row; with "all" also a weight's gradient and its update, which then needs no place of its own.
    """

    def build(self) -> Program:
        for micro in range(self.config.grad_accum):
            self.program.micro = micro
            self.micro_batch()
        if self.keeps_gradients:
            self.update()
        return self.program

    def micro_batch(self) -> None:
        """From tokens to gradients; with fusion "all" also to new weights."""
        L, final = self.model.layers, 2 * self.model.layers
        self.tokens()
        self.encoder()
        self.layernorm(0, 0, "ln1")
        self.fuse(2)
        for layer in range(L):
            self.block_forward(layer)
        self.linear("logits", None, ("logits",), ("normed", final), Tensor("logits"), Tensor("normed", final))
        self.loss()
        self.linear_dinp("logits", None, ("dnormed",), ("logits",), Tensor("dnormed"), Tensor("logits"))
        self.layernorm_backward(final, None, "lnf", past=None)
        self.fuse(2)
        if self.keeps_gradients:  # else at the end: the encoder's gradient is added before the update
            self.logits_dweight()
        for layer in reversed(range(L)):
            self.block_backward(layer)
        self.embeddings_backward()
        self.layernorms_backward()

    def fuse(self, count: int) -> None:
        """One op of the last `count`, unless every kernel is to be an op of its own."""
        if self.config.fused != "none":
            self.program.fuse(count)

    def block_forward(self, layer: int) -> None:
        ln1, ln2, r = 2 * layer, 2 * layer + 1, layer % self.ring
        self.linear("qkv", layer, ("qkv", layer), ("normed", ln1), Tensor("qkv", layer), Tensor("normed", ln1))
        self.attention(layer)
        self.linear("projection", layer, ("branch",), ("attended", layer), Tensor("branch"), Tensor("attended", layer))
        self.residual(layer, ln2)
        self.layernorm(ln2, layer, "ln2")
        self.fuse(3)
        self.linear("fc", layer, ("hidden", layer), ("normed", ln2), Tensor("hidden", layer), Tensor("normed", ln2))
        self.gelu(layer, r)
        self.fuse(2)
        self.linear("fc_projection", layer, ("branch",), ("activated", r), Tensor("branch"), Tensor("activated", r))
        self.residual(layer, ln2 + 1)
        following = layer + 1 < self.model.layers
        self.layernorm(ln2 + 1, *((layer + 1, "ln1") if following else (None, "lnf")))
        self.fuse(3)

    def block_backward(self, layer: int) -> None:
        ln1, ln2, r = 2 * layer, 2 * layer + 1, layer % self.ring
        after, middle = ("dresidual", self.ring_of(ln2 + 1)), ("dresidual", self.ring_of(ln2))
        self.linear_dinp("fc_projection", layer, ("dhidden", r), after, Tensor("dhidden", r), self.dresidual(ln2 + 1))
        self.gelu_backward(layer, r)
        self.fuse(2)
        self.linear_dweight(
            "fc_projection", layer, after, ("activated", r), self.dresidual(ln2 + 1), Tensor("activated", r)
        )
        self.update_matrix("fc_projection", layer)
        self.linear_dinp("fc", layer, ("dnormed",), ("dhidden", r), Tensor("dnormed"), Tensor("dhidden", r))
        self.layernorm_backward(ln2, layer, "ln2", past=ln2 + 1)
        self.fuse(2)
        self.linear_dweight("fc", layer, ("dhidden", r), ("normed", ln2), Tensor("dhidden", r), Tensor("normed", ln2))
        self.update_matrix("fc", layer)
        self.linear_dinp("projection", layer, ("dattended", r), middle, Tensor("dattended", r), self.dresidual(ln2))
        self.linear_dweight(
            "projection", layer, middle, ("attended", layer), self.dresidual(ln2), Tensor("attended", layer)
        )
        self.update_matrix("projection", layer)
        self.attention_backward(layer, r)
        self.linear_dinp("qkv", layer, ("dnormed",), ("dqkv", r), Tensor("dnormed"), Tensor("dqkv", r))
        self.layernorm_backward(ln1, layer, "ln1", past=ln2)
        self.fuse(2)
        self.linear_dweight("qkv", layer, ("dqkv", r), ("normed", ln1), Tensor("dqkv", r), Tensor("normed", ln1))
        self.update_matrix("qkv", layer)

    def logits_dweight(self) -> None:
        final = 2 * self.model.layers
        self.linear_dweight(
            "logits", None, ("logits",), ("normed", final), Tensor("logits"), Tensor("normed", final)
        )  # fmt: skip

    def embeddings_backward(self) -> None:
        if not self.keeps_gradients:
            self.logits_dweight()
        self.encoder_backward_wte()
        if not self.keeps_gradients:
            self.adamw(self.matrix("wte", "", None))
            self.program.fuse(3)
        self.encoder_backward_wpe()
        if not self.keeps_gradients:
            self.adamw(self.matrix("wpe", "", None))
            self.program.fuse(2)

    def update_matrix(self, name: str, layer: int) -> None:
        """With fusion "all" a matrix is updated by the task that has its gradient."""
        if not self.keeps_gradients:
            self.adamw(self.matrix(*LINEAR[name], layer), layer)
            self.program.fuse(2)

    def layernorms_backward(self) -> None:
        self.layernorm_dweight()
        if not self.keeps_gradients:
            self.adamw(self.all_layernorms())
            self.program.fuse(2)

    def update(self) -> None:
        """AdamW over every block of every weight, as one op, with gradients within their limit."""
        parts = [*self.matrix("wpe", "", None), *self.matrix("wte", "", None), *self.all_layernorms()]
        for layer in range(self.model.layers):
            for name in ("qkv", "projection", "fc", "fc_projection"):
                parts += self.matrix(*LINEAR[name], layer)
        if self.config.grad_clip:
            self.clip(parts)
        self.adamw(parts)


def build(config: TrainConfig) -> Program:
    """The step program for a configuration; its slices are resolved first.

    Raises ConfigError if the slices are so small that the graph would be too large to build and prove.
    """
    slices = slicing.count(config)
    if slices > MAX_SLICES:
        accepted = f"a size that cuts the batch into at most {MAX_SLICES} slices, not {slices}"
        raise ConfigError("token_slice", slicing.sizes(config)[1], accepted)
    if config.grad_accum * slices > MAX_SLICES:
        raise ConfigError(
            "grad_accum", config.grad_accum, f"at most {MAX_SLICES // slices} micro-batches of {slices} slices"
        )
    return Gpt2(config).build()
