import dataclasses

import pytest

from taskloom.analysis.processes import Process
from taskloom.analysis.sweep import axes_of, sweep

STEPS_S = [1.0, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995]


@pytest.fixture
def experiment(make_result):
    """Runs of both schedulers at each (threads, token_slice), with the given ratio fork-join / task."""

    def build(ratios, repetitions=7):
        made = []
        for (threads, token_slice), ratio in ratios.items():
            for scheduler in ("fork-join", "task"):
                for i, s in enumerate(STEPS_S[:repetitions]):
                    step_s = s / threads / (ratio if scheduler == "task" else 1)
                    settings = {"scheduler": scheduler, "threads": threads, "token_slice": token_slice}
                    result = make_result([9.0, step_s, step_s], **settings)
                    made.append(Process(len(made) + 1, result, settings, (1, i, threads, token_slice)))
        return made

    return build


def test_each_place_of_the_sweep_is_compared_and_corrected(experiment):
    found = sweep(experiment({(1, 64): 1.0, (2, 64): 1.2, (2, 32): 1.3}))
    assert (found.axis, found.comparisons) == ("scheduler", 3)
    verdicts = {(row.at["threads"], row.at["token_slice"]): row.verdict for row in found.rows}
    assert verdicts == {(1, 64): "same", (2, 64): "faster", (2, 32): "faster"}
    assert {(row.a, row.b) for row in found.rows} == {("fork-join", "task")}
    by_place = {(row.at["threads"], row.at["token_slice"]): row for row in found.rows}
    assert by_place[2, 64].p_adjusted == pytest.approx(3 * by_place[2, 64].p_value)
    assert (found.best.scheduler, found.best.threads, found.best.token_slice) == ("task", 2, 32)
    assert found.beats_share == 1.0


def test_what_one_comparison_calls_many_do_not(experiment):
    """Six pairs give p = 1/32 at best: enough alone, not among six."""
    one = sweep(experiment({(2, 64): 1.2}, repetitions=6))
    assert [row.verdict for row in one.rows] == ["faster"]
    six = sweep(experiment({(2, size): 1.2 for size in (2, 4, 8, 16, 32, 64)}, repetitions=6))
    assert {row.verdict for row in six.rows} == {"undecided"}
    assert "too few processes for 6 comparisons, whatever they show: it takes 8 a side" in six.rows[0].reason
    assert sweep(experiment({(2, 64): 1.2}, repetitions=3)).beats_share is None
    assert six.rows[0].ratio == pytest.approx(1.2)


def test_enough_pairs_for_many_comparisons_may_still_fail_to_agree(experiment):
    """Eight pairs could tell among six, but not where one of the pairs says the opposite."""
    made = experiment({(2, size): 1.2 for size in (2, 4, 8, 16, 32, 64)}, repetitions=7)
    again = experiment({(2, size): 0.99 for size in (2, 4, 8, 16, 32, 64)}, repetitions=1)
    for process in again:
        made.append(dataclasses.replace(process, run_id=process.run_id + 1000, pair=("again", *process.pair)))
    found = sweep(made)
    assert {row.verdict for row in found.rows} == {"undecided"}
    assert "one of 6 comparisons: corrected p" in found.rows[0].reason
    assert found.beats_share is not None


def test_another_axis(experiment):
    found = sweep(experiment({(1, 64): 1.0, (2, 64): 1.0}), "threads")
    assert [(row.a, row.b, row.verdict) for row in found.rows] == [(1, 2, "faster")] * 2
    assert sweep(experiment({(1, 64): 1.0, (2, 64): 1.0}), "token_slice").rows == []


def test_nothing_varies(experiment):
    alone = [p for p in experiment({(1, 64): 1.0}) if p.config["scheduler"] == "task"]
    found = sweep(alone)
    assert (found.axis, found.rows, found.beats_share) == (None, [], None)
    assert axes_of(alone) == []
    assert sweep([]).best is None


def test_places_with_equally_many_threads_are_judged_together(experiment):
    """Three pairs at each of four places say nothing alone, twelve do together."""
    found = sweep(experiment({(2, size): 1.04 for size in (8, 16, 32, 64)} | {(1, 64): 1.0}, repetitions=3))
    assert {row.verdict for row in found.rows} == {"undecided"}
    (pooled,) = found.pooled  # one thread has one place only
    assert (pooled.threads, pooled.places, pooled.pairs, pooled.verdict) == (2, 4, 12, "faster")
    assert pooled.ratio == pytest.approx(1.04)
    assert pooled.p_adjusted == pytest.approx(2 / 2**12)
    assert pooled.ratio_low <= pooled.ratio <= pooled.ratio_high
    assert sweep(experiment({(2, size): 1.0 for size in (8, 16, 32, 64)})).pooled[0].verdict == "same"
