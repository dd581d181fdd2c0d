"""Evidence of what inference computed: a hash of the last step's logits, and a sketch to compare with others."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks.halves import widened
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import NotFinite
from gpt2core.spec.result import SKETCH_SIZE
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Program, Tensor
from gpt2core.step.signature import signature

SKETCH_SEED = 20261128
ROWS_AT_ONCE = 64


def outputs(program: Program, arenas: Memory, vocab: int) -> tuple[str, list[float]]:
    """SHA-256 and sketch of the last step's logits, sample by sample and position by position; of what they are
    computed from if they are not kept.

    Sketch: SKETCH_SIZE random projections of all logits, each row of which is scaled to length 1, divided by the root
    of the number of rows. The root mean square of two sketches' differences estimates that of the rows' relative
    differences. Source: Johnson & Lindenstrauss 1984; signs as projections: Achlioptas 2003.
    """
    logits = kept(program, arenas, vocab)
    digest, sums = hashlib.sha256(), np.zeros(SKETCH_SIZE)
    random = np.random.Generator(np.random.PCG64(SKETCH_SEED))
    directions = random.choice(np.array([-1.0, 1.0]), size=(logits.shape[1], SKETCH_SIZE))
    order = in_order(arenas, len(logits))
    signs = random.choice(np.array([-1.0, 1.0]), size=(len(order), SKETCH_SIZE))
    for first in range(0, len(order), ROWS_AT_ONCE):
        some = np.ascontiguousarray(logits[order[first : first + ROWS_AT_ONCE]])
        digest.update(some.data)
        values = widened(some).astype(np.float64)
        lengths = np.linalg.norm(values, axis=1)
        values /= np.where(lengths > 0, lengths, 1.0)[:, None]
        sums += (values @ directions * signs[first : first + ROWS_AT_ONCE]).sum(axis=0)
    return digest.hexdigest(), [float(value) for value in sums / np.sqrt(len(order))]


def generated(arenas: Memory, config: TrainConfig) -> list[int]:
    """The generated tokens. Raises NotFinite if they were chosen from logits that are not finite: such values stay in
    the state, so those of the last step tell."""
    logits = arenas.arrays["logits"][:, : config.model.vocab]
    if not np.all(np.isfinite(logits)):
        raise NotFinite(config.steps, float(logits[~np.isfinite(logits)][0]), "logits")
    return [int(token) for token in arenas.arrays["tokens"]]


def kept(program: Program, arenas: Memory, vocab: int) -> NDArray[np.generic]:
    """The rows of the logits, without padded columns, or of the input of the product that gives them. Of a network
    without logits the probabilities."""
    calls = {call for op in program.ops for call in op.calls if call.name == "logits"}
    if not calls:
        return arenas.view(Tensor("probabilities"))
    (call,) = calls
    operands = dict(zip(signature(call.kernel).operands, call.operands, strict=True))
    out, inp = operands["out"], operands["inp"]
    if isinstance(out, Tensor):
        return arenas.view(out)[:, :vocab]
    assert isinstance(inp, Tensor)
    return arenas.view(inp)


def in_order(arenas: Memory, rows: int) -> NDArray[np.int64]:
    """The rows sample by sample, and in a sample by position. Without positions they lie so."""
    tables = [arenas.arrays[name] for name in ("row_time", "row_batch") if name in arenas.arrays]
    if not tables or len(tables[0]) != rows:
        return np.arange(rows)
    order: NDArray[np.int64] = np.lexsort(tables)
    return order
