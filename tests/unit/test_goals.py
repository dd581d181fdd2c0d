"""The setting `stop_at`: accepted values, the steps that a goal allows, and the analysis of the way to it."""

from __future__ import annotations

import dataclasses
import io
import math

import numpy as np
import pytest
from rich.console import Console

from gpt2core.layers.goal import end_at_goal
from gpt2core.spec.config import CHECK_OF, TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.goals import Goal, parse_goal, steps_run
from gpt2core.spec.series import series_config, without_new
from gpt2core.step.control import CELLS, STOP
from taskloom import tables
from taskloom.analysis.goals import goals
from taskloom.analysis.processes import Process
from taskloom.options import several_settings, single_settings
from tests.support.present import present

IMAGES = {"model": "resnet", "data": "synthetic"}


@pytest.mark.parametrize(
    ("given", "goal"),
    [
        ("loss=2.5", {"loss": 2.5}),
        (" loss = 2 ", {"loss": 2.0}),
        ({"loss": 2}, {"loss": 2.0}),
        ("accuracy=1", {"accuracy": 1.0}),
        ({"accuracy": 0.25}, {"accuracy": 0.25}),
    ],
)
def test_a_goal_is_a_metric_and_a_number(given, goal):
    assert parse_goal(given) == goal
    config = TrainConfig.from_dict({**(IMAGES if "accuracy" in goal else {}), "stop_at": given})
    assert config.stop_at == goal
    assert TrainConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    "given",
    ["2.5", "loss", "loss=", "loss=low", "loss=nan", "loss=-1", "perplexity=2", "accuracy=0", "accuracy=1.1", "", 2.5,
     {}, {"loss": 1, "accuracy": 1}, {"loss": True}, {"loss": math.inf}, {"loss": "2"}, {2: 2}, [("loss", 2)]],
)  # fmt: skip
def test_what_is_no_goal_is_refused_with_field_value_and_what_is_accepted(given):
    with pytest.raises(ConfigError, match="loss=X or accuracy=X") as caught:
        TrainConfig.from_dict({"stop_at": given})
    assert (caught.value.field, caught.value.value) == ("stop_at", given)
    with pytest.raises(ConfigError):
        CHECK_OF["stop_at"]("stop_at", given)


@pytest.mark.parametrize(
    ("settings", "accepted"),
    [
        ({"stop_at": "accuracy=0.5"}, "a goal of loss, since network gpt2 has no accuracy"),
        ({"stop_at": "accuracy=0.5", "model": "lstm-tiny"}, "network lstm has no accuracy"),
        ({"stop_at": "loss=2", "mode": "infer"}, "mode infer computes no loss without score"),
        ({"stop_at": "accuracy=0.5", "mode": "infer", **IMAGES}, "mode infer computes no loss without score"),
    ],
)
def test_a_goal_that_the_run_does_not_compute_is_refused(settings, accepted):
    with pytest.raises(ConfigError, match=accepted) as caught:
        TrainConfig.from_dict(settings)
    assert caught.value.field == "stop_at"


def test_inference_that_scores_may_have_a_goal():
    config = TrainConfig.from_dict({"mode": "infer", "score": True, "stop_at": "loss=2", "fusion": "rows"})
    assert config.stop_at == {"loss": 2.0}


def test_a_goal_is_no_part_of_a_series_and_earlier_workers_get_none():
    plain, aimed = TrainConfig(), TrainConfig(stop_at={"loss": 2.0})
    assert "stop_at" not in without_new(plain.to_dict())
    assert without_new(aimed.to_dict())["stop_at"] == {"loss": 2.0}
    assert series_config(plain.to_dict()) == series_config(aimed.to_dict())


def test_options_take_one_goal_or_several():
    assert single_settings({"stop_at": "loss=2"}) == {"stop_at": "loss=2"}
    base, axes = several_settings({"stop_at": "loss=2,loss=1.5"})
    assert (base, axes) == ({}, {"stop_at": ["loss=2", "loss=1.5"]})


