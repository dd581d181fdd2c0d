"""The experiments of docs/examples are accepted, and a stored report is rendered again by today's code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench import example, six_networks, tuned_examples
from gpt2core.networks.network import network_of
from gpt2core.spec import data
from gpt2core.spec.config import TrainConfig
from taskloom.analysis.tuning.space import space
from taskloom.server.queue.experiments.expansion import expand
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.workers.capacity import Capacity

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
NAME = "gpt2-124m-runtimes"


def test_a_stored_report_gets_todays_sentences_and_keeps_its_data(tmp_path: Path) -> None:
    stored = json.loads(gzip.decompress((EXAMPLES / f"{NAME}.json.gz").read_bytes()))
    copy = tmp_path / f"{NAME}.json.gz"
    changed = stored | {"answer": ["old words"], "conclusion": "old words", "card": []}
    copy.write_bytes(gzip.compress(json.dumps(changed).encode()))
    example.render_again(tmp_path, NAME)
    again = json.loads(gzip.decompress(copy.read_bytes()))
    sentences = {"answer", "conclusion", "card"}
    assert {key: again[key] for key in again.keys() - sentences} == {k: stored[k] for k in stored.keys() - sentences}
    assert [rule["number"] for rule in again["card"]] == list(range(1, 12))
    assert again["answer"][0].startswith("Most runs were disturbed (47 of 60). It is undecided whether omp-for ")
    assert "0.953 [0.808, 1.053]" in again["answer"][0]
    assert "47 of 60 runs disturbed" in again["answer"][1]
    html = (tmp_path / f"{NAME}.html").read_text()
    assert "0.953 [0.808, 1.053]" in html
    assert "old words" not in html


@pytest.mark.parametrize(
    ("question", "variants", "runs"),
    [("runtimes", 6, 60), ("wavefront", 12, 120), ("images", 8, 64), ("workload", 66, 792), ("ranks", 2, 20)],
)
def test_a_declared_experiment_is_accepted(question: str, variants: int, runs: int) -> None:
    of = example.QUESTIONS[question]
    request = example.experiment(of, of.model, of.steps, of.repetitions)
    made, planned = expand(request, runs, run_memory_bytes, Capacity())
    assert (len(made), len(planned)) == (variants, runs)


def test_the_wavefronts_blocks_of_units_and_slices_are_those_of_the_model() -> None:
    """Both sides of the question have the automatic slices, and a tile has all units of the preset."""
    of = example.QUESTIONS["wavefront"]
    model: Any
    (model,) = {each.config.model for each in expand(example.experiment(of, of.model, 4, 6), 72, run_memory_bytes,
                                                     Capacity())[0]}  # fmt: skip
    assert model.hidden == example.UNITS
    assert model.slices(4, 64, 2, (None, None)) == (of.base["batch_slice"], of.base["token_slice"])


@pytest.mark.parametrize("name", list(tuned_examples.TUNINGS))
def test_a_declared_tuning_refuses_none_of_its_space(name: str) -> None:
    """Every combination runs, so that "of the valid settings" is the space as declared."""
    request = tuned_examples.request_of(name)
    assert request.space is not None
    found = space(request.base.model_dump(exclude_unset=True), request.space, request.exclude)
    assert found.invalid == 0
    assert len(found) > (request.tune.fresh if request.tune else 0)


def test_the_data_of_six_networks_are_what_their_runs_read(tmp_path: Path) -> None:
    six_networks.make(tmp_path)
    read = {}
    for network in six_networks.NETWORKS:
        config = TrainConfig.from_dict(network)
        if (named := six_networks.TERMS.get(config.model.reads)) is not None:
            _, name = data.parts(str(named))
            path = data.with_path(str(named), str(tmp_path / name))
            read[config.model.network] = network_of(config).data(TrainConfig.from_dict({**network, "data": path}))
    assert set(read) == {"resnet", "vgg", "seq2seq", "reader"}
    assert len(read["seq2seq"]["lengths"]) == 2 * six_networks.PAIRS
    assert len(read["reader"]["solutions"]) > six_networks.RECORDS / 2
    solutions: Any = read["reader"]["solutions"]
    assert (solutions > data.MISSING).all()


def test_a_question_about_several_models_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["example", "page", "--question", "workload"])
    with pytest.raises(SystemExit) as ended:
        example.main()
    assert ended.value.code == 2
