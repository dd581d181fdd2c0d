"""A ResNet's forward pass."""

from __future__ import annotations

from gpt2core.layers import images, pooling, residual_block
from gpt2core.layers.convolution import Convolutions
from gpt2core.networks import classes
from gpt2core.networks.resnet.tensors import first_of, model_of, stages
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor


def forward(step: Builder, config: TrainConfig) -> None:
    """Add a micro-batch, from its images to its loss. Gradients of a stage's outputs share their memory."""
    model, x, read = model_of(config), Tensor("stem"), Tensor("images")
    slices = slicing.cut(config)
    grid = slicing.grid(slices)
    images.forward(step, grid, out=read, targets=Tensor("targets"), side=model.side, micros=config.grad_accum)
    convs = Convolutions(step, grid, model.convolutions)
    convs.forward(first_of(model), out=x, inp=read)
    step.tape.gradient_in(x, Tensor("dout1"))
    for number, stage in enumerate(stages(model), start=1):
        for index, block in enumerate(stage):
            inner, out = Tensor(f"inner{number}", index), Tensor(f"out{number}", index)
            residual_block.forward(convs, block, out=out, inner=inner, inp=x)
            step.tape.gradient_in(inner, Tensor(f"dinner{number}"))
            step.tape.gradient_in(out, Tensor(f"dout{number}"))
            x = out
    pooling.forward(step, grid, out=Tensor("pooled"), inp=x, side=stages(model)[-1][-1].second.side)
    classes.head(
        step, config, slices, inp=Tensor("pooled"), weight=Tensor("fc.weight"), bias=Tensor("fc.bias")
    )
