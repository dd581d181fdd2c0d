"""One PyTorch run in a process of its own: the settings (TrainConfig as JSON, and `compiled`) on standard input, the
measurements as one JSON line on standard output. The model and its step are in bench.torch_gpt2.

PyTorch at its usual best on a CPU: fused AdamW, scaled_dot_product_attention, gradients set to None, optionally
torch.compile, whose compilation falls in the warm-up steps. bf16 is autocast of the forward pass over fp32 weights.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from typing import Any


def main() -> None:
    spec = json.loads(sys.stdin.read())
    cores, threads = spec["config"]["cores"], spec["config"]["threads"]
    os.sched_setaffinity(0, cores)  # before PyTorch counts cores and starts threads
    os.environ["OMP_NUM_THREADS"] = str(threads)
    json.dump(measure(spec), sys.stdout)


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Losses, seconds of each step and of its phases, and the peak memory of this process."""
    import torch

    from bench.torch_gpt2 import batch_of, new_adamw, read_llmc_checkpoint
    from gpt2core.data.sources import open_tokens
    from gpt2core.spec.config import TrainConfig

    config = TrainConfig.from_dict(spec["config"])
    assert config.checkpoint is not None
    torch.set_num_threads(config.threads)
    model = read_llmc_checkpoint(config.checkpoint)
    optimizer = new_adamw(model, config, fused=True)
    stream = open_tokens(config)
    step_of: Any = torch.compile(model) if spec["compiled"] else model
    losses: list[float] = []
    ends = [time.perf_counter_ns()]
    phase_s: dict[str, list[float]] = {"forward": [], "backward": [], "update": []}
    for step in range(config.steps):
        for seconds in phase_s.values():
            seconds.append(0.0)
        losses.append(0.0)
        at = ends[-1]
        for micro in range(config.grad_accum):
            with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"):
                loss = step_of(*batch_of(stream, step * config.grad_accum + micro, config.batch, config.seq))
            losses[-1] += float(loss.detach()) / config.grad_accum
            forward_end = time.perf_counter_ns()
            (loss / config.grad_accum if config.grad_accum > 1 else loss).backward()
            backward_end = time.perf_counter_ns()
            phase_s["forward"][-1] += (forward_end - at) / 1e9
            phase_s["backward"][-1] += (backward_end - forward_end) / 1e9
            at = backward_end
        if config.grad_clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends.append(time.perf_counter_ns())
        phase_s["update"][-1] = (ends[-1] - at) / 1e9
    return {
        "losses": losses,
        "step_s": [(end - begin) / 1e9 for begin, end in itertools.pairwise(ends)],
        "phase_s": phase_s,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "environment": {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "observed_cores": sorted(os.sched_getaffinity(0)),
            "mkl": torch.backends.mkl.is_available(),
            "mkldnn": torch.backends.mkldnn.is_available(),
        },
    }


if __name__ == "__main__":
    main()
