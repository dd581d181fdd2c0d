"""Settings of a run: frozen dataclasses that validate themselves. Command line, HTTP contract and documentation are
derived from the fields' metadata (help, unit, choices, bounds).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpt2core.spec import generation, modes, networks, optimizers, schedulers
from gpt2core.spec.conflicts import conflicts
from gpt2core.spec.derived import Derived
from gpt2core.spec.errors import ConfigError, raise_together
from gpt2core.spec.fields import (
    AMOUNT,
    ASSIGNMENTS,
    AUTO,
    BLAS,
    DISTRIBUTIONS,
    EPSILON,
    FUSIONS,
    LOGITS,
    MOST_CORES,
    OP_ORDERS,
    PARALLELS,
    POLICIES,
    PRECISIONS,
    SHARE,
    SHUFFLES,
    SPLITS,
    SYNCS,
    Check,
    caught,
    check_bool,
    check_path,
    checks,
    parse_cores,
    parse_op_threads,
    setting,
)
from gpt2core.spec.goals import parse_goal
from gpt2core.spec.models import PRESETS, model_from, wrong_sizes
from gpt2core.spec.networks import Model
from gpt2core.spec.phases import MODES


@dataclass(frozen=True)
class TrainConfig(Derived):
    """One run of the trainer. JSON keys are the field names; `model` is a preset's name or a mapping of sizes."""

    reads_prompt: ClassVar[bool] = False  # whether a step reads the whole prompt of a run that generates
    model: Model = field(
        default=PRESETS["tiny"],
        metadata={
            "help": "model: a preset's name, or its sizes", "role": "size", "group": "training", "main": 0,
            "resolved": True,
        },
    )
    batch: int = setting(
        4, "B: sequences, or images, in a batch; 1 with generate", low=1, high=1 << 20, role="size",
        group="training", unit="sequences", main=4, resolved=True, by_network=True,
    )
    seq: int = setting(
        64, "T: tokens in a sequence, at most the model's context; 1 for images and with generate; "
        "of a seq2seq at least 2; of a reader words of a document", low=1, high=1 << 20, role="size", group="training",
        unit="tokens", main=5, resolved=True, by_network=True,
    )
    steps: int = setting(
        12, "steps, warm-up included; with generate, one for each token after the first, at least 1", low=1,
        high=1 << 30, role="length", group="training", unit="steps", main=9, resolved=True, by_network=True,
    )
    warmup: int | None = setting(
        None, "warm-up steps, left out of the summary; default 2, or steps - 1 if that is less", low=0, role="length",
        unit="steps", resolved=True,
    )
    stop_at: Mapping[str, float] | None = setting(
        None, "goal that ends the run before its steps: after the first step with at most this loss, or at least this "
        "accuracy; such as loss=2.5 or accuracy=0.9", role="length", later=True,
    )
    scheduler: str = setting(
        "task", "scheduler of the tiles", choices=schedulers.KNOWN, check=lambda _, value: schedulers.scheduler(value),
        role="order", group="parallelisation", main=1, resolved=True,
    )
    sync: str = setting(
        "step", "where task and omp-task wait for all tasks: after each phase, after each step, or nowhere (taskiter)",
        choices=SYNCS, role="order", group="parallelisation", main=2, resolved=True,
    )
    policy: str = setting(
        "breadth-first",
        "task: which ready task runs first (docs/decisions/0005); omp-task: source of its priorities; breadth-first "
        "has none", choices=POLICIES, role="order",
    )
    assignment: str = setting(
        "static", "fork-join, omp-for: how an op's tiles are distributed", choices=ASSIGNMENTS, role="order"
    )
    runtime: str = setting(
        schedulers.AUTO,
        "omp-for and omp-task: the OpenMP runtime: libgomp, libomp, libiomp5, auto (the first of these that is "
        "installed), or a library's path", check=lambda _, value: schedulers.check_runtime(value), role="order",
    )
    op_threads: Mapping[str, int] | None = setting(
        None,
        "fork-join, omp-for: threads for single ops, by their names or patterns, of all layers or of one, such as "
        "qkv=2,layer*=1,fc[3]=1; default: threads for all", role="order",
    )
    fusion: str | None = setting(
        None,
        "kernels that share a task. none; rows: a matrix product and what follows it row by row; all: also a weight's "
        "gradient and its update. Default: all; rows with mode infer, sync phase, grad_accum or grad_clip; none with "
        "op_threads", choices=FUSIONS, role="order",
    )
    threads: int = setting(
        1, "P: threads in the team", low=1, high=4096, role="order",
        group="parallelisation", unit="threads", main=3, resolved=True,
    )
    cores: tuple[int, ...] | None = setting(
        None, "cores to pin the threads to, such as 0-3,8; default: those this process may use", role="place"
    )
    batch_slice: int | None = setting(
        AUTO, "sequences, or images, in a slice; default: the trainer chooses", low=1, role="slices",
        group="parallelisation", unit="sequences", main=6, resolved=True,
    )
    token_slice: int | None = setting(
        AUTO, "tokens of each sequence in a slice; default: the trainer chooses", low=1, role="slices",
        group="parallelisation", unit="tokens", main=7, resolved=True,
    )
    precision: str = setting(
        "fp32", "precision of the operands of matrix products, of some activations of GPT-2, and with mode infer of "
        "the weights' matrices of a gpt2, lstm, seq2seq or reader in memory; all else is fp32",
        choices=PRECISIONS, role="size", group="training", main=8,
    )
    blas: str = setting(
        "auto",
        "library of the matrix products; own: our code; auto: the fastest for each product, measured once on a node "
        "(docs/decisions/0012)", choices=BLAS, role="order",
    )
    data: str = setting(
        "stdlib", "tokens to train on: synthetic, stdlib, or an llm.c token file; of a resnet or vgg images: "
        "synthetic (its default), cifar10:PATH or cifar100:PATH, a folder of the binary files or one of them; of a "
        "seq2seq pairs: synthetic (its default) or pairs:PATH, a folder with source.bin and target.bin; of a reader "
        "cloze records: synthetic (its default) or cloze:PATH, a folder with document.bin, query.bin and answer.bin",
        check=check_path, role="values", group="training", by_network=True,
    )
    distribution: str = setting("zipf", "distribution of synthetic tokens", choices=DISTRIBUTIONS, role="values")
    checkpoint: str | None = setting(
        None, "initial weights: an llm.c .bin file, or Hugging Face's .safetensors file, index or folder; of an "
        "lstm, resnet, vgg, seq2seq or reader a torch module's .safetensors", check=check_path, role="values",
    )
    save: str | None = setting(
        None, "file for the final weights (llm.c .bin, or .safetensors; of an lstm, resnet, vgg, seq2seq or "
        "reader .safetensors)", check=check_path, role="output",
    )
    optimizer: str = setting(
        "adamw", "optimizer of the weights (docs/how-to/add-an-optimizer.md)", choices=optimizers.KNOWN["optimizer"],
        role="values", later=True, by_network=True,
    )
    lr: float = setting(1e-4, "learning rate", check=AMOUNT, role="values", by_network=True)
    beta1: float = setting(0.9, "AdamW's decay of the first moment", check=SHARE, role="values")
    beta2: float = setting(0.999, "AdamW's decay of the second moment", check=SHARE, role="values")
    eps: float = setting(1e-8, "AdamW's epsilon", check=EPSILON, role="values")
    weight_decay: float = setting(
        0.0, "weight decay, for every weight: AdamW's is decoupled, SGD adds it to the gradient", check=AMOUNT,
        role="values", by_network=True,
    )
    momentum: float = setting(0.0, "SGD's momentum", check=SHARE, role="values", later=True, by_network=True)
    nesterov: bool = setting(
        False, "whether SGD's momentum is Nesterov's", check=check_bool, role="values", later=True,
    )
    lr_schedule: str = setting(
        "constant",
        "learning rate over the steps. cosine: linear warm-up, then a cosine; steps: multiplied after every some steps",
        choices=optimizers.KNOWN["lr_schedule"], role="values", later=True,
    )
    lr_warmup: int = setting(
        0, "cosine: steps of linear warm-up, fewer than steps", low=0, high=1 << 30, role="values",
        unit="steps", later=True,
    )
    lr_final: float = setting(
        0.0, "cosine: share of lr that is left after the last step", check=SHARE, role="values", later=True,
    )
    lr_decay: float = setting(
        0.1, "steps: factor of the learning rate each time", check=AMOUNT, role="values", later=True,
    )
    lr_every: int = setting(
        1000, "steps: number of steps from one time to the next", low=1, high=1 << 30, role="values",
        unit="steps", later=True,
    )
    lr_hold: int | None = setting(
        None, "steps: number of steps before the first time; default: lr_every", low=0, high=1 << 30, role="values",
        unit="steps", later=True,
    )
    grad_accum: int = setting(
        1, "A: micro-batches of B sequences in a step; their gradients are summed before the update", low=1, high=4096,
        role="size", unit="micro-batches", later="in-keys",
    )
    grad_clip: float = setting(
        0.0, "maximum norm of all gradients together; larger ones are scaled down; 0: no limit", check=AMOUNT,
        role="size", later="in-keys",
    )
    shuffle: str = setting(
        "epoch",
        "resnet, vgg: order of the images. epoch: each epoch has its own permutation by the seed; none: as stored",
        choices=SHUFFLES, role="values", later=True,
    )
    val_samples: int | None = setting(
        None,
        "resnet, vgg: images for validation, the last ones; default: 1000 of a folder of files, otherwise 0", low=0,
        high=1 << 30, role="values", unit="images", later=True,
    )
    split: str | None = setting(
        None, "resnet, vgg: images of mode infer, by default train, or of evaluations, by default val",
        choices=SPLITS, role="values", later=True,
    )
    evaluate_every: int = setting(
        0, "resnet, vgg: number of steps after which, again and again, loss and accuracy of all images for validation "
        "are computed, outside the timed steps; 0: never", low=0, high=1 << 30, role="size", unit="steps", later=True,
    )
    carry_state: bool = setting(
        False, "lstm: the state of a batch begins where the one of the previous batch ended, without gradient; each "
        "sample then reads its own contiguous part of the tokens", check=check_bool, role="size", later=True,
    )
    op_order: str = setting(
        "layers", "lstm: order of the ops of its recurrence: layer after layer, or by anti-diagonals of layers and "
        "chunks of time, whose tiles are side by side; under task both give the same graph",
        choices=OP_ORDERS, role="order", later=True,
    )
    unit_slice: int | None = setting(
        None, "lstm: hidden units of a tile of its recurrence: each time is then an op with a tile for each block of "
        "units, all their gates; multiples of 48 fill packed panels; default: all units, and a chunk of time is a task",
        low=1, role="slices", unit="units", later=True,
    )
    init_scale: float = setting(
        0.0, "lstm: limit of the uniform initial weights; 0: those of torch.nn.LSTM", check=AMOUNT, role="values",
        later=True,
    )
    ranks: int = setting(
        1, "R: processes that share a step, each with threads of its own; by default each has batch / R sequences or "
        "images, so R must divide batch (docs/how-to/several-ranks.md)", low=1, high=4096, role="slices",
        unit="ranks", later=True,
    )
    parallel: str = setting(
        "data", "what ranks divide. data: the batch; tensor: of a gpt2 the matrices, so that each rank computes some "
        "heads, columns of the MLP and logits for all of the batch; hybrid: of a vgg the batch in the convolutions and "
        "the matrices of the dense layers, which get all of the batch (docs/how-to/several-ranks.md)",
        choices=PARALLELS, role="slices", later=True,
    )
    seed: int = setting(
        1337, "seed of the initial weights and of synthetic data", low=0, high=(1 << 63) - 1, role="seed"
    )
    trace: str | None = setting(
        None, "file for a trace of the timed steps: .json or .json.gz for Chrome and Perfetto, .prv for Paraver",
        check=check_path, role="output",
    )
    allow_oversubscription: bool = setting(
        False, "allow more threads than cores; for tests of correctness, never for timing", check=check_bool,
        role="permission",
    )
    mode: str = setting(
        "train", "train; infer: the forward pass alone, without gradients and updates", choices=tuple(MODES),
        role="size", group="training", later=True,
    )
    logits: str = setting(
        "all",
        "infer: logits of all positions, of the last position of each sequence, or of all without keeping them (each "
        "slice's replace those of another one)", choices=LOGITS, role="size", later=True,
    )
    score: bool = setting(
        False, "infer: whether each step computes the mean negative log-likelihood", check=check_bool, role="size",
        later=True,
    )
    generate: int = setting(
        0, "infer: number of tokens to generate after the prompt, each after the first in a step; 0: none", low=0,
        high=1 << 20, role="size", unit="tokens", later=True,
    )
    prompt: tuple[int, ...] | None = setting(
        None, "generate: the token ids that come first, such as 15496,995", role="size", later=True
    )
    temperature: float = setting(
        0.0, "generate: 0 for the token with the largest logit, otherwise a draw from the softmax of logits / "
        "temperature by the seed", check=AMOUNT, role="values", later=True,
    )

    def __post_init__(self) -> None:
        given = vars(self)
        errors = caught(lambda: object.__setattr__(self, "model", model_from(self.model)))
        if self.prompt is not None:
            errors += caught(lambda: object.__setattr__(self, "prompt", generation.parse_prompt(self.prompt)))
        if not errors:
            for name, value in networks.own_defaults(self, OF_NETWORK).items():
                object.__setattr__(self, name, value)
        for name, default, check in CHECKS:
            if given[name] is not default:
                errors += caught(check, name, given[name])
        if self.cores is not None:
            errors += caught(lambda: object.__setattr__(self, "cores", parse_cores(self.cores)))
        raise_together(errors)
        raise_together(list(conflicts(self, DEFAULTS)))
        if self.op_threads is not None:
            object.__setattr__(self, "op_threads", parse_op_threads(self.op_threads, self.threads))
        if self.stop_at is not None:
            object.__setattr__(self, "stop_at", parse_goal(self.stop_at))

    @property
    def read_split(self) -> str | None:
        """The split that inference or evaluations read; None: a run that only trains."""
        return modes.read_split(self)

    @property
    def part(self) -> TrainConfig:
        """What one rank computes: its part of each batch, or all of it, if ranks divide matrices."""
        return self if self.matrix_ranks > 1 else self.batch_part

    @property
    def batch_part(self) -> TrainConfig:
        """What one rank computes of the layers whose batch ranks divide: a part of each batch, as some of the
        micro-batches of a run without ranks; all of it, if there are no such layers."""
        if self.batch_ranks == 1:
            return self
        batch, micros = self.batch // self.ranks, self.grad_accum * self.ranks
        return dataclasses.replace(self, ranks=1, cores=None, batch=batch, grad_accum=micros)

    @property
    def fused(self) -> str:
        """The kernels that share a task; "none" if the network's step does not support the default."""
        if self.fusion is not None:
            return self.fusion
        default = modes.fusion(self)
        return default if default in networks.network(self.model.network).fusions else "none"

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; from_dict gives the same config back. `runtime` is left out where the scheduler has none,
        so that trainers without this setting accept the run."""
        out = dict(vars(self))  # dataclasses.asdict copies deeply: too slow for sweeps of ten thousand runs
        out["model"] = self.model.to_dict()
        if self.runtime == schedulers.AUTO and "runtime" not in schedulers.scheduler(self.scheduler).options:
            del out["runtime"]
        for name, kind in (("cores", list), ("prompt", list), ("op_threads", dict), ("stop_at", dict)):
            if out[name] is not None:
                out[name] = kind(out[name])
        return out

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """A config from JSON values. Raises ConfigError for an unknown key or a value that is not accepted."""
        if not values.keys() <= NAME_SET:
            raise_together([error for name, value in values.items() for error in wrong(name, value)])
        return cls(**values)


SETTINGS = dataclasses.fields(TrainConfig)
FIELDS = {item.name: item for item in SETTINGS}
NAMES = tuple(FIELDS)
NAME_SET = frozenset(NAMES)
DEFAULTS = {item.name: item.default for item in SETTINGS}
OF_NETWORK: dict[str, Any] = {name: DEFAULTS[name] for name in NAMES if FIELDS[name].metadata.get("by_network")}

CHECKS = tuple(checks(SETTINGS))  # made once; defaults are left out: a sweep makes ten thousand configurations
CHECK_OF: Mapping[str, Check] = {name: check for name, _, check in CHECKS} | {
    "model": lambda _, value: model_from(value),
    "cores": lambda _, value: parse_cores(value),
    "prompt": lambda _, value: generation.parse_prompt(value),
    "op_threads": lambda _, value: parse_op_threads(value, MOST_CORES),
    "stop_at": lambda _, value: parse_goal(value),
}


def wrong(name: str, value: object) -> list[ConfigError]:
    """The errors of a setting by itself: it is unknown, or no run accepts the value."""
    if name not in NAME_SET:
        return [ConfigError(str(name), value, "no such setting; known: " + ", ".join(NAMES))]
    unset = value is None and DEFAULTS[name] is None
    found = [] if unset or name not in CHECK_OF else caught(CHECK_OF[name], name, value)
    return (wrong_sizes(value) or found) if found and name == "model" else found
