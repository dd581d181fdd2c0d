"""GPT-2's step that reads one token, with the keys and values of earlier positions kept."""

from __future__ import annotations

from gpt2core.layers import cached_attention, columns, embedding, gelu, residual
from gpt2core.networks import generation
from gpt2core.networks.gpt2.program import Forward
from gpt2core.step.ops import Own, Tensor


class Generation(Forward):
    """Adds the step. Matrix products have a tile for each block of a weight, attention one for each head."""

    def add(self) -> None:
        generation.load(self.step)
        with self.step.fused():
            embedding.forward(
                self.step, self.grid, out=Tensor("residual", 0), tokens=generation.INPUT,
                positions=generation.POSITION, wte=Tensor("wte"), wpe=Tensor("wpe"),
            )  # fmt: skip
            self.layernorm(0)
        for layer in range(self.layers):
            self.attention(layer)
            self.feed_forward(layer)
        generation.head(self.step, self.config, inp=Tensor("normed", 2 * self.layers), weight=Tensor("wte"))

    def attention(self, layer: int) -> None:
        qkv, attended = Tensor("qkv", layer), Tensor("attended", layer)
        self.linear("qkv", layer, qkv, Tensor("normed", 2 * layer), "qkv")
        cached_attention.forward(
            self.step, layer, out=attended, keys=Tensor("keys", layer), values=Tensor("values", layer), qkv=qkv,
            scores=Own("scores"), mean_seen=(self.config.warmup_steps + 1 + self.config.steps) / 2,
        )  # fmt: skip
        self.branch("projection", layer, 2 * layer, attended, "attproj")

    def feed_forward(self, layer: int) -> None:
        expanded, activated = Tensor("expanded", layer), Tensor("activated", layer)
        self.linear("fc", layer, expanded, Tensor("normed", 2 * layer + 1), "fc")
        gelu.forward(self.step, self.grid, layer, out=activated, kept=Tensor("hidden", layer), inp=expanded)
        self.branch("fc_projection", layer, 2 * layer + 1, activated, "fcproj")

    def branch(self, name: str, layer: int, index: int, inp: Tensor, weight: str) -> None:
        total = Tensor("residual", index + 1)
        self.linear(name, layer, total, inp, weight)
        with self.step.fused():
            residual.forward(self.step, self.grid, layer, out=total, inp=Tensor("residual", index))
            self.layernorm(index + 1)

    def linear(self, name: str, layer: int, out: Tensor, inp: Tensor, weight: str) -> None:
        columns.apply(
            self.step, name, layer, out=out, inp=inp, weight=Tensor(weight + "w", layer),
            bias=Tensor(weight + "b", layer),
        )  # fmt: skip
