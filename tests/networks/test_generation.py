"""Generated tokens and their logits are those of the whole forward pass, under every scheduler."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import network_of
from gpt2core.run import canary, code, prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.beside import step_beside
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import NotFinite
from gpt2core.spec.generation import read_bytes
from gpt2core.spec.models import model_from
from gpt2core.spec.result import TrainResult
from gpt2core.step import slicing
from gpt2core.step.ops import Program
from taskloom.server.errors import BadResult
from taskloom.server.queue.attempts import digest, payload
from tests.support import poison
from tests.support.apart import processes
from tests.support.networks import generating
from tests.support.networks.generating import MODELS, config, generated, logits_of
from tests.support.present import present

SCHEDULERS: list[dict[str, Any]] = [
    {"scheduler": "serial"},
    {"scheduler": "fork-join", "threads": 2},
    {"scheduler": "fork-join", "threads": 3, "assignment": "dynamic", "fusion": "none"},
    {"scheduler": "task", "threads": 2, "sync": "none"},
    {"scheduler": "task", "threads": 3, "sync": "phase"},
    {"scheduler": "omp-for", "threads": 2},
    {"scheduler": "omp-task", "threads": 2, "sync": "none"},
]


def run_without_canary(run: TrainConfig) -> TrainResult:
    """A run whose bits are compared, not its times."""
    canary.UNAVAILABLE = "bits are compared, not times"
    return train.train(run)


@pytest.mark.parametrize("network", MODELS)
def test_logits_are_those_of_the_whole_prefix(network: str) -> None:
    run = config(network)
    tokens, logits, _ = generated(run)
    prefix = list(present(run.prompt))
    assert len(set(tokens)) > 2  # the weights are such that tokens differ
    for number, token in enumerate(tokens):
        wanted, found = logits_of(network, prefix)[len(present(run.prompt)) - 1 :], logits[: number + 1]
        errors = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
        assert errors.max() <= 1e-5
        assert token == int(np.argmax(wanted[-1]))
        prefix.append(token)


@pytest.mark.parametrize("network", ["gpt2", "lstm"])
def test_drawn_tokens_follow_from_logits_and_draws(network: str) -> None:
    run = config(network, temperature=3.0, seed=5)
    tokens, logits, _ = generated(run)
    draws = network_of(run).data(run)["draws"]
    for token, line, draw in zip(tokens, logits.astype(np.float64), draws, strict=True):
        shares = np.exp((line - line.max()) / run.temperature)
        assert token == int(np.searchsorted(np.cumsum(shares), draw * shares.sum(), "right"))
    assert tokens == generated(run)[0]
    assert tokens != generated(config(network, temperature=3.0, seed=6))[0]


@pytest.mark.parametrize("network", MODELS)
def test_logits_of_rounded_weights_are_near(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens, read with both precisions: each row of logits is within 1 % of its norm. Larger weights than
    initial ones would enlarge the differences."""
    monkeypatch.setattr(generating, "LARGER", 1)
    exact = config(network)
    tokens, logits, _ = generated(exact)
    for number, wanted in enumerate(logits):
        half = config(network, precision="bf16", prompt=[*present(exact.prompt), *tokens[:number]], generate=1)
        error = np.linalg.norm(generated(half)[1][0] - wanted) / np.linalg.norm(wanted)
        assert 0 < error <= 1e-2


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", MODELS)
def test_a_token_is_that_of_a_prompt_which_ends_before_it(network: str, precision: str) -> None:
    """Read one by one in steps, or all at once before them: the logits agree but for their sums' order, whatever the
    length of the prompt and the weights' precision."""
    run = config(network, prompt=[5], generate=36, precision=precision)
    tokens, logits, _ = generated(run)
    for number in (0, 1, 15, 16, 33, 35):
        once = dataclasses.replace(run, prompt=(5, *tokens[:number]), generate=1, steps=1)
        (token,), (line,), _ = generated(once)
        assert token == tokens[number]
        assert np.linalg.norm(line - logits[number]) <= 1e-5 * np.linalg.norm(line)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", ["gpt2", "lstm"])
