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
        generation.load(step, config)
    else:
        language.load(step, config, grid)
    embedding.forward_of_tokens(
        step, grid, out=x, tokens=Tensor("inputs"), weight=EMBEDDING, bias=HEAD_BIAS if model.tied else None
    )
    if config.generate:
        last = (of_prompt if config.reads_prompt else of_token)(step, config, x)
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
    """Add the layers of a step that reads one token, and return the last one's output. Without unit_slice the cells
    have a tile for each block of the recurrent weight."""
    model = model_of(config)
    of_block = -(-slicing.block_rows(GATES * model.hidden, model.hidden) // GATES)
    units = Units(model.hidden, config.unit_slice or of_block)
    for k in range(model.layers):
        token_cell.forward(
            step, k, units, out=Tensor("state_h", k), inp=inp, gates=Tensor("gates", k), cell=Tensor("state_cell", k),
            first_h=Tensor("first_h", k), first_cell=Tensor("first_cell", k), **parameters_of(k),
        )  # fmt: skip
        inp = Tensor("state_h", k)
    return inp


def of_prompt(step: Builder, config: TrainConfig, inp: Tensor) -> Tensor:
    """Add the layers of the step that reads the prompt, chunk by chunk of time, and return the last one's output at the
    last position."""
    for k in range(model_of(config).layers):
        h, cell, state_h = Tensor("h", k), Tensor("cell", k), Tensor("state_h", k)
        for chunk in slicing.cut(config):
            token_cell.forward_of_chunk(
                step, k, (chunk.row0, chunk.row1), out=h, inp=inp, gates=Tensor("gates", k), cell=cell,
                **parameters_of(k),
            )  # fmt: skip
        token_cell.carry(step, k, to_h=state_h, to_cell=Tensor("state_cell", k), h=h, cell=cell)
        inp = h
    return state_h


def parameters_of(layer: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Weights and biases of a layer, of the input and of the recurrence."""
    return {
        "weights": (Tensor(f"weight_ih_l{layer}"), Tensor(f"weight_hh_l{layer}")),
        "biases": (Tensor(f"bias_ih_l{layer}"), Tensor(f"bias_hh_l{layer}")),
    }
