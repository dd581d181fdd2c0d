"""Run PyTorch once in its own process: the settings (TrainConfig and a Peer of bench.torch_peers, as JSON) on
standard input, the measurements as one JSON line on standard output. Models are in bench.torch_gpt2,
bench.torch_lstm and bench.torch_images.

PyTorch as it is usually fastest on a CPU: fused AdamW, scaled_dot_product_attention, gradients set to None, optionally
torch.compile, whose compilation falls in the warm-up steps. bf16 is autocast of the forward pass over fp32 weights.
A tuned run has a padded vocabulary; the rest of its tuning is in the environment of its process.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

BUSY_SHARE = 0.1  # minimum share of the busiest thread's time for a thread that took part in the work


def main() -> None:
    spec = json.loads(sys.stdin.read())
    os.sched_setaffinity(0, spec["config"]["cores"])  # before PyTorch counts cores and starts threads
    json.dump(measure(spec), sys.stdout)


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Losses, seconds and page faults of each step, seconds of its phases, and the peak memory of this process."""
    import torch

    from gpt2core.spec.config import TrainConfig

    config = TrainConfig.from_dict(spec["config"])
    assert config.checkpoint is not None
    torch.set_num_threads(config.threads)
    torch.backends.mkldnn.set_flags(spec["onednn"])
    torch._dynamo.config.allow_rnn = spec["compiled_rnn"]
    model, optimizer, batch_of = prepared(config, spec)
    update: Any = torch.compile(optimizer.step) if spec["compiled_optimizer"] else optimizer.step
    step_of: Any = torch.compile(model, mode=spec["mode"]) if spec["compiled"] else model
    losses: list[float] = []
    faults = [page_faults()]
    ends = [time.perf_counter_ns()]
    phase_s: dict[str, list[float]] = {"forward": [], "backward": [], "update": []}
    before: dict[int, float] = {}
    trains = config.mode == "train"
    for step in range(config.steps):
        if step == config.warmup_steps:
            before = thread_times_s()
            ends[-1] = time.perf_counter_ns()
        for seconds in phase_s.values():
            seconds.append(0.0)
        losses.append(0.0)
        at = ends[-1]
        for micro in range(config.grad_accum):
            with (
                torch.inference_mode(not trains),
                torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"),
            ):
                loss = step_of(*batch_of(step * config.grad_accum + micro))
            losses[-1] += float(loss.detach()) / config.grad_accum
            forward_end = time.perf_counter_ns()
            if trains:
                (loss / config.grad_accum if config.grad_accum > 1 else loss).backward()
            backward_end = time.perf_counter_ns()
            phase_s["forward"][-1] += (forward_end - at) / 1e9
            phase_s["backward"][-1] += (backward_end - forward_end) / 1e9
            at = backward_end
        if config.grad_clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        if trains:
            update()
            optimizer.zero_grad(set_to_none=True)
        ends.append(time.perf_counter_ns())
        phase_s["update"][-1] = (ends[-1] - at) / 1e9
        faults.append(page_faults())
    return {
        "losses": losses,
        "step_s": [(end - begin) / 1e9 for begin, end in itertools.pairwise(ends)],
        "phase_s": phase_s if trains else {"forward": phase_s["forward"]},
        "page_faults": [after - before for before, after in itertools.pairwise(faults)],
        "threads_on": threads_on(before),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "environment": {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "mkl": torch.backends.mkl.is_available(),
            "mkldnn": torch.backends.mkldnn.is_available(),
        },
    }


def prepared(config: TrainConfig, spec: dict[str, Any]) -> tuple[Any, Any, Callable[[int], Any]]:
    """The model of the checkpoint, its optimizer, and what gives a batch by its number. Batches of images are converted
    before the first step, which ours does in it."""
    from bench import torch_gpt2, torch_images, torch_lstm
    from gpt2core.data.sources import open_tokens
    from gpt2core.spec.data import IMAGES

    if config.model.reads == IMAGES:
        return torch_images.prepared(config, spec["channels_last"])
    stream = open_tokens(config)
    if config.model.network == "gpt2":
        model: Any = torch_gpt2.read_llmc_checkpoint(config.checkpoint or "", spec["tuned"])
    else:
        model = torch_lstm.read_model(config)
    model.last = config.logits == "last"
    optimizer = torch_gpt2.new_optimizer(model, config, fused=not spec["compiled_optimizer"])
    return model, optimizer, lambda number: torch_gpt2.batch_of(stream, number, config.batch, config.seq)


def page_faults() -> int:
    """Page faults of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def thread_times_s() -> dict[int, float]:
    """Processor time of each thread so far, by its id."""
    return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}


def threads_on(before: dict[int, float]) -> list[list[int]]:
    """For each thread that took part in the work since then: the cores that it may run on."""
    spent_s = {thread: at_s - before.get(thread, 0.0) for thread, at_s in thread_times_s().items()}
    busiest_s = max(spent_s.values())
    return sorted(sorted(os.sched_getaffinity(t)) for t, s in spent_s.items() if s > BUSY_SHARE * busiest_s)


if __name__ == "__main__":
    main()
