"""What follows from a few settings alone."""

from __future__ import annotations

from gpt2core.spec import modes
from gpt2core.spec.phases import MODES


class Derived:
    """Properties of TrainConfig, which declares these settings."""

    mode: str
    score: bool
    warmup: int | None
    steps: int
    batch: int
    seq: int
    grad_accum: int
    grad_clip: float
    precision: str
    threads: int
    ranks: int
    parallel: str

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of a step, in their order."""
        return modes.phases(self.mode, self.score)

    @property
    def has_gradients(self) -> bool:
        """Whether a step has a reverse pass."""
        return MODES[self.mode].has_gradients

    @property
    def updates(self) -> bool:
        """Whether a step updates the weights."""
        return MODES[self.mode].updates

    @property
    def warmup_steps(self) -> int:
        if self.warmup is not None:
            return self.warmup
        return min(2, self.steps - 1)

    @property
    def samples_per_step(self) -> int:
        return self.grad_accum * self.batch

    @property
    def tokens_per_step(self) -> int:
        return self.grad_accum * self.batch * self.seq

    @property
    def has_half_weights(self) -> bool:
        """Whether the weights' matrices are bfloat16 in memory: training updates them, so its are float32."""
        return not self.has_gradients and self.precision == "bf16"

    @property
    def needs_whole_gradients(self) -> bool:
        """Whether every gradient must be complete before any weight is updated."""
        return self.grad_accum > 1 or self.grad_clip > 0 or self.batch_ranks > 1

    @property
    def batch_ranks(self) -> int:
        """Ranks that divide the batch, in all layers or in some."""
        return 1 if self.parallel == "tensor" else self.ranks

    @property
    def matrix_ranks(self) -> int:
        """Ranks that divide matrices, of all layers or of some."""
        return 1 if self.parallel == "data" else self.ranks

    @property
    def total_threads(self) -> int:
        """Threads of all ranks."""
        return self.threads * self.ranks
