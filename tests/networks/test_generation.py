"""Generated tokens and their logits are those of the whole forward pass, under every scheduler."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import network_of
from gpt2core.run import canary, prepare, train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import NotFinite
from gpt2core.spec.generation import read_bytes
from gpt2core.spec.models import model_from
from gpt2core.spec.result import TrainResult
from taskloom.server.errors import BadResult
from taskloom.server.queue.attempts import digest, payload
from tests.support import poison
from tests.support.apart import processes
from tests.support.networks import generating
from tests.support.networks.generating import MODELS, config, generated, logits_of

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
    prefix = list(run.prompt)
    assert len(set(tokens)) > 2  # the weights are such that tokens differ
    for token in tokens:
        wanted, found = logits_of(network, prefix), logits[: len(prefix)]
        errors = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
        assert errors.max() <= 1e-5
        assert token == int(np.argmax(wanted[-1]))
        prefix.append(token)


@pytest.mark.parametrize("network", ["gpt2", "lstm"])
def test_drawn_tokens_follow_from_logits_and_draws(network: str) -> None:
    run = config(network, temperature=3.0, seed=5)
    tokens, logits, _ = generated(run)
    draws = network_of(run).data(run)["draws"]
    for token, line, draw in zip(tokens, logits[len(run.prompt) - 1 :].astype(np.float64), draws, strict=True):
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
    half = config(network, precision="bf16", prompt=[*exact.prompt, *tokens[:-1]], generate=1)
    found = generated(half)[1]
    errors = np.linalg.norm(found - logits, axis=1) / np.linalg.norm(logits, axis=1)
    assert 0 < errors.max() <= 1e-2


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
        assert result.time_to_first_token_s == pytest.approx(sum(result.step_s[:3]))
        assert (result.latency["steps"], len(result.step_s)) == (run.generate - 1, 2 + run.generate)
        median_s = result.summary["median_step_s"]
        assert result.summary["weights_gb_per_s"] == pytest.approx(read_bytes(run) / median_s / 1e9)
    assert len(found) == 1


@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize(("step", "precision"), [(0, "fp32"), (6, "fp32"), (6, "bf16")])
def test_tasks_of_generation_read_and_write_what_they_declare(network: str, step: int, precision: str) -> None:
    run = config(network, temperature=1.0, precision=precision)
    data = network_of(run).data(run)
    libraries = table.choose(gemm.load(run.blas, run.precision), [], prepare.silent)
    poison.check(program.build(run), plan(run), lambda memory: prepare.fill(memory, run, data), libraries, step)


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

    measured = json.loads(digest.digest(check({}).result)["measured"])
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
    assert more["activations"] - few["activations"] == 64 * 12 * 2 * 768 * 4


def test_rounded_weights_need_half_the_memory() -> None:
    run = TrainConfig(model=model_from("gpt2-124m"), mode="infer", prompt=(1, 2), generate=64)
    half = dataclasses.replace(run, precision="bf16")
    sizes = {each.precision: memory_bytes(each) for each in (run, half)}
    vectors = 4 * run.model.read_vectors()
    assert 2 * (sizes["bf16"]["weights"] - vectors) == sizes["fp32"]["weights"] - vectors
    assert sizes["bf16"]["activations"] == sizes["fp32"]["activations"]
    training = TrainConfig(model=model_from("gpt2-124m"), precision="bf16")
    assert memory_bytes(training)["weights"] == sizes["fp32"]["weights"]
