"""No input gradient of GPT-2 waits for a weight gradient of its own layer, with more than two threads none for one of
the layer before it in the reverse pass.

Weight gradients read activations whose memory is used again; an early reuse would lengthen the critical path.
"""

from __future__ import annotations

import pytest

from gpt2core.run.prepare import plan
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig
from gpt2core.step import paths

MODEL = ModelConfig(layers=4, heads=2, channels=32, vocab=61, context=16)


def waits(threads: int, fusion: str, precision: str, layers: int) -> bool:
    """Whether an input gradient waits for a weight gradient of the layer that is so many layers above its own."""
    planned = plan(TrainConfig(
        model=MODEL, batch=2, seq=8, steps=3, batch_slice=1, token_slice=8, data="synthetic", scheduler="task",
        threads=threads, allow_oversubscription=True, fusion=fusion, precision=precision,
    ))  # fmt: skip
    graph, tasks = planned.graph, planned.program.tasks
    found = paths.ancestors(paths.predecessors(len(graph), graph.edges), 0, len(graph))
    ops = [tasks[number][0] if number >= 0 else None for number in graph.task]
    return any(
        found[b] >> a & 1 and before.filler and before.layer is not None and before.layer == after.layer + layers
        for b, after in enumerate(ops)
        if after is not None and after.layer is not None and after.calls[0].name.endswith("_dinp")
        for a, before in enumerate(ops)
        if before is not None
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("fusion", ["rows", "all"])
def test_input_gradients_do_not_wait_for_weight_gradients_of_their_layer(fusion: str, precision: str) -> None:
    assert not waits(2, fusion, precision, 0)
    assert waits(2, fusion, precision, 1)  # the price of less memory, where it costs no time
    assert not waits(4, fusion, precision, 1)
    assert waits(4, fusion, precision, 2)
