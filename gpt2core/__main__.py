"""The trainer as a process: `python -m gpt2core --result FILE`. process/launch.py describes its input and output."""

from __future__ import annotations

import argparse
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpt2core.node.files import output
from gpt2core.process import trainer
from gpt2core.process.node_time import NodeTime, process_started_s
from gpt2core.process.trainer import emit
from gpt2core.spec import preflight
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import Cancelled, ConfigError, MachineError, NotFinite
from gpt2core.spec.files import write_text
from gpt2core.spec.threads import end_with_threads

if TYPE_CHECKING:
    from gpt2core.ranks.world import World
    from gpt2core.spec.result import TrainResult

START_S = 60.0  # for all ranks to connect


def run(arguments: argparse.Namespace, stop: threading.Event) -> None:
    """Execute the request. Raises CoreError."""
    spent = NodeTime(process_started_s())
    from gpt2core.run import train  # takes a while: a worker may start us before it has settings

    world = None
    if arguments.ranks > 1 and not arguments.plan:
        from gpt2core.ranks.world import World  # connects to the other ranks

        trainer.end_with_launcher()
        late = f"the {arguments.ranks} ranks did not connect within {START_S:g} s: one failed, or cannot be reached"
        with trainer.within(START_S, MachineError(late)):
            world = World(arguments.ranks, arguments.nodes)
    accept = partial(accepted, arguments)
    config = world.from_first(accept) if world else accept()
    spent.went_to("starting")
    if arguments.graph is not None and (world is None or world.rank.number == 0):
        text = train.graph_dot(config)
        with output("graph", arguments.graph):
            write_text(arguments.graph, text)
    if arguments.plan:
        processor()  # a plan is refused as its run would be
        emit(train.plan_event(config, arguments.prove))
        return
    # A worker creates a folder beside the result for files that it delivers with the result.
    beside = None if arguments.result is None else arguments.result.parent / "artifacts"
    artifacts = beside if beside is not None and beside.is_dir() else None
    if world is not None:
        run_rank(world, config, stop, arguments, artifacts, spent)
        return
    report(arguments, train.train(config, emit, stop, arguments.profile, artifacts, spent, arguments.prove))


def accepted(arguments: argparse.Namespace) -> TrainConfig:
    """The settings on standard input. Raises InputError."""
    config = TrainConfig.from_dict(trainer.read_settings())
    if config.ranks != arguments.ranks and not arguments.plan:
        raise ConfigError("ranks", config.ranks, f"the number of ranks that were started ({arguments.ranks})")
    trainer.started()
    return config


def run_rank(
    world: World, config: TrainConfig, stop: threading.Event, arguments: argparse.Namespace, artifacts: Path | None,
    spent: NodeTime,
) -> None:  # fmt: skip
    """Execute one rank's part. Rank 0 reports, and writes its profile. Raises CoreError."""
    from gpt2core.run import train
    from gpt2core.run.prepare import silent

    first, code = world.rank.number == 0, 0
    try:
        events, profile, files = (emit, arguments.profile, artifacts) if first else (silent, None, None)
        result = train.train(config, events, stop, profile, files, spent, arguments.prove, world)
        if first:
            report(arguments, result)
    except (Cancelled, NotFinite) as error:  # all ranks have agreed on it
        code = trainer.failed(error) if first else 0
    world.leave()
    sys.exit(code)  # the library tells its launcher in an exit handler that this rank has not failed


def report(arguments: argparse.Namespace, result: TrainResult) -> None:
    """Report warnings and the result."""
    for warning in result.warnings:
        emit({"event": "warning", "message": warning})
    if arguments.result is not None:
        trainer.deliver(arguments.result, result.to_dict())


def processor() -> str:
    """The processor for which code is compiled. Raises ConfigError."""
    from gpt2core.compile import target

    return f"{len(target.features())} features, tasks timed by {target.clock()}"


CHECKS = (*preflight.TRAINING, preflight.Check("processor of compiled code", processor))


def main() -> int:
    """Run and return the exit code."""
    if sys.argv[1:] == [preflight.OPTION]:
        preflight.tell(CHECKS, sys.stdout)
        return 0
    parser = argparse.ArgumentParser(prog="python -m gpt2core", description=__doc__)
    parser.add_argument("--result", type=Path, help="file for the result (JSON)")
    parser.add_argument("--plan", action="store_true", help="print the sizes and stop")
    parser.add_argument("--graph", type=Path, help="file for the task graph (Graphviz)")
    parser.add_argument("--ranks", type=int, default=1, help="number of ranks of the run, which a launcher has started")
    parser.add_argument("--nodes", type=int, default=1, help="number of nodes over which the ranks are divided")
    parser.add_argument("--prove", action="store_true", help="prove the task graph even if a proven one is cached")
    parser.add_argument("--profile", type=Path, help="file for each task's cost and the graph (JSON, gzip)")
    return trainer.main(partial(run, parser.parse_args()))


if __name__ == "__main__":
    end_with_threads()
    trainer.leave(main())
