"""The goal that ends a run."""

from gpt2core.compile.jit import kernel
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.goals import LOSS
from gpt2core.step.builder import Builder
from gpt2core.step.control import STOP
from gpt2core.step.grid import F64, ONE_TILE
from gpt2core.step.ops import Read, Reduce, Tensor
from gpt2core.step.signature import Float64s, Int64s, Scalar, Step
from gpt2core.step.tensors import TensorSpec

GOAL = Tensor("goal")
VALUES = {LOSS: Tensor("losses"), "accuracy": Tensor("accuracies")}


@kernel
def end_at_goal(control: Int64s, values: Float64s, goal: Float64s, below: Scalar, first: Scalar, step: Step):
    """Stop the run after this step if its value reaches the goal, unless the step is one before `first`.

    Writes:   control (any,) int64, element STOP = 1
    Reads:    values (steps,) float64, element `step`; goal (1,) float64, the most if `below`, otherwise the least
    """
    value = values[step]
    if step >= first and ((below and value <= goal[0]) or (not below and value >= goal[0])):
        control[STOP] = 1


def specs(config: TrainConfig) -> list[TensorSpec]:
    """The goal of a run that has one."""
    return [] if config.stop_at is None else [TensorSpec(GOAL.name, (1,), "float64", True)]


def add(step: Builder, config: TrainConfig) -> None:
    """Add the end of the run at its goal, if it has one, after the loss of a step's last micro-batch."""
    if config.stop_at is None or step.micro < config.grad_accum // step.rank.total - 1:
        return
    (metric,) = config.stop_at
    step.op(
        "end_at_goal", "loss", end_at_goal, ONE_TILE, [(1, 2 * F64)],
        control=Reduce(Tensor("control")), values=Read(VALUES[metric]), goal=Read(GOAL), below=int(metric == LOSS),
        first=config.warmup_steps,
    )  # fmt: skip
