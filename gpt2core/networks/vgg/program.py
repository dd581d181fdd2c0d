"""A VGG's forward pass."""

from __future__ import annotations

from gpt2core.layers import images, linear, pooling, rectifier
from gpt2core.layers.convolution import Convolutions
from gpt2core.layers.windows import Convolution
from gpt2core.networks import classes
from gpt2core.networks.vgg.tensors import DENSE, POOLED, layers, model_of
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor


def forward(step: Builder, config: TrainConfig) -> None:
    """Add a micro-batch, from its images to its loss."""
    model, x = model_of(config), Tensor("images")
    slices = slicing.cut(config)
    grid = slicing.grid(slices)
    images.forward(step, grid, out=x, targets=Tensor("targets"), side=model.side, micros=config.grad_accum)
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
    for number, name in enumerate(DENSE[:-1]):
        out = Tensor(f"dense{number}")
        weight, bias = Tensor(f"{name}.weight"), Tensor(f"{name}.bias")
        with step.fused():
            linear.forward(step, "fc", grid, number, out=out, inp=x, weight=weight, bias=bias)
            rectifier.forward(step, grid, out=out)
        x = out
    classes.head(
        step, config, slices, inp=x, weight=Tensor(f"{DENSE[-1]}.weight"), bias=Tensor(f"{DENSE[-1]}.bias")
    )
