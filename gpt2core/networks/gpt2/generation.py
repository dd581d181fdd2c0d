"""GPT-2's steps that generate: with the keys and values of earlier positions kept."""

from __future__ import annotations

from gpt2core.layers import cached_attention, columns, embedding, gelu, residual, rows
from gpt2core.networks import generation, language
from gpt2core.networks.gpt2.program import Forward
from gpt2core.step.ops import Own, Tensor

LAST = Tensor("last")


class Generation(Forward):
    """Adds the step that reads the whole prompt, or one that reads a token. Matrix products have a tile for each block
    of a weight, attention of a token one for each head; all else one for each slice of the prompt, or for the token.
    """

    def add(self) -> None:
        generation.load(self.step, self.config)
        with self.step.fused():
            embedding.forward(
                self.step, self.grid, out=Tensor("residual", 0), tokens=generation.INPUT,
                positions=generation.POSITION, wte=Tensor("wte"), wpe=Tensor("wpe"),
            )  # fmt: skip
            self.layernorm(0)
        for layer in range(self.layers):
            self.attention(layer)
            self.feed_forward(layer)
        inp = Tensor("normed", 2 * self.layers)
        if self.config.reads_prompt:
            last = language.last_rows(self.slices, self.config.seq, time_major=False)
            rows.forward(self.step, last, out=LAST, inp=inp)
            inp = LAST
        generation.head(self.step, self.config, inp=inp, weight=Tensor("wte"))

    def attention(self, layer: int) -> None:
        qkv, keys, values = Tensor("qkv", layer), Tensor("keys", layer), Tensor("values", layer)
        if self.config.reads_prompt:
            super().attention(layer)
            cached_attention.keep(self.step, layer, keys=keys, values=values, qkv=qkv)
            return
        attended, seen = Tensor("attended", layer), (self.config.warmup_steps + 1 + self.config.steps) / 2
        self.linear("qkv", layer, qkv, Tensor("normed", 2 * layer), "qkv")
        cached_attention.forward(
            self.step, layer, out=attended, keys=keys, values=values, qkv=qkv, scores=Own("scores"),
            first=len(self.config.prompt or ()), mean_seen=len(self.config.prompt or ()) + seen,
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
