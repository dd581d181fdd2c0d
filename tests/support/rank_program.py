"""One rank of several, started by a launcher of MPI: trains the configurations in a file, one after the other, without
the canary, and measures the link between the ranks once.

Rank 0 writes each one's losses, the hashes of all ranks' weights, their evaluations, if there are any, and their
communication into another file.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import time
from pathlib import Path

from gpt2core.ranks.world import World
from gpt2core.run import canary
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig


def main() -> None:
    configs, found = json.loads(Path(sys.argv[1]).read_text()), []
    world = World(configs[0]["ranks"])
    canary.UNAVAILABLE = "bits are compared, not times"
    world.link = functools.cache(world.link)  # type: ignore[method-assign]  # it takes longer than a run
    from mpi4py import MPI  # which it has loaded for the threads of a run

    if stress := os.environ.get("DELAYS"):  # another one for each rank
        os.environ["TASKLOOM_STRESS"] = str(int(stress) + world.rank.number)
    if skew_ns := int(os.environ.get("SKEW_NS", "0")) * world.rank.number:  # of each rank's clock before rank 0's
        real = time.monotonic_ns
        time.monotonic_ns = lambda: real() + skew_ns
    for values in configs:
        result = train(TrainConfig.from_dict(values), world=world)
        weights = MPI.COMM_WORLD.gather(result.weights_sha256)
        ranks = [dataclasses.asdict(rank) for rank in result.communication]
        found.append({"losses": result.losses, "weights": weights, "communication": ranks})
        if result.evaluations:
            found[-1]["evaluations"] = MPI.COMM_WORLD.gather(result.evaluations)
    if world.rank.number == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))
    world.leave()


main()
