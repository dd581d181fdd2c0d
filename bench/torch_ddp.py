"""One rank of PyTorch's DistributedDataParallel over gloo, in its own process: the settings as JSON on standard input
(`config` of the whole batch with the rank's cores, `rank`, `ranks`, `address` and `port` of rank 0, `interface`,
`bucket_mb`, and a Peer of bench.torch_peers), the measurements as one JSON line on standard output.

DDP averages a bucket's gradients among the ranks while the backward pass goes on, and every rank updates all weights.
Buffers are not exchanged. Losses are averaged over the ranks after the last step, so no step waits for them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.record import ROOT
from bench.torch_peers import PEERS, environment

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

PORT = 29_500


def run_ddp(
    config: TrainConfig, bucket_mb: int, places: Sequence[tuple[Sequence[str], tuple[int, ...]]], address: str,
    interface: str, port: int = PORT,
) -> dict[str, Any]:  # fmt: skip
    """Measurements of rank 0, with the losses of all. config: of the whole batch; places:
    of each rank, a command that starts it where it is to run, and its cores. Raises SystemExit."""
    peer, processes = PEERS["torch-tuned"], []
    for rank, (prefix, own) in enumerate(places):
        part = dataclasses.replace(config, ranks=1, cores=own)
        spec = {"config": part.to_dict(), **dataclasses.asdict(peer), "rank": rank, "ranks": len(places),
                "address": address, "port": port, "interface": interface, "bucket_mb": bucket_mb}  # fmt: skip
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "bench.torch_ddp"], cwd=ROOT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment(peer, own)},
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps(spec))
        process.stdin.close()
        process.stdin = None
        processes.append(process)
    said = [process.communicate() for process in processes]
    for process, (out, errors) in zip(processes, said, strict=True):
        if process.returncode:
            raise SystemExit(f"a rank of PyTorch ended with {process.returncode}:\n{out[-2000:]}{errors[-2000:]}")
    found: dict[str, Any] = json.loads(said[0][0])
    return found


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
    address = f"tcp://{spec['address']}:{spec['port']}"
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