def test_tokens_do_not_depend_on_the_scheduler(network: str, precision: str) -> None:
    """In another process, which has no OpenMP runtime but the run's."""
    found = set()
    with processes() as apart:
        runs = [
            config(network, temperature=2.0, blas="own", allow_oversubscription=True, precision=precision, **how)
            for how in SCHEDULERS
        ]
        results = [apart("bits", run_without_canary, run) for run in runs]
    for run, result in zip(runs, results, strict=True):
        found.add((tuple(result.tokens), result.outputs_sha256))
        assert len(result.tokens) == run.generate
        assert 0 < result.time_to_first_token_s < 60
        assert (result.latency["steps"], len(result.step_s)) == (run.generate - 3, run.generate - 1)
        median_s = result.summary["median_step_s"]
        assert result.summary["weights_gb_per_s"] == pytest.approx(read_bytes(run) / median_s / 1e9)
    assert len(found) == 1


@pytest.mark.parametrize("network", MODELS)
def test_a_run_reads_its_prompt_and_then_takes_every_step(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "LARGER", 1)
    monkeypatch.setattr(canary, "UNAVAILABLE", "nothing is timed")
    run = config(network, temperature=2.0, scheduler="serial")
    result = train.train(run)
    assert result.tokens == generated(run)[0]
    assert min(result.step_s) > 0


@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize(("step", "precision"), [(0, "fp32"), (6, "fp32"), (6, "bf16")])
def test_tasks_of_generation_read_and_write_what_they_declare(network: str, step: int, precision: str) -> None:
    run = config(network, temperature=1.0, precision=precision)
    check_accesses(run, step)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", MODELS)
def test_tasks_that_read_the_prompt_read_and_write_what_they_declare(network: str, precision: str) -> None:
    for length in (1, 34):
        first = step_beside(config(network, temperature=1.0, precision=precision, prompt=[7] * length, generate=2))
        check_accesses(present(first), 0)


def check_accesses(run: TrainConfig, step: int) -> None:
    data = network_of(run).data(run)
    libraries = table.choose(code.load_libraries(run, program.build(run).products), [], prepare.silent)
    poison.check(program.build(run), plan(run), lambda memory: fill(memory, run, data), libraries, step)


@pytest.mark.parametrize("network", MODELS)
def test_the_prompt_is_read_in_one_pass(network: str) -> None:
    """Its products have the tiles of a token's, of each chunk of time if there are some, and the work of all its rows;
    logits are those of one row."""
    run = config(network, prompt=[7] * 24, threads=2, allow_oversubscription=True)
    planned = prepare.plan(run)
    assert planned.beside is not None
    assert (run.steps, planned.beside.config.seq) == (run.generate - 1, 24)
    found, wanted = work(planned.beside.program), work(planned.program)
    chunks = {"gates_in": slicing.count(planned.beside.config)}
    for name in ("gates_in",) if "lstm" in network else ("qkv", "projection", "fc", "fc_projection"):
        assert found[name] == [wanted[name][0] * chunks.get(name, 1), wanted[name][1] * 24]
    assert found["logits"] == wanted["logits"]


def work(step: Program) -> dict[str, list[int]]:
    """Tiles and FLOP of each op's name."""
    found: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for _, _, call, (_, flop, _) in step.calls:
        found[call.name][0] += 1
        found[call.name][1] += flop
    return found


@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize("sync", ["phase", "step", "none"])
def test_the_graph_is_proved_free_of_races(network: str, sync: str) -> None:
    planned = prepare.plan(config(network, scheduler="task", sync=sync), prove=True)
    assert len(planned.graph.crossing) > 0  # a step reads what the one before has chosen


@pytest.mark.parametrize("network", MODELS)
def test_weights_that_a_token_reads_are_those_of_the_model_but_for_tables(network: str) -> None:
    run = config(network)
    every = sum(weight.size for weight in generated(run)[2].values())
    tables = {"gpt2": 39 * 48, "lstm": 259 * 40, "lstm-tied": 0}  # rows of other positions, or tokens
    assert run.model.read_weights() == every - tables[network]
    half = config(network, precision="bf16")
    vectors = sum(spec.size for spec in plan(half)["weights"].specs if spec.dtype == "float32")
    assert run.model.read_vectors() == vectors
    assert read_bytes(half) == 2 * (every - tables[network]) + 2 * vectors
    assert read_bytes(run) == 4 * (every - tables[network])


