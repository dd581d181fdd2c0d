"""A VGG's forward pass."""

from __future__ import annotations

from gpt2core.layers import gathered, images, linear, pooling, rectifier
from gpt2core.layers.convolution import Convolutions
from gpt2core.layers.windows import Convolution
from gpt2core.networks import classes
from gpt2core.networks.vgg.tensors import DENSE, POOLED, layers, model_of
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor


def forward(step: Builder, config: TrainConfig) -> None:
    """Add a micro-batch, from its images to its loss. Where ranks divide the matrices of the dense layers, they divide
    the batch of those before (docs/decisions/0041)."""
    model, own, x, targets = model_of(config), config.batch_part, Tensor("images"), Tensor("targets")
    slices = slicing.cut(config)
    every, grid = slicing.grid(slices), slicing.grid(slicing.cut(own))
    divided = config.matrix_ranks > 1
    images.forward(
        step, grid, out=x, targets=None if divided else targets, side=model.side, micros=own.grad_accum
    )
    if divided:
        images.classes(step, every, targets=targets, micros=config.grad_accum)
    convs = Convolutions(step, grid, model.convolutions)
    for number, layer in enumerate(layers(model)):
        out = Tensor(f"layer{number}")
        if isinstance(layer, Convolution):
            convs.forward(layer, out=out, inp=x, rectified=number > 0)
        else:
            pooling.max_forward(step, grid, number, out=out, inp=x, side=layer)
        x = out
    pooling.forward(step, grid, out=Tensor("pooled"), inp=x, side=model.side // POOLED)
    x = Tensor("pooled")
    if divided:
        x = Tensor("gathered")
        gathered.gather(step, grid, out=x, inp=Tensor("pooled"))
    # Ranks divide the outputs of the first dense layer, whose inputs' gradients `gather` adds, and the second's inputs.
    for number, name in enumerate(DENSE[:-1]):
        out = Tensor(f"dense{number}")
        weight, bias = Tensor(f"{name}.weight"), Tensor(f"{name}.bias")
        with step.fused():
            linear.forward(
                step, "fc", every, number, out=out, inp=x, weight=weight, bias=bias,
                divided="inputs" if divided and number else None,
            )  # fmt: skip
            rectifier.forward(step, every, out=out)
        x = out
    classes.head(
        step, config, slices, inp=x, weight=Tensor(f"{DENSE[-1]}.weight"), bias=Tensor(f"{DENSE[-1]}.bias")
    )
