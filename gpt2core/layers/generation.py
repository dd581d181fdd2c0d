"""The two ends of a step that generates: the tokens that it reads, and the one that follows from its logits."""

import math

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ONE_TILE
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Float64s, Int32s, Matrix, Scalar, Step

BYTES = 16  # of a token, read and written


@kernel
def token_next(inputs: Int32s, position: Int32s, prompt: Int32s, tokens: Int32s, first: Scalar, step: Step):
    """Take the tokens at the positions from `first` + `step` on: of the prompt, or of what earlier steps have
    generated.

    Writes:   inputs, position (N,) =, int32
    Reads:    prompt (P,), tokens (G,) int32
    """
    P = prompt.shape[0]
    for n in range(inputs.shape[0]):
        at = first + step + n
        position[n] = at
        inputs[n] = prompt[at] if at < P else tokens[at - P]


@kernel
def token_choose(
    tokens: Int32s, logits: Matrix, draws: Float64s, temperature: Float64s, vocab: Scalar, first: Scalar, step: Step
):
    """Choose token number `first` + `step`, if so many are to be generated: the one with the largest logit, or at a
    temperature above 0 a draw from the softmax of logits / temperature.

    Writes:   tokens (G,) int32: element `first` + `step` =
    Reads:    logits (1, >= vocab); draws (G,): uniform in [0, 1); temperature (1,)
    Maths:    the draw is the first token where the sum of the probabilities exceeds draws; of equal largest logits the
              first token's counts
    Cost:     4 bytes per token of the vocabulary
    Source:   inversion: Devroye 1986, section III.2
    """
    number = first + step
    if number >= tokens.shape[0]:
        return
    chosen, line, heat = 0, logits[0], temperature[0]
    for v in range(vocab):
        if line[v] > line[chosen]:
            chosen = v
    if heat > 0.0:
        top, total = float(line[chosen]), 0.0
        for v in range(vocab):
            total += math.exp((float(line[v]) - top) / heat)
        limit, total = draws[number] * total, 0.0
        for v in range(vocab):
            total += math.exp((float(line[v]) - top) / heat)
            if total > limit:
                chosen = v
                break
    tokens[number] = chosen


def load(step: Builder, *, inputs: Tensor, position: Tensor, prompt: Tensor, tokens: Tensor, first: int) -> None:
    """Add the reading of a step's tokens and their positions, in the first step from `first` on."""
    step.op(
        "tokens", "data", token_next, ONE_TILE, [(0, BYTES * step.shape(inputs)[0])],
        inputs=Write(inputs), position=Write(position), prompt=Read(prompt), tokens=Read(tokens), first=first,
    )  # fmt: skip


def choose(
    step: Builder, *, tokens: Tensor, logits: Tensor, draws: Tensor, temperature: Tensor, vocab: int, first: int
) -> None:
    """Add the choice of the next token from the logits of one row; in the first step of token number `first`."""
    step.op(
        "choose", "forward", token_choose, ONE_TILE, [(0, F32 * vocab)],
        tokens=Update(tokens), logits=Read(logits), draws=Read(draws), temperature=Read(temperature), vocab=vocab,
        first=first,
    )  # fmt: skip
