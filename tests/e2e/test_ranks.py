"""Several ranks on this machine, connected by MPI: bits, communication, traces, and errors that all agree on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.gpt2.checkpoint import read_checkpoint
from gpt2core.networks.gpt2.parts import whole_of
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.networks.memory import plan
from gpt2core.networks.vgg.tensors import DIVIDED, LAYERS, Vgg
from gpt2core.node import openmp
from gpt2core.process import launch
from gpt2core.process.child import Child, Exited, Reported, Waiting
from gpt2core.process.ranks import launcher
from gpt2core.ranks.layout import SHARES
from gpt2core.run.train import train, weights_sha256
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import SYNCS
from gpt2core.spec.models import ModelConfig
from gpt2core.spec.schedulers import SCHEDULERS, scheduler
from taskloom import trace_files
from taskloom.analysis import chrome, paraver
from taskloom.analysis.messages import messages
from tests.support.command_line import json_of, taskloom
from tests.support.divided import train_divided
from tests.support.folded import train_folded
from tests.support.ranked import COMPILES_S, DIVISIBLE, HYBRID, OPEN_MPI, SMALL, TENSOR
from tests.support.trace_checks import check_chrome, check_paraver

ROOT = Path(__file__).parents[2]
HOW: list[dict[str, Any]] = [
    {"scheduler": "serial"}, {"scheduler": "fork-join", "threads": 2},
    {"scheduler": "fork-join", "threads": 2, "assignment": "dynamic"},
    *({"scheduler": "task", "threads": 2, "sync": sync} for sync in SYNCS),
    {"scheduler": "task", "policy": "critical-path"}, {"scheduler": "omp-for", "threads": 2},
    *({"scheduler": "omp-task", "threads": 2, "sync": sync} for sync in SYNCS),
]  # fmt: skip
pytestmark = pytest.mark.timeout(COMPILES_S + 100)


def ranked(folder: Path, configs: list[TrainConfig], **environment: str) -> list[dict[str, Any]]:
    """The losses of configurations and the hashes of all ranks' weights, computed by so many processes."""
    (folder / "configs.json").write_text(json.dumps([each.to_dict() for each in configs]))
    program = [str(ROOT / "tests/support/rank_program.py"), str(folder / "configs.json"), str(folder / "found.json")]
    command = [*launcher(configs[0].ranks), sys.executable, *program]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMPILES_S, check=False,
        env={**launch.environment(), **environment}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "found.json").read_text())
    for config, each in zip(configs, found, strict=True):
        check_communication(config, each.pop("communication"))
    return found


def bytes_of_a_step(config: TrainConfig) -> dict[str, int]:
    """What each rank gets of the others in a step by the exchanges of each kind, the sum over all ranks for one other.
    """
    found = {"loss": 8 * SHARES * config.ranks}
    if isinstance(config.model, Vgg):
        channels, images = LAYERS[-2] * config.model.width, 4 * config.batch * config.grad_accum
        folded = 4 * sum(spec.size for each in config.model.convolutions for spec in each.specs)
        found |= {"gather": images * channels, "fc": images * config.ranks * config.model.hidden,
                  "gather_dinp": images * channels, "gradients": folded, "weights": folded}  # fmt: skip
    elif isinstance(config.model, ModelConfig) and config.matrix_ranks > 1:
        rows = 4 * config.ranks * config.batch * config.seq * config.grad_accum
        once, layers = rows * config.model.channels, rows * config.model.channels * config.model.layers
        found |= {"encoder": once, "projection": layers, "fc_projection": layers, "cross_entropy": 3 * rows,
                  "logits_dinp": once, "fc_dinp": layers, "qkv_dinp": layers}  # fmt: skip
    else:
        elements = sum(spec.size for spec in plan(config)["weights"].specs)
        found |= {"gradients": 4 * elements, "weights": 4 * elements}
    return found | ({"norm": 8 * config.ranks} if config.grad_clip else {})


