"""The forward pass: a bidirectional encoder, and a decoder that attends to it and is given the target's tokens."""

from __future__ import annotations

from gpt2core.layers import bridge, cross_attention, gru, linear, loss, masked_loss, pairs, tanh
from gpt2core.networks import encoder
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor


def forward(step: Builder, config: TrainConfig) -> None:
    """Add a micro-batch, from its pairs to its logits, and to its loss if it has one."""
    slices = slicing.cut(config)
    grid, groups = slicing.grid(slices), slicing.chunks(slices)[0]
    sources, targets = Tensor("source_lengths"), Tensor("target_lengths")
    pairs.forward(
        step, grid, groups, source=Tensor("source"), inputs=Tensor("inputs"), targets=Tensor("targets"),
        source_lengths=sources, target_lengths=targets, B=config.batch, T=config.seq, micros=config.grad_accum,
    )  # fmt: skip
    encoded, decoded, combined, logits = (Tensor(name) for name in ("encoded", "decoded", "combined", "logits"))
    T, BS = config.seq, slicing.sizes(config)[0]

    encoder.forward(
        step, slices, name="encoder", prefix="", tokens=Tensor("source"), weight=Tensor("source_embedding"),
        lengths=sources, T=T, BS=BS,
    )  # fmt: skip
    gates = Tensor("target_gates")
    encoder.input_gates(
        step, grid, "decoder", tokens=Tensor("inputs"), embedded=Tensor("target_embedded"),
        weight=Tensor("target_embedding"), gates=gates,
    )  # fmt: skip
    first, dpast = Tensor("first"), Tensor("target_dpast")
    crossed = bridge.forward(step, groups, first=first, encoded=encoded, lengths=sources, dfirst=dpast)
    decoder = gru.Direction(
        step, slices, "recurrence_decoder", out=decoded, kept=Tensor("target_kept"), hidden=Tensor("target_hidden"),
        dpast=dpast, gates=gates, lengths=targets, weight=Tensor("decoder_hh"), bias=Tensor("decoder_hh_bias"),
        first=first, T=T, BS=BS,
    )  # fmt: skip
    gru.forward([decoder], [crossed])

    mixed = Tensor("mixed")
    cross_attention.forward(
        step, grid, groups, mixed=mixed, shares=Tensor("attention"), decoded=decoded, encoded=encoded,
        source_lengths=sources, target_lengths=targets,
    )  # fmt: skip
    with step.fused():
        linear.forward(step, "combine", grid, None, out=combined, inp=mixed, weight=Tensor("combine"))
        tanh.forward(step, grid, out=combined)
    linear.forward(
        step, "logits", grid, None, out=logits, inp=combined, weight=Tensor("head"), bias=Tensor("head_bias")
    )
    if "loss" not in config.phases:
        return
    add = masked_loss.forward_backward if config.has_gradients else masked_loss.forward
    add(
        step, grid, logits=logits, loss=Tensor("loss"), targets=Tensor("targets"), B=config.batch,
        micros=config.grad_accum,
    )  # fmt: skip
    loss.mean(step, losses=Tensor("losses"), control=Tensor("control"), loss=Tensor("loss"), micros=config.grad_accum)
