"""The forward pass: documents and queries in both directions, and attention over their attention."""

from __future__ import annotations

from gpt2core.layers import cloze, double_attention, loss, pointer
from gpt2core.networks import encoder
from gpt2core.networks.classes import ACCURACIES, RIGHT
from gpt2core.networks.reader.tensors import model_of
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor
from gpt2core.step.slicing import Slice

EMBEDDING = Tensor("embedding")


def forward(step: Builder, config: TrainConfig) -> None:
    """Add a micro-batch, from its records to the probabilities of their words, and to its loss if it has one."""
    slices, Q, (BS, TS) = slicing.cut(config), model_of(config).query, slicing.sizes(config)
    rows = {"query0": [Q * each.sample0 for each in slices], "query1": [Q * each.sample1 for each in slices]}
    grid = slicing.grid(slices).with_columns(**rows)
    groups = grid.only([each.index for each in slices if not each.pos0])
    queries = [
        Slice(number, each.sample0, each.sample1, 0, Q, Q * each.sample0, Q * each.sample1, (number,))
        for number, each in enumerate(each for each in slices if not each.pos0)
    ]
    document, query, answers = Tensor("document"), Tensor("query"), Tensor("answers")
    document_lengths, query_lengths = Tensor("document_lengths"), Tensor("query_lengths")
    cloze.forward(
        step, groups, document=document, query=query, answers=answers, document_lengths=document_lengths,
        query_lengths=query_lengths, B=config.batch, T=config.seq, Q=Q, micros=config.grad_accum,
    )  # fmt: skip
    document_states = encoder.forward(
        step, slices, name="document", prefix="document_", tokens=document, weight=EMBEDDING, lengths=document_lengths,
        T=config.seq, BS=BS,
    )  # fmt: skip
    query_states = encoder.forward(
        step, queries, name="query", prefix="query_", tokens=query, weight=EMBEDDING, lengths=query_lengths, T=Q, BS=BS,
    )  # fmt: skip
    attended, probabilities = Tensor("attended"), Tensor("probabilities")
    double_attention.forward(
        step, grid, groups, scores=Tensor("scores"), rows=Tensor("row_shares"), mean=Tensor("mean_shares"),
        attended=attended, document=document_states, query=query_states, document_lengths=document_lengths,
        query_lengths=query_lengths, TS=TS,
    )  # fmt: skip
    pointer.forward(
        step, groups, probabilities=probabilities, attended=attended, document=document, lengths=document_lengths
    )
    if "loss" not in config.phases:
        return
    micros = config.grad_accum
    pointer.losses(
        step, groups, probabilities=probabilities, loss=Tensor("loss"), right=RIGHT, document=document,
        answers=answers, lengths=document_lengths, micros=micros if config.has_gradients else None,
    )  # fmt: skip
    loss.mean(step, losses=Tensor("losses"), control=Tensor("control"), loss=Tensor("loss"), micros=micros)
    loss.accuracy(step, accuracies=ACCURACIES, right=RIGHT, micros=micros)