def check_communication(config: TrainConfig, ranks: list[dict[str, Any]]) -> None:
    """What the ranks sent and for how long, as far as it does not depend on the speed of anything."""
    of_a_step = bytes_of_a_step(config)
    kinds = list(of_a_step)
    assert [(rank["rank"], [each["exchange"] for each in rank["exchanges"]]) for rank in ranks] == [
        (number, kinds) for number in range(config.ranks)
    ]
    timed, others = config.steps - config.warmup_steps, config.ranks - 1
    for number, kind in enumerate(kinds):
        each = [rank["exchanges"][number] for rank in ranks]
        for way in ("bytes_sent", "bytes_received"):
            assert sum(one[way] for one in each) == timed * others * of_a_step[kind], (kind, way)
    held = not scheduler(config.scheduler).second_moment
    first, *links = [(rank["latency_s"], rank["bytes_per_s"]) for rank in ranks]
    assert first == (None, None)
    for latency_s, bytes_per_s in links:
        assert 0 < latency_s < 1
        assert 2**20 / bytes_per_s < 10
    for rank in ranks:
        assert len(rank["useful_s"]) == config.threads
        assert sum(rank["useful_s"]) > 0  # on a busy machine a thread may get no task
        for each in rank["exchanges"]:
            assert min(each["calls_s"], each["in_flight_s"]) > 0, each
            assert each["exposed_s"] >= 0, each
            assert not held or 0 < each["exposed_s"] <= each["in_flight_s"], each
        for name in ("calls_s", "in_flight_s", "exposed_s"):
            assert len(rank[name]) == config.steps
            of_kinds, together = sum(each[name] for each in rank["exchanges"]), sum(rank[name][config.warmup_steps :])
            if name == "in_flight_s":
                assert together <= of_kinds * (1 + 1e-9)
            else:
                assert together == pytest.approx(of_kinds)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_scheduler_gives_the_bits_of_the_fold_in_one_process(tmp_path, ranks):
    losses, weights = train_folded(SMALL, ranks)
    assert {how["scheduler"] for how in HOW} == set(SCHEDULERS)
    ways = [how for how in HOW if openmp.find() or not how["scheduler"].startswith("omp")]
    for how, found in zip(
        ways, ranked(tmp_path, [dataclasses.replace(SMALL, ranks=ranks, **how) for how in ways]), strict=True
    ):
        assert found == {"losses": losses, "weights": [weights_sha256(weights)] * ranks}, how


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("settings", "fusions"),
    [({}, ("none", "all")), ({"precision": "bf16"}, ("none", "all")), ({"grad_clip": 0.5}, ("none",))], ids=str,
)  # fmt: skip
def test_ranks_that_divide_the_matrices_have_the_bits_of_one_process(tmp_path, ranks, settings, fusions):
    """Under every scheduler, and with every fusion."""
    wish = dataclasses.replace(TENSOR, batch=3, ranks=ranks, **settings)
    losses, weights = train_divided(wish)
    hashes = "".join(map(weights_sha256, weights))
    sha256 = hashlib.sha256(hashes.encode()).hexdigest()
    ways = [how for how in HOW if openmp.find() or not how["scheduler"].startswith("omp")]
    ways += [{"scheduler": "task", "sync": "none", "threads": 2, "fusion": fusion} for fusion in fusions]
    ways[0] = {**ways[0], "save": str(tmp_path / "weights.bin")}
    for how, found in zip(ways, ranked(tmp_path, [dataclasses.replace(wish, **how) for how in ways]), strict=True):
        assert found == {"losses": losses, "weights": [sha256] * ranks}, how
    saved = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(DIVISIBLE)}
    read_checkpoint(tmp_path / "weights.bin", DIVISIBLE, saved)
    for name, whole in saved.items():
        np.testing.assert_array_equal(whole, whole_of(name, [each[name] for each in weights]), name)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", [{}, {"grad_clip": 0.5, "grad_accum": 2}], ids=str)
def test_ranks_that_divide_batch_and_matrices_have_the_bits_of_one_process(tmp_path, ranks, settings):
    wish = dataclasses.replace(HYBRID, ranks=ranks, **settings)
    losses, weights = train_divided(wish)
    sha256 = hashlib.sha256("".join(map(weights_sha256, weights)).encode()).hexdigest()
    ways = [how for how in HOW if openmp.find() or not how["scheduler"].startswith("omp")]
    ways += [{"scheduler": "task", "sync": "none", "threads": 2, "fusion": "none"}]
    ways[0] = {**ways[0], "save": str(tmp_path / "weights.safetensors")}
    for how, found in zip(ways, ranked(tmp_path, [dataclasses.replace(wish, **how) for how in ways]), strict=True):
        assert found == {"losses": losses, "weights": [sha256] * ranks}, how
    one = dataclasses.replace(wish, ranks=1, checkpoint=ways[0]["save"], lr=0.0, steps=1, warmup=0)
    (saved,) = train_divided(one)[1]
    for name, array in saved.items():
        parts = [each[name] for each in weights]
        whole = np.concatenate(parts, DIVIDED[name]) if name in DIVIDED else parts[0]
        np.testing.assert_array_equal(array, whole, name)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_limited_gradients_have_the_norm_of_all_ranks(tmp_path, ranks):
    wish = dataclasses.replace(SMALL, grad_clip=0.5)
    losses, weights = train_folded(wish, ranks)
    assert losses != train_folded(SMALL, ranks)[0]
    np.testing.assert_allclose(losses, train(wish).losses, rtol=1e-5)
    ways = [HOW[0], {"scheduler": "task", "threads": 2, "sync": "none"}]
    for how, found in zip(
        ways, ranked(tmp_path, [dataclasses.replace(wish, ranks=ranks, **how) for how in ways]), strict=True
    ):
        assert found == {"losses": losses, "weights": [weights_sha256(weights)] * ranks}, how