def test_a_server_checks_the_tokens_of_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "UNAVAILABLE", "nothing is timed")
    run = config("gpt2", generate=2)
    result = train.train(run).to_dict()

    def check(changed: dict[str, Any]) -> payload.Payload:
        text = json.dumps({"result": {**result, **changed}, "error": None})
        return payload.check(text, hashlib.sha256(text.encode()).hexdigest(), "succeeded", run.to_dict())

    measured = json.loads(digest.digest(present(check({}).result))["measured"])
    assert measured["time_to_first_token_s"] == result["time_to_first_token_s"]
    with pytest.raises(BadResult, match=r"`result.tokens` has 1 entries for 2 tokens"):
        check({"tokens": result["tokens"][:1]})
    for name in ("tokens", "time_to_first_token_s"):
        with pytest.raises(BadResult, match=name):
            check({name: None})


def test_logits_that_are_not_finite_end_the_run(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpt2core.networks.gpt2.checkpoint import write_checkpoint

    monkeypatch.setattr(canary, "UNAVAILABLE", "nothing is timed")
    weights = generated(config("gpt2", generate=1))[2]
    weights["lnfw"][0] = np.inf
    path = tmp_path / "weights.bin"
    model: Any = MODELS["gpt2"]
    write_checkpoint(path, model, weights)
    with pytest.raises(NotFinite, match="logits"):
        train.train(config("gpt2", generate=2, checkpoint=str(path)))


def test_memory_grows_by_keys_and_values_of_a_position() -> None:
    def sizes(generate: int) -> dict[str, int]:
        return memory_bytes(TrainConfig(model=model_from("gpt2-124m"), mode="infer", prompt=(1, 2), generate=generate))

    few, more = sizes(64), sizes(128)
    assert few["gradients"] == few["optimizer"] == 0
    of_tokens = 64 * (4 + 8)  # tokens and draws
    assert more["temporary"] - few["temporary"] == 64 * 12 * 2 * 768 * 4 + of_tokens
    assert more["activations"] == few["activations"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize("length", [1, 20])
def test_what_steps_need_of_the_prompt_lies_where_it_was_left(network: str, precision: str, length: int) -> None:
    """All else of either may lie in the memory of the other. Arenas are as large as the larger of both."""
    run = config(network, precision=precision, prompt=[7] * length, generate=4, threads=2)
    plans = [plan(present(step_beside(run))), plan(run)]
    first, both = (
        {spec.name: (at, spec) for spec, at in zip(each["temporary"].specs, each["temporary"].offsets, strict=True)}
        for each in plans
    )
    state = ("keys", "values") if network == "gpt2" else ("state_h", "state_cell")
    for name in ("prompt", "tokens", "draws", "temperature", *state):
        assert first[name] == both[name]
    for kind in ("activations", "temporary"):
        arenas = [each[kind] for each in plans]
        ends = [max(at + spec.bytes for spec, at in zip(each.specs, each.offsets, strict=True)) for each in arenas]
        assert arenas[1].bytes == -(-max(ends) // 64) * 64
        assert memory_bytes(run)[kind] == arenas[1].bytes >= arenas[0].bytes



def test_rounded_weights_need_half_the_memory() -> None:
    run = TrainConfig(model=model_from("gpt2-124m"), mode="infer", prompt=(1, 2), generate=64)
    half = dataclasses.replace(run, precision="bf16")
    sizes = {each.precision: memory_bytes(each) for each in (run, half)}
    vectors = 4 * run.model.read_vectors()
    assert 2 * (sizes["bf16"]["weights"] - vectors) == sizes["fp32"]["weights"] - vectors
    assert sizes["bf16"]["activations"] == sizes["fp32"]["activations"]
    training = TrainConfig(model=model_from("gpt2-124m"), precision="bf16")
    assert memory_bytes(training)["weights"] == sizes["fp32"]["weights"]
