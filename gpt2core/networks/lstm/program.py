"""An LSTM's forward pass. Layers and chunks of time form a wavefront, which follows from the accesses."""

from __future__ import annotations

from gpt2core.layers import embedding, token_cell, wavefront
from gpt2core.layers.recurrent_layer import Layer
from gpt2core.layers.units import GATES, Units
from gpt2core.networks import generation, language
from gpt2core.networks.lstm.tensors import carries, model_of, panels
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor

EMBEDDING, HEAD_BIAS, DH = Tensor("embedding"), Tensor("head_bias"), Tensor("dh")


def forward(step: Builder, config: TrainConfig) -> None:
    """Add a micro-batch, from its tokens to its loss, or a step that generates."""
    model, slices, x = model_of(config), slicing.cut(config), Tensor("embedded")
    grid = slicing.grid(slices)
    weight = EMBEDDING if model.tied else Tensor("head")
    if config.generate:
        generation.load(step)
    else:
        language.load(step, config, grid)
    embedding.forward_of_tokens(
        step, grid, out=x, tokens=Tensor("inputs"), weight=EMBEDDING, bias=HEAD_BIAS if model.tied else None
    )
    if config.generate:
        last = of_token(step, config, x)
        generation.head(step, config, inp=last, weight=weight, bias=HEAD_BIAS)
        return
    layers = [
        Layer(
            step, slices, k, out=Tensor("h", k), inp=Tensor("h", k - 1) if k else x,
            gates=Tensor("gates", k), cell=Tensor("cell", k), dcell=Tensor("dcell", k),
            input_weight=Tensor(f"weight_ih_l{k}"), input_bias=Tensor(f"bias_ih_l{k}"),
            weight=Tensor(f"weight_hh_l{k}"), bias=Tensor(f"bias_hh_l{k}"),
            T=config.seq, BS=slicing.sizes(config)[0], U=config.unit_slice or model.hidden,
            **{name: Tensor(name, k) for name in panels(config)},
            first_h=Tensor("first_h", k) if carries(config) else None,
            first_cell=Tensor("first_cell", k) if carries(config) else None,
        )
        for k in range(model.layers)
    ]  # fmt: skip
    for layer in layers:
        step.tape.gradient_in(layer.out, DH)
    wavefront.forward(layers, config.op_order)
    language.head(step, config, slices, inp=layers[-1].out, weight=weight, bias=HEAD_BIAS, time_major=True)


def of_token(step: Builder, config: TrainConfig, inp: Tensor) -> Tensor:
    """Add the layers of a step that generates, and return the last one's output. Without unit_slice the cells have a
    tile for each block of the recurrent weight."""
    model = model_of(config)
    of_block = -(-slicing.block_rows(GATES * model.hidden, model.hidden) // GATES)
    units = Units(model.hidden, config.unit_slice or of_block)
    for k in range(model.layers):
        token_cell.forward(
            step, k, units, out=Tensor("h", k), inp=inp, gates=Tensor("gates", k), cell=Tensor("cell", k),
            first_h=Tensor("first_h", k), first_cell=Tensor("first_cell", k),
            weights=(Tensor(f"weight_ih_l{k}"), Tensor(f"weight_hh_l{k}")),
            biases=(Tensor(f"bias_ih_l{k}"), Tensor(f"bias_hh_l{k}")),
        )  # fmt: skip
        inp = Tensor("h", k)
    return inp
