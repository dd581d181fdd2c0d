"""A batch of cloze records, copied from padded records."""

from typing import NamedTuple

from gpt2core.compile.jit import kernel
from gpt2core.layers.pairs import first_pair
from gpt2core.step.builder import Builder
from gpt2core.step.grid import Grid
from gpt2core.step.ops import Outside, Tensor, Write
from gpt2core.step.signature import Int32s, Scalar, Step, TileInt, UInt16s

SAMPLES, GROUP, QUERY = "sample0:sample1", "group0:group1", "query0:query1"
TOKEN_BYTES = 6  # read and written


class Records(NamedTuple):
    """All records: documents (R*T,), queries (R*Q,), solutions (R,) uint16; lengths (2*R,) int32 of both."""

    documents: UInt16s
    queries: UInt16s
    solutions: UInt16s
    lengths: Int32s


class Batch(NamedTuple):
    """Batch `micro` of a step, one of `micros` of B records of T and Q positions."""

    B: Scalar
    T: Scalar
    Q: Scalar
    micros: Scalar
    micro: Scalar


@kernel
def cloze_load(
    document: Int32s, query: Int32s, answers: Int32s, document_lengths: Int32s, query_lengths: Int32s,
    records: Records, batch: Batch, step: Step, sample0: TileInt, sample1: TileInt, group0: TileInt, query0: TileInt,
):  # fmt: skip
    """Copy samples [sample0, sample1) of a step's batch.

    Writes:   document (N,), query (B*Q,) int32 =, time-major within the group; answers, document_lengths,
              query_lengths (B,) int32 =
    Reads:    records
    Maths:    batch i holds records [i*B, (i+1)*B); after the last whole batch it starts over
    Tiles:    groups of samples are independent
    """
    B, T, Q, micros, micro = batch
    start, n = first_pair(records.lengths, B, micros, micro, step), sample1 - sample0
    for i in range(n):
        b = sample0 + i
        record = start + b
        for t in range(T):
            document[group0 + t * n + i] = records.documents[record * T + t]
        for q in range(Q):
            query[query0 + q * n + i] = records.queries[record * Q + q]
        answers[b] = records.solutions[record]
        document_lengths[b] = records.lengths[2 * record]
        query_lengths[b] = records.lengths[2 * record + 1]


def forward(
    step: Builder, groups: Grid, *,
    document: Tensor, query: Tensor, answers: Tensor, document_lengths: Tensor, query_lengths: Tensor,
    B: int, T: int, Q: int, micros: int,
) -> None:  # fmt: skip
    """Add the loading of a batch over the groups of samples."""
    step.op(
        "records", "data", cloze_load, groups, groups.cost(SAMPLES, 0, TOKEN_BYTES * (T + Q + 3)),
        document=Write(document, GROUP), query=Write(query, QUERY), answers=Write(answers, SAMPLES),
        document_lengths=Write(document_lengths, SAMPLES), query_lengths=Write(query_lengths, SAMPLES),
        documents=Outside("documents"), queries=Outside("queries"), solutions=Outside("solutions"),
        lengths=Outside("lengths"), B=B, T=T, Q=Q, micros=micros, micro=step.batch,
    )  # fmt: skip