def test_all_ranks_evaluate_the_same_and_go_on(tmp_path):
    """Evaluations change no bit of the training, and are those of a run without ranks but for roundings."""
    model = {"network": "resnet", "blocks": 1, "width": 5, "classes": 7, "side": 9}
    images: dict[str, Any] = {"model": model, "batch": 6, "batch_slice": 1, "steps": 4, "warmup": 1, "val_samples": 7}
    wish = TrainConfig.from_dict({**images, "scheduler": "serial", "evaluate_every": 2, "allow_oversubscription": True})
    one = train(wish)
    two = dataclasses.replace(wish, ranks=2)
    ways = [two, dataclasses.replace(two, scheduler="task", threads=2, sync="none")]
    every = ranked(tmp_path, [*ways, dataclasses.replace(two, evaluate_every=0)])
    plain = every.pop()
    for found in every:
        assert {name: found[name] for name in plain} == plain
        assert found["evaluations"] == [every[0]["evaluations"][0]] * 2
        assert [each["step"] for each in found["evaluations"][0]] == [2, 4]
        losses = [each["loss"] for each in found["evaluations"][0]]
        assert losses == pytest.approx([each["loss"] for each in one.evaluations], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("wish", [SMALL, TENSOR, HYBRID], ids=lambda each: each.parallel)
def test_delayed_tasks_change_no_bit_and_lock_nothing(tmp_path, wish):
    """SEEDS=25 makes 100 runs of each."""
    wish = dataclasses.replace(wish, steps=40)
    losses, _ = train_folded(wish, 2) if wish.parallel == "data" else train_divided(dataclasses.replace(wish, ranks=2))
    tasks: list[dict[str, Any]] = [{"scheduler": "task", "sync": sync} for sync in SYNCS]
    ways = [*tasks, {"scheduler": "omp-task", "sync": "none"} if openmp.find() else {"scheduler": "fork-join"}]
    configs = [dataclasses.replace(wish, ranks=2, threads=2, **how) for how in ways]
    for seed in range(int(os.environ.get("SEEDS", "3"))):
        for found in ranked(tmp_path, configs, DELAYS=str(10 * seed)):
            assert found["losses"] == losses


CLOCK_ERROR_NS = 50_000_000  # half of the shortest answer to a question for the time, beside other load


def test_a_trace_has_all_ranks_on_the_clock_of_rank_0(tmp_path):
    """Also if a rank's clock is 1000 s ahead, as on another machine."""
    tasks: dict[str, Any] = {"scheduler": "task", "sync": "none"}
    tensor = {**tasks, "model": DIVISIBLE, "parallel": "tensor"}
    ways: list[dict[str, Any]] = [{"scheduler": "fork-join"}, tasks, tensor]
    configs = [dataclasses.replace(SMALL, ranks=2, threads=2, trace=str(tmp_path / f"{number}.json.gz"), **how)
               for number, how in enumerate(ways)]  # fmt: skip
    configs.append(dataclasses.replace(HYBRID, ranks=2, threads=2, trace=str(tmp_path / "hybrid.json.gz"), **tasks))
    ranked(tmp_path, configs, SKEW_NS=str(10**12))
    for config in configs:
        assert config.trace is not None
        trace, timed = trace_files.read(Path(config.trace)), config.steps - config.warmup_steps
        begins_ns = [each.begin_ns for each in trace.ranks]
        assert (len(begins_ns), min(begins_ns)) == (2, 0)
        assert max(begins_ns) < 10**9
        sent = list(messages(trace))
        for number, each in enumerate(trace.ranks):
            assert each.complete
            assert len(each.ended) == timed * len(each.label)
            layout = layout_of(config, number)
            of_a_step = sum(layout.bytes_of(kind)[0] for kind in layout.kinds)
            assert sum(message.bytes for message in sent if message.sender == number) == timed * of_a_step
        for message in sent:
            at = trace.ranks[message.receiver]
            latest_ns = at.step_end_ns[message.step - at.first_step] + CLOCK_ERROR_NS
            assert -CLOCK_ERROR_NS < message.to_ns <= latest_ns, message
        check_chrome("".join(chrome.chrome([("run", trace)])))
        check_paraver("\n".join(paraver.prv(trace, datetime.now())))


# What a launcher would take its hosts, its way to start processes, and what it prints from.
SURROUNDINGS = {
    "SLURM_JOB_ID": "5", "SLURM_JOBID": "5", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODELIST": "no-such-node-[1-2]", "SLURM_JOB_NODELIST": "no-such-node-[1-2]", "PBS_NODEFILE": "/no/such/file",
    "HYDRA_HOST_FILE": "/no/such/file", "HYDRA_ENV": "none", "MPIEXEC_TIMEOUT": "1", "PMI_RANK": "1", "PMI_SIZE": "4",
    "PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.5.0",
}  # fmt: skip


def test_the_command_trains_with_ranks_on_this_machine_inside_a_job_of_several_nodes(monkeypatch):
    common = ("train", "--model", "tiny", "--batch", "4", "--seq", "16", "--steps", "3", "--json",
              "--allow-oversubscription")  # fmt: skip
    one = json_of(taskloom(*common))
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)
    two = json_of(taskloom(*common, "--ranks", "2"))
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert two["config"]["ranks"] == 2
    assert two["config"]["batch"] == 4
    assert two["environment"]["mpi"].startswith("Open MPI " if OPEN_MPI else "MPICH ")
    assert "mpi" not in one["environment"]
    check_communication(TrainConfig.from_dict(two["config"]), two["communication"])
    assert one["communication"] == []
    assert two["summary"]["tokens_per_s"] * sum(two["step_s"][2:]) == pytest.approx(4 * 16)


