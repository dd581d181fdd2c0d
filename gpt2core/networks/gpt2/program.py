"""The step program of GPT-2: the ONE description of a training step that every scheduler runs.

Ops follow each other as in a plain loop nest; what may overlap follows from the accesses.
"""

from __future__ import annotations

from gpt2core.layers import attention, embedding, gelu, layernorm, linear, residual, rounding
from gpt2core.networks import language
from gpt2core.networks.gpt2.tensors import lag, model_of
from gpt2core.optimizers.update import update
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step import parameters, slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Own, Tensor
from gpt2core.step.parameters import GRADIENTS, Parameter

MAX_SLICES = 512  # 124M then has 75,000 tasks
# A linear layer: its name in reports, its weight and its bias.
LINEAR = {
    "qkv": ("qkvw", "qkvb"),
    "projection": ("attprojw", "attprojb"),
    "fc": ("fcw", "fcb"),
    "fc_projection": ("fcprojw", "fcprojb"),
    "logits": ("wte", ""),
}
STRIPS, GRADIENT, PART = Own("strips"), Own("gradient"), Own("part")
WIDE = Tensor("wide")  # what products give, where it is rounded to a part of `hidden`


class Gpt2:
    """Adds the step of one configuration.

    `fusion` combines neighbouring kernels into one op, and so one task a slice: with "rows" a linear layer and the
    row-wise ops after it; with "all" also a weight's gradient and its update, so the gradient needs no memory of its
    own.
    """

    def __init__(self, step: Builder, config: TrainConfig) -> None:
        self.step, self.config = step, config
        self.model = model_of(self.config)
        slices = slicing.cut(self.config)
        self.cut, self.slices = slices, slicing.grid(slices)
        self.token_slice = slicing.sizes(self.config)[1]
        self.lag = lag(config)
        self.keeps_gradients = config.fused != "all"

    def add(self) -> None:
        for micro in range(self.config.grad_accum):
            self.step.micro = micro
            self.micro_batch()
        if self.keeps_gradients:
            self.update_all()

    def micro_batch(self) -> None:
        """From tokens to gradients; with fusion "all" also to new weights."""
        L, final = self.model.layers, 2 * self.model.layers  # the last LayerNorm
        language.load(self.step, self.config, self.slices)
        embedding.forward(
            self.step, self.slices,
            out=Tensor("residual", 0), tokens=Tensor("inputs"), positions=Tensor("row_time"),
            wte=Tensor("wte"), wpe=Tensor("wpe"),
        )  # fmt: skip
        self.layernorm(0)
        self.fuse(2)
        for layer in range(L):
            self.layer_forward(layer)
        self.logits(Tensor("logits"), self.branch(final))
        language.mean_loss(self.step, self.config, self.slices, part=PART)
        self.linear_dinp("logits", None, self.dnormed(final), Tensor("logits"))
        self.layernorm_backward(final)
        self.fuse(2)
        if self.keeps_gradients:  # otherwise at the end, since the encoder's gradient is added before the update
            self.linear_dweight("logits", None, Tensor("logits"), self.dnormed(final))
        for layer in reversed(range(L)):
            self.layer_backward(layer)
        self.embeddings_backward()
        self.layernorms_backward()

    def layer_forward(self, layer: int) -> None:
        ln1, ln2 = 2 * layer, 2 * layer + 1
        attended, hidden = Tensor("attended", layer), Tensor("hidden", layer)
        unrounded, wide = self.unrounded(attended, Tensor("dattended")), self.unrounded(hidden, WIDE)
        activated = Tensor("hidden", layer + 1)  # the next layer has not written its own yet
        self.linear("qkv", layer, Tensor("qkv", layer), self.branch(ln1))
        attention.forward(
            self.step, self.slices, layer,
            out=unrounded, lse=Tensor("lse", layer), qkv=Tensor("qkv", layer),
            strips=STRIPS, T=self.config.seq, TS=self.token_slice,
        )  # fmt: skip
        if unrounded != attended:
            rounding.forward(self.step, "attention_rounding", self.slices, layer, out=attended, inp=unrounded)
            self.fuse(2)
        self.linear("projection", layer, self.branch(ln1), attended)
        self.residual(layer, ln1)
        self.layernorm(ln2)
        self.fuse(3)
        self.linear("fc", layer, wide, self.branch(ln2))
        gelu.forward(self.step, self.slices, layer, out=activated, kept=hidden, inp=wide)
        self.fuse(2)
        self.linear("fc_projection", layer, self.branch(ln2), activated)
        self.residual(layer, ln2)
        self.layernorm(ln2 + 1)
        self.fuse(3)

    def layer_backward(self, layer: int) -> None:
        ln1, ln2 = 2 * layer, 2 * layer + 1
        after, middle = Tensor("residual", ln2 + 1), Tensor("residual", ln2)  # their gradients, once computed
        dqkv, dhidden = Tensor("qkv", layer + 1), Tensor("hidden", layer + self.lag)  # later layers need them no more
        hidden, wide = Tensor("hidden", layer), self.unrounded(dhidden, WIDE)
        self.linear_dinp("fc_projection", layer, wide, after)
        gelu.backward(self.step, self.slices, layer, dinp=dhidden, out=hidden, dout=wide)
        self.fuse(2)
        self.linear_dweight("fc_projection", layer, after, hidden)
        self.linear_dinp("fc", layer, self.dnormed(ln2), dhidden)
        self.layernorm_backward(ln2)
        self.fuse(2)
        self.linear_dweight("fc", layer, dhidden, self.dnormed(ln2))
        self.linear_dinp("projection", layer, Tensor("dattended"), middle)
        self.linear_dweight("projection", layer, middle, Tensor("attended", layer))
        attention.backward(
            self.step, self.cut, layer,
            dqkv=dqkv, dout=Tensor("dattended"), qkv=Tensor("qkv", layer),
            out=Tensor("attended", layer), lse=Tensor("lse", layer),
            strips=STRIPS, T=self.config.seq, TS=self.token_slice,
        )  # fmt: skip
        self.linear_dinp("qkv", layer, self.dnormed(ln1), dqkv)
        self.layernorm_backward(ln1)
        self.fuse(2)
        self.linear_dweight("qkv", layer, dqkv, self.dnormed(ln1))

    def embeddings_backward(self) -> None:
        if not self.keeps_gradients:
            self.linear_dweight("logits", None, Tensor("logits"), self.dnormed(2 * self.model.layers))
        embedding.backward_tokens(
            self.step, weight=Tensor("wte"), dwte=self.gradients("wte", "", None)[0],
            dout=Tensor("residual", 0), tokens=Tensor("inputs"),
        )  # fmt: skip
        if not self.keeps_gradients:
            update(self.step, self.config, self.matrix("logits", None), gradients=GRADIENT)
            self.step.fuse(3)
        embedding.backward_positions(
            self.step, weight=Tensor("wpe"), dwpe=self.gradients("wpe", "", None)[0],
            dout=Tensor("residual", 0), positions=Tensor("row_time"), adds=self.adds,
        )  # fmt: skip
        if not self.keeps_gradients:
            update(self.step, self.config, parameters.matrix(self.step, Tensor("wpe"), None), gradients=GRADIENT)
            self.step.fuse(2)

    def layernorms_backward(self) -> None:
        layernorm.backward_parameters(
            self.step, self.layernorms(), into=GRADIENTS if self.keeps_gradients else GRADIENT,
            partial=Tensor("partial"), slots=len(self.slices), adds=self.adds,
        )  # fmt: skip
        if not self.keeps_gradients:
            update(self.step, self.config, self.layernorms(), gradients=GRADIENT)
            self.step.fuse(2)

    def update_all(self) -> None:
        """AdamW over every block of every weight, as one op, with gradients within their limit."""
        parts = [*parameters.matrix(self.step, Tensor("wpe"), None), *self.matrix("logits", None), *self.layernorms()]
        for layer in range(self.model.layers):
            for name in ("qkv", "projection", "fc", "fc_projection"):
                parts += self.matrix(name, layer)
        update(self.step, self.config, parts)

    # --- layers on this network's tensors

    def fuse(self, count: int) -> None:
        """Fuse the last `count` ops, unless every kernel is a separate op."""
        if self.config.fused != "none":
            self.step.fuse(count)

    @property
    def adds(self) -> bool:
        """Whether gradients are added to those of the micro-batches before."""
        return self.step.micro > 0

    def gradients(self, weight: str, bias: str, layer: int | None) -> tuple[Tensor | Own, Tensor | Own | None]:
        """Destination of the gradients of a matrix and its bias: the gradients arena, or the thread's own memory, which
        the same task reads.
        """
        if self.keeps_gradients:
            return Tensor("d" + weight, layer), Tensor("d" + bias, layer) if bias else None
        rows, columns = self.step.shape(Tensor(weight, layer))
        rows = slicing.block_rows(rows, columns)
        return Own("gradient", 0, (rows, columns)), Own("gradient", rows * columns, (rows,)) if bias else None

    def branch(self, index: int) -> Tensor:
        """What the branch at LayerNorm `index` takes, the LayerNorm's output, and then what it adds to the residual
        stream: in the place of the sum.
        """
        return Tensor("residual", index + 1)

    def dnormed(self, index: int) -> Tensor:
        """The gradient of a LayerNorm's output, and after its backward pass the output, in place of a gradient of the
        residual stream that is no longer needed.
        """
        return Tensor("residual", index + 2 * self.lag)

    def unrounded(self, rounded: Tensor, place: Tensor) -> Tensor:
        """Where a tensor's values are computed: in `place` if they are then rounded to bfloat16, else in itself."""
        return place if self.step.is_half(rounded) else rounded

    def logits(self, out: Tensor, inp: Tensor) -> None:
        """The last linear layer, whose weight is that of the embedding."""
        if self.step.is_half(out):
            linear.forward_to_halves(
                self.step, "logits", self.slices, None,
                out=out, inp=inp, weight=Tensor("wte"), rounded=Own("rounded"), part=PART,
            )  # fmt: skip
        else:
            self.linear("logits", None, out, inp)

    def linear(self, name: str, layer: int | None, out: Tensor, inp: Tensor) -> None:
        weight, bias = LINEAR[name]
        linear.forward(
            self.step, name, self.slices, layer,
            out=out, inp=inp, weight=Tensor(weight, layer), bias=Tensor(bias, layer) if bias else None,
        )  # fmt: skip

    def linear_dinp(self, name: str, layer: int | None, dinp: Tensor, dout: Tensor) -> None:
        weight = Tensor(LINEAR[name][0], layer)
        linear.backward_input(self.step, name, self.slices, layer, dinp=dinp, dout=dout, weight=weight)

    def linear_dweight(self, name: str, layer: int | None, dout: Tensor, inp: Tensor) -> None:
        """With fusion "all" a block's matrix is updated by the task that computes its gradient."""
        weight, bias = LINEAR[name]
        dweight, dbias = self.gradients(weight, bias, layer)
        linear.backward_weight(
            self.step, name, layer,
            weight=Tensor(weight, layer), dweight=dweight, dbias=dbias, dout=dout, inp=inp, adds=self.adds,
        )  # fmt: skip
        if not self.keeps_gradients and name != "logits":
            update(self.step, self.config, self.matrix(name, layer), layer, GRADIENT)
            self.step.fuse(2)

    def layernorm_at(self, index: int) -> tuple[str, int | None]:
        """Name and layer of the weights of LayerNorm `index`, counted 0 to 2L."""
        layer, second = divmod(index, 2)
        return (f"ln{second + 1}", layer) if layer < self.model.layers else ("lnf", None)

    def layernorm(self, index: int) -> None:
        name, layer = self.layernorm_at(index)
        layernorm.forward(
            self.step, self.slices, layer,
            out=self.branch(index), mean=Tensor("mean", index), rstd=Tensor("rstd", index),
            inp=Tensor("residual", index), weight=Tensor(name + "w", layer), bias=Tensor(name + "b", layer),
        )  # fmt: skip

    def layernorm_backward(self, index: int) -> None:
        """From `dnormed` to the gradient of the residual stream before this LayerNorm, which overwrites the stream. The
        LayerNorm's output overwrites `dnormed`.
        """
        name, layer = self.layernorm_at(index)
        layernorm.backward(
            self.step, self.slices, layer,
            dinp=Tensor("residual", index), out=self.dnormed(index),
            partial=Tensor("partial"), slot=index * len(self.slices),
            past=None if name == "lnf" else Tensor("residual", index + 1),
            weight=Tensor(name + "w", layer), bias=Tensor(name + "b", layer),
            mean=Tensor("mean", index), rstd=Tensor("rstd", index),
        )  # fmt: skip

    def residual(self, layer: int, index: int) -> None:
        """Add the residual stream at LayerNorm `index` to what its branch adds."""
        residual.forward(self.step, self.slices, layer, out=self.branch(index), inp=Tensor("residual", index))

    def matrix(self, name: str, layer: int | None) -> list[Parameter]:
        """The blocks of a linear layer's weight and bias."""
        weight, bias = LINEAR[name]
        return parameters.matrix(self.step, Tensor(weight, layer), Tensor(bias, layer) if bias else None)

    def layernorms(self) -> list[Parameter]:
        """Every LayerNorm's weight and bias, in the order of their indices."""
        found = []
        for index in range(2 * self.model.layers + 1):
            name, layer = self.layernorm_at(index)
            label = name if layer is None else f"{name}[{layer}]"
            found.append(parameters.vectors(self.step, label, Tensor(name + "w", layer), Tensor(name + "b", layer)))
        return found


def add(step: Builder, config: TrainConfig) -> None:
    """Add the step of a configuration whose slices are resolved.

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
    Gpt2(step, config).add()
