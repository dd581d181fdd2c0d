"""`taskloom experiments show` of a tuning: its state, what is missing, effects, and the best setting as a base."""

import json

from taskloom import tables
from taskloom.analysis.tuning.answer import Tuning, answer
from taskloom.analysis.tuning.protocol import Run, Terms, following
from taskloom.analysis.tuning.space import space

BASE = {"model": "tiny"}
TERMS = Terms(runs=4, batch=2, confirm=2, fresh=1)


def shown(
    blocks: int, reason: str | None = None, cancelled: bool = False, terms: Terms = TERMS
) -> tuple[Tuning, list[str]]:
    chosen, runs = space(BASE, {"threads": [1, 2, 4], "sync": ["step", "none"], "scheduler": ["task"]}), list[Run]()
    for block in range(blocks):
        for role, point in following(terms, chosen, runs, 0.0).parts:
            step_s = 1.0 if point is None else 1.0 / chosen.settings(point)["threads"]
            runs.append(Run(len(runs), block, role, point, step_s))
    found = answer(7, terms, chosen, BASE, runs, {}, 12.0, reason, cancelled)  # type: ignore[arg-type]
    return found, tables.tuning(found)


def test_a_tuning_that_continues() -> None:
    _, lines = shown(0)
    assert lines == ["tuning: explore after 0 of at most 12 runs and 12 s of workers' time; 6 valid settings"]
    found, lines = shown(2)
    assert lines[0].startswith("tuning: explore after 6 of at most 12 runs")
    effects = lines[1].partition("(exploratory): ")[2].split(", ")
    assert [text.split()[0] for text in effects] == [each.setting for each in found.importance]
    assert effects[0].startswith("threads ")
    assert "over 4 trials" in lines[1]
    base = json.loads(lines[-1].partition("for submit: ")[2])
    assert base == {"base": found.base}
    assert found.base is not None
    assert found.base["threads"] == max(trial.settings["threads"] for trial in found.trials)


def test_one_that_ended_names_the_reason_and_what_is_missing() -> None:
    found, lines = shown(2, "budget")
    assert lines[0].startswith("tuning: ended (budget) after 6 ")
    assert found.missing
    assert lines[1 : 1 + len(found.missing)] == [f"missing: {each}" for each in found.missing]
    assert shown(1, cancelled=True)[1][0].startswith("tuning: ended (cancelled) after 3 ")


def test_a_space_that_the_runs_suffice_for_is_measured_as_a_grid() -> None:
    _, lines = shown(1, terms=Terms(runs=18, batch=2, confirm=2, fresh=1))
    assert lines[0].endswith("; 6 valid settings, measured as a grid")