def test_a_thread_that_waits_for_messages_is_not_useful_while_a_task_holds_it():
    common = ("train", "--model", "tiny", "--batch", "4", "--seq", "16", "--steps", "3", "--json", "--ranks", "2",
              "--allow-oversubscription", "--threads", "2")  # fmt: skip
    for scheduler_name in ("fork-join", "task"):
        found = json_of(taskloom(*common, "--scheduler", scheduler_name))
        useful_s = [thread["useful_s"] for thread in found["threads"]]
        assert found["communication"][0]["useful_s"] == useful_s
        waits_s = sum(op["time_s"] for op in found["ops"] if op["op"].endswith("_arrived"))
        held_s = waits_s if scheduler_name == "fork-join" else 0.0
        assert waits_s > 0
        assert sum(op["time_s"] for op in found["ops"]) == pytest.approx(sum(useful_s) + held_s)
        for thread in found["threads"]:
            assert sum(thread["phase_useful_s"].values()) == pytest.approx(thread["useful_s"])
            spent_s = sum(thread[name] for name in ("useful_s", "scheduling_s", "waiting_s", "idle_s"))
            assert spent_s == pytest.approx(sum(found["step_s"][found["config"]["warmup"] :]))


def test_all_ranks_stop_at_a_loss_that_is_not_finite():
    wrong = ("--steps", "50", "--lr", "1e5", "--ranks", "2", "--allow-oversubscription", "--json")
    done = taskloom("train", "--model", "tiny", "--batch", "4", "--seq", "16", *wrong)
    assert done.returncode == 1
    assert json.loads(done.stderr.splitlines()[-1])["slug"] == "not-finite", done.stderr


@pytest.mark.parametrize(
    ("change", "slug"),
    [({"lr": -1}, "bad-config"), ({"cores": [4095], "allow_oversubscription": True}, "bad-config"),
     ({"data": "/no/such/file"}, "unreadable-file"), ({"checkpoint": "/no/such/file.bin"}, "unreadable-file")],
)  # fmt: skip
def test_an_error_of_all_ranks_is_reported_once(tmp_path, change, slug):
    """A launcher that misses the end of its rank is killed, as a worker's would be."""
    inbox: SimpleQueue[Any] = SimpleQueue()
    trainer = Waiting(launch.command(tmp_path / "result.json", ranks=2))
    Child(trainer, dataclasses.replace(SMALL, ranks=2).to_dict() | change, inbox)
    events: list[dict[str, Any]] = []
    while not isinstance(message := inbox.get(timeout=COMPILES_S), Exited):
        if isinstance(message, Reported):
            events.append(dict(message.event))
    assert [event["slug"] for event in events if event["event"] == "error"] == [slug]
    assert events[-1]["event"] == "error"
    assert message.code == events[-1]["exit_code"] == 2