def test_the_first_step_that_reaches_the_goal_counts():
    losses = [math.nan, 3.0, 2.0, 2.5, 1.0]
    assert Goal("loss", 2.5).steps(losses) == 3
    assert Goal("loss", 0.5).steps(losses) is None
    assert Goal("accuracy", 3.0).steps(losses) == 2
    assert Goal.of({"stop_at": None}) is Goal.of({}) is None
    assert [steps_run(reached, 2, 10) for reached in (None, 1, 2, 3, 10)] == [10, 3, 3, 3, 10]
    assert steps_run(1, 0, 10) == 1
    assert steps_run(1, 2, 2) == 2, "the warm-up is complete"


@pytest.mark.parametrize(
    ("step", "below", "limit", "stops"),
    [(1, 1, 2.0, True), (1, 1, 1.9, False), (0, 1, 9.0, False), (1, 0, 2.0, True), (1, 0, 2.1, False),
     (2, 1, 9.0, False), (2, 0, 0.0, False)],
)  # fmt: skip
def test_the_kernel_stops_after_the_warmup_only_and_never_for_not_a_number(step, below, limit, stops):
    control, values = np.zeros(CELLS, np.int64), np.array([3.0, 2.0, math.nan])
    end_at_goal(control, values, np.array([limit]), below, 1, step)
    assert control[STOP] == stops
    assert not np.delete(control, STOP).any()


def process(make_result, number, steps, seed=1, energy_j=None, **settings):
    """A run of six steps at most that reached its goal after so many; None: not."""
    result = make_result([0.5] * (steps or 6), steps=6, seed=seed, stop_at={"loss": 2.0}, **settings)
    result["goal"] = {
        "metric": "loss", "value": 2.0, "reached": steps is not None, "steps": steps,
        "time_s": steps and 0.5 * steps + 0.01 * number, "energy_j": energy_j,
        "energy_missing": None if energy_j else "no RAPL",
    }  # fmt: skip
    return Process(number, result, {"seed": seed}, block=number)


def test_repetitions_of_one_seed_are_the_values_of_its_row(make_result):
    (row,) = goals([process(make_result, number, 4, energy_j=8.0 + number) for number in range(6)])
    assert (row.over, row.n, row.runs, row.reached, row.variant) == ("processes", 6, 6, 6, {"seed": 1})
    steps, time_s, energy_j = map(present, (row.steps, row.time_s, row.energy_j))
    assert (steps.median, steps.low, steps.high) == (4.0, 4.0, 4.0)
    assert time_s.median == pytest.approx(2.025)
    assert (time_s.low, time_s.high) == (pytest.approx(2.0), pytest.approx(2.05))
    assert (energy_j.median, row.energy_missing) == (10.5, None)


def test_of_several_seeds_each_counts_once(make_result):
    runs = [process(make_result, 10 * seed + again, 2 + seed, seed) for seed in range(4) for again in range(2)]
    (row,) = goals(runs)
    assert (row.over, row.n, row.runs, row.variant) == ("seeds", 4, 8, {})
    steps = present(row.steps)
    assert (steps.median, steps.low) == (3.5, None), "an interval needs 6 seeds"
    assert (row.energy_j, row.energy_missing) == (None, "no RAPL")
    assert [each.threads for each in goals([*runs, process(make_result, 99, 3, threads=2)])] == [1, 2]


def test_a_run_that_did_not_reach_it_leaves_the_way_unknown(make_result):
    (row,) = goals([process(make_result, 1, 3), process(make_result, 2, None)])
    assert (row.reached, row.runs, row.steps, row.time_s) == (1, 2, None, None)
    assert goals([Process(3, make_result())]) == []


def test_the_table_says_how_many_runs_reached_it(make_result):
    rows = goals([process(make_result, number, 3, energy_j=2.0) for number in range(6)])
    rows += goals([process(make_result, 9, None)])
    written = io.StringIO()
    console = Console(file=written, width=200)
    console.print(tables.goals(rows))
    text = written.getvalue()
    for part in ("loss at most 2", "6 of 6", "0 of 1", "3  [3, 3]", "2 J  [2 J, 2 J]", "6 processes"):
        assert part in text
    assert dataclasses.asdict(rows[1])["time_s"] is None
