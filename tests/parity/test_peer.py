"""The tuned PyTorch of bench.step: its padding does not change results, and it runs with its declared settings."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.step import Case, compare, headline, headline_line, run_ours, run_torch
from bench.torch_gpt2 import (
    GPT2,
    batch_of,
    load_weights,
    new_optimizer,
    random_model,
    weights_of,
    write_llmc_checkpoint,
)
from gpt2core.data.sources import open_tokens
from gpt2core.networks.network import network_of
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig, model_from

pytestmark = pytest.mark.parity

SMALL = ModelConfig(layers=2, heads=4, channels=48, vocab=260, context=32)  # padded to 384
SETTINGS = TrainConfig(SMALL, batch=2, seq=16, steps=6, warmup=2, data="stdlib", lr=3e-4)


def test_the_padding_takes_no_part() -> None:
    """In double precision, only the order of sums can cause a difference, which is tiny."""
    plain, padded = random_model(SMALL, 1, torch.float64), GPT2(SMALL, padded=True).to(torch.float64)
    load_weights(padded, weights_of(plain))
    assert len(padded.wte.weight) == SMALL.padded_vocab
    stream = open_tokens(SETTINGS)
    optimizers = [new_optimizer(model, SETTINGS) for model in (plain, padded)]
    for number in range(3):
        losses = []
        for model, optimizer in zip((plain, padded), optimizers, strict=True):
            loss = model(*batch_of(stream, number, SETTINGS.batch, SETTINGS.seq))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[0] == pytest.approx(losses[1], rel=1e-13)
        torch.testing.assert_close(padded.wte.weight.grad[: SMALL.vocab], plain.wte.weight.grad)
        assert not padded.wte.weight.grad[SMALL.vocab :].any()
        assert not padded.wte.weight[SMALL.vocab :].any()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_tuned_peer_is_bound_and_its_losses_are_ours(tmp_path: Path, precision: str) -> None:
    write_llmc_checkpoint(tmp_path / "initial.bin", random_model(SMALL, seed=1))
    cores = tuple(launch.allowed_cores()[:2])
    case = Case(SETTINGS.batch, SETTINGS.seq, len(cores), precision, grad_clip=1.0)
    config = dataclasses.replace(
        SETTINGS, **dataclasses.asdict(case), cores=cores, checkpoint=str(tmp_path / "initial.bin"), steps=40
    )
    runs = []
    for variant in ("task", "torch-tuned", "torch-eager"):
        measured = (run_ours if variant == "task" else run_torch)(config, variant, tmp_path)
        runs.append({**dataclasses.asdict(case), "round": 0, "variant": variant, "others": 0.0, **measured})
    found = compare(case, ["task", "torch-tuned", "torch-eager"], runs, config.warmup_steps)
    rows = {row["variant"]: row for row in found["rows"]}
    assert rows["task"]["bound"]
    assert rows["torch-tuned"]["bound"]
    assert rows["torch-eager"]["bound"] == (len(cores) == 1)
    assert all(row["ratio"] is not None for row in rows.values()), rows  # losses agree
    assert all(len(run["page_faults"]) == config.steps for run in runs)
    assert runs[1]["environment"]["settings"]["MALLOC_MMAP_MAX_"] == "0"
    assert "MALLOC_MMAP_MAX_" not in {**os.environ, **runs[2]["environment"]["settings"]}
    summary = headline(found, [found], runs, config.warmup_steps)
    assert summary is not None
    fastest = min((row for name, row in rows.items() if name != "task"), key=lambda row: row["median_step_s"])
    assert (summary["peer"], summary["ratio"]) == (fastest["variant"], fastest["ratio"])
    assert f"| {fastest['variant']} |" in headline_line(summary)


@pytest.mark.parametrize("logits", ["all", "last"])
def test_inference_of_the_peer_has_our_losses(tmp_path: Path, logits: str) -> None:
    write_llmc_checkpoint(tmp_path / "initial.bin", random_model(SMALL, seed=1))
    case = Case(SETTINGS.batch, SETTINGS.seq, 1)
    config = TrainConfig(
        SMALL, **dataclasses.asdict(case), steps=6, warmup=2, data="stdlib", mode="infer", logits=logits, score=True,
        cores=tuple(launch.allowed_cores()[:1]), checkpoint=str(tmp_path / "initial.bin"),
    )  # fmt: skip
    runs = []
    for variant in ("task", "torch-tuned"):
        measured = (run_ours if variant == "task" else run_torch)(config, variant, tmp_path)
        assert measured["phase_s"].keys() <= set(config.phases)
        runs.append({**dataclasses.asdict(case), "round": 0, "variant": variant, "others": 0.0, **measured})
    rows = compare(case, ["task", "torch-tuned"], runs, config.warmup_steps)["rows"]
    assert all(row["ratio"] is not None and row["p99_step_s"] >= row["median_step_s"] for row in rows), rows


@pytest.mark.parametrize(
    "sizes",
    [
        {"network": "resnet", "blocks": 1, "width": 4, "side": 8},
        {"network": "vgg", "width": 4, "hidden": 8, "side": 32},
    ],
    ids=["resnet", "vgg"],
)
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_the_peer_of_images_has_our_losses(sizes: dict[str, Any], mode: str, tmp_path: Path) -> None:
    initial = str(tmp_path / "initial.safetensors")
    new = TrainConfig(model_from(sizes), save=initial)
    network = network_of(new)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(new)["weights"]}
    network.initialise(new, weights)
    network.write(new, weights)
    case, variants = Case(4, 1, 1), ["task", "torch-tuned-channels-last"]
    config = TrainConfig(
        model_from(sizes), **dataclasses.asdict(case), steps=4, warmup=2, cores=tuple(launch.allowed_cores()[:1]),
        checkpoint=initial, mode=mode, score=mode == "infer",
    )  # fmt: skip
    runs = []
    for variant in variants:
        measured = (run_ours if variant == "task" else run_torch)(config, variant, tmp_path)
        runs.append({**dataclasses.asdict(case), "round": 0, "variant": variant, "others": 0.0, **measured})
    rows = compare(case, variants, runs, config.warmup_steps)["rows"]
    assert all(row["ratio"] is not None for row in rows), rows  # losses agree
