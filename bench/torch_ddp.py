"""One rank of PyTorch's DistributedDataParallel over gloo, in its own process: the settings as JSON on standard input
(`config` of the whole batch with the rank's cores, `rank`, `ranks`, `address` of rank 0, `interface`, `bucket_mb`, and
a Peer of bench.torch_peers), the measurements as one JSON line on standard output.

DDP averages a bucket's gradients among the ranks while the backward pass goes on, and every rank updates all weights.
Buffers are not exchanged. Losses are averaged over the ranks after the last step, so no step waits for them.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any

PORT = 29_500


def main() -> None:
    spec = json.loads(sys.stdin.read())
    os.sched_setaffinity(0, spec["config"]["cores"])  # before PyTorch counts cores and starts threads
    os.environ["GLOO_SOCKET_IFNAME"] = spec["interface"]
    json.dump(measure(spec), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that ends as usual


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Losses of the whole batch, and seconds of each step of this rank."""
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from bench import torch_step
    from gpt2core.spec.config import TrainConfig

    config = TrainConfig.from_dict(spec["config"])
    torch.set_num_threads(config.threads)
    address = f"tcp://{spec['address']}:{PORT}"
    distributed.init_process_group("gloo", init_method=address, rank=spec["rank"], world_size=spec["ranks"])
    model, optimizer, batch_of = torch_step.prepared(config, spec)
    parallel = DistributedDataParallel(
        model, bucket_cap_mb=spec["bucket_mb"], gradient_as_bucket_view=True, broadcast_buffers=False
    )
    rows = config.batch // spec["ranks"]
    mine = slice(spec["rank"] * rows, (spec["rank"] + 1) * rows)
    losses: list[float] = []
    ends = [time.perf_counter_ns()]
    for step in range(config.steps):
        loss = parallel(*(each[mine] for each in batch_of(step)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        ends.append(time.perf_counter_ns())
    total = torch.tensor(losses, dtype=torch.float64)
    distributed.all_reduce(total)
    distributed.destroy_process_group()
    return {
        "losses": [float(each) / spec["ranks"] for each in total],
        "step_s": [(end - begin) / 1e9 for begin, end in itertools.pairwise(ends)],
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    main()
