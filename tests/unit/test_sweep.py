import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from taskloom.analysis import sweep as sweep_module
from taskloom.analysis.pooling import pool
from taskloom.analysis.processes import Facts, Process
from taskloom.analysis.sweep import axes_of, planned, planned_by, sweep
from tests.support.present import present

THREE = ["fork-join", "omp-for", "task"]
STEPS_S = [1.0, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.003, 0.997, 1.012]


@pytest.fixture
def experiment(make_result):
    """Runs of both schedulers at each (threads, token_slice), with the given ratio fork-join / task."""

    def build(ratios, repetitions=7):
        made: list[Any] = []
        for (threads, token_slice), ratio in ratios.items():
            for scheduler in ("fork-join", "task"):
                for i, s in enumerate(STEPS_S[:repetitions]):
                    step_s = s / threads / (ratio if scheduler == "task" else 1)
                    settings = {"scheduler": scheduler, "threads": threads, "token_slice": token_slice}
                    result = make_result([9.0, step_s, step_s], **settings)
                    made.append(Process(len(made) + 1, result, settings, (1, i), "e", i))
        return made

    return build


def test_each_place_of_the_sweep_is_compared_and_corrected(experiment):
    found = sweep(experiment({(1, 64): 1.0, (2, 64): 1.2, (2, 32): 1.3}))
    assert (found.axis, found.comparisons) == ("scheduler", 3)
    verdicts = {(row.at["threads"], row.at["token_slice"]): row.verdict for row in found.rows}
    assert verdicts == {(1, 64): "same", (2, 64): "faster", (2, 32): "faster"}
    assert {(row.a, row.b) for row in found.rows} == {("fork-join", "task")}
    by_place = {(row.at["threads"], row.at["token_slice"]): row for row in found.rows}
    assert by_place[2, 64].p_adjusted == pytest.approx(3 * present(by_place[2, 64].p_value))
    best = present(found.best)
    assert (best.scheduler, best.threads, best.token_slice) == ("task", 2, 32)
    assert found.beats_share is None  # 15 pairs of variants: 7 processes of each cannot decide
    assert sweep(experiment({(1, 64): 1.0, (2, 64): 1.2, (2, 32): 1.3}, repetitions=10)).beats_share == 1.0


def test_what_one_comparison_calls_many_do_not(experiment):
    """Six pairs give p = 1/32 at best. That is enough for one comparison, but not for six."""
    one = sweep(experiment({(2, 64): 1.2}, repetitions=6))
    assert [row.verdict for row in one.rows] == ["faster"]
    six = sweep(experiment({(2, size): 1.2 for size in (2, 4, 8, 16, 32, 64)}, repetitions=6))
    assert {row.verdict for row in six.rows} == {"undecided"}
    assert "too few processes: one of 6 comparisons needs at least 8 per side to be decided alone" in six.rows[0].reason
    assert sweep(experiment({(2, 64): 1.2}, repetitions=3)).beats_share is None
    assert six.rows[0].ratio == pytest.approx(1.2)


def test_enough_pairs_for_many_comparisons_may_still_fail_to_agree(experiment):
    """Eight pairs can decide among six comparisons, but not if one of the pairs contradicts."""
    made = experiment({(2, size): 1.2 for size in (2, 4, 8, 16, 32, 64)}, repetitions=7)
    again = experiment({(2, size): 0.99 for size in (2, 4, 8, 16, 32, 64)}, repetitions=1)
    for process in again:
        made.append(dataclasses.replace(process, run_id=process.run_id + 1000, pair=("again", *process.pair), block=7))
    found = sweep(made)
    assert {row.verdict for row in found.rows} == {"undecided"}
    assert "one of 6 comparisons: adjusted p" in found.rows[0].reason


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
    """Three pairs at each of four places decide nothing alone, but all twelve together do."""
    found = sweep(experiment({(2, size): 1.04 for size in (8, 16, 32, 64)} | {(1, 64): 1.0}, repetitions=3))
    assert {row.verdict for row in found.rows} == {"undecided"}
    (pooled,) = found.pooled  # one thread has one place only
    assert (pooled.threads, pooled.places, pooled.pairs, pooled.verdict) == (2, 4, 12, "faster")
    assert pooled.ratio == pytest.approx(1.04)
    assert pooled.p_adjusted == pytest.approx(2 / 2**12)
    assert present(pooled.ratio_low) <= pooled.ratio <= present(pooled.ratio_high)
    assert pooled.scope == "these 4 places only, which differ in token slice"
    assert pooled.between_places == pytest.approx(0, abs=1e-6)
    assert sweep(experiment({(2, size): 1.0 for size in (8, 16, 32, 64)})).pooled[0].verdict == "same"


def test_comparisons_and_their_pooled_ratio_are_one_family(experiment):
    """Eight pairs give p = 1/128 at best. Opposite differences at two places cancel in the pooled ratio."""
    found = sweep(experiment({(2, 16): 1.3, (2, 32): 1 / 1.3, (2, 64): 1.0}, repetitions=8))
    assert [(row.verdict, row.p_adjusted) for row in found.rows] == [
        ("faster", pytest.approx(4 / 128)), ("slower", pytest.approx(4 / 128)), ("same", 1.0),
    ]  # fmt: skip
    assert [(row.verdict, row.p_adjusted) for row in found.pooled] == [("same", 1.0)]
    assert found.comparisons == 3


def test_comparisons_that_nothing_could_decide_do_not_count(experiment):
    """Six pairs cannot decide one of three comparisons, so the pooled ratio is the only statement."""
    found = sweep(experiment({(2, size): 1.2 for size in (16, 32, 64)}, repetitions=6))
    assert {(row.verdict, row.p_adjusted) for row in found.rows} == {("undecided", None)}
    lacking = "one of 3 comparisons and 1 pooled ratio needs at least 8 per side to be decided alone"
    assert found.rows[0].reason.startswith(f"too few processes: {lacking}, whatever the times (")
    assert [(row.verdict, row.p_adjusted) for row in found.pooled] == [("faster", pytest.approx(2 / 2**18))]


def test_a_ratio_over_places_like_these_is_a_family_of_its_own(experiment):
    """Six places reach 1/32 at best, so that as one of two statements nothing could be decided."""
    found = sweep(experiment({(2, 2**i): 1.2 for i in range(6)}, repetitions=8))
    assert [row.p_adjusted for row in found.rows] == pytest.approx([6 / 128] * 6)
    assert [(row.verdict, row.p_adjusted) for row in found.pooled] == [("faster", pytest.approx(1 / 32))]


def test_the_reason_says_what_the_family_contains(experiment):
    """Ten pairs at each of three places. At one of them a pair contradicts, whose rank is 6: p = 0.027 alone."""
    made = experiment({(2, size): 1.0 for size in (8, 16, 32)}, repetitions=10)
    for process in made:
        if process.config["scheduler"] == "task" and process.config["token_slice"] == 8:
            ratio = 1 / 1.024 if process.block == 5 else 1.015 + 0.002 * (7 * process.block % 10)
            process.result["step_s"] = [9.0, *[STEPS_S[process.block] / 2 / ratio] * 2]
    (row,) = (row for row in sweep(made).rows if row.at["token_slice"] == 8)
    assert row.p_value == pytest.approx(28 / 1024)
    assert row.verdict == "undecided"
    assert row.reason.startswith(f"one of 3 comparisons and 1 pooled ratio: adjusted p = {row.p_adjusted:.2g} (")


@pytest.fixture
def schedulers(make_result):
    """Eight blocks with three schedulers at three places; the second scheduler is 20 % faster at `places`."""

    def build(places, blocks=8):
        made: list[Any] = []
        for size in (16, 32, 64):
            for scheduler in THREE:
                for i in range(blocks):
                    step_s = STEPS_S[i % 10] * (1 + 0.001 * ((3 * i + len(scheduler)) % 7 - 3))
                    step_s /= 1.2 if scheduler == "omp-for" and size in places else 1
                    settings = {"scheduler": scheduler, "threads": 2, "token_slice": size}
                    result = make_result([9.0, step_s, step_s], **settings)
                    made.append(Process(len(made) + 1, result, settings, (1, i), "e", i))
        return sweep(made)

    return build


def test_too_few_blocks_for_so_many_schedulers_say_how_many_suffice(schedulers):
    """Eight pairs reach 1/128. As one of six comparisons and two pooled ratios, that is 0.0625."""
    lacking = "one of 6 comparisons and 2 pooled ratios needs at least 9 per side to be decided alone"
    found = schedulers((16,))
    (row,) = (row for row in found.rows if row.at["token_slice"] == 16 and row.b == "omp-for")
    assert (found.family.comparisons, found.family.pooled) == (6, 2)
    assert row.verdict == "undecided"
    assert 0.05 < row.p_adjusted <= 8 / 128
    assert row.reason.startswith(f"too few processes: {lacking}, whatever the times (ratio 1.2")
    (row,) = (row for row in schedulers((16,), 9).rows if row.at["token_slice"] == 16 and row.b == "omp-for")
    assert row.verdict == "faster"


def test_pooled_ratios_that_nothing_could_decide_do_not_count_either(experiment):
    """Two places with three pairs each reach p = 1/32, which is too much for one of two pooled ratios."""
    found = sweep(experiment({(n, size): 1.2 for n in (2, 4) for size in (16, 32)}, repetitions=3))
    assert {(row.verdict, row.p_adjusted) for row in found.pooled} == {("undecided", None)}
    assert found.pooled[0].reason == "too few pairs: one of 2 pooled ratios needs at least 7, whatever the times"
    assert (found.family.comparisons, found.family.pooled) == (0, 0)
    alone = sweep(experiment({(2, size): 1.2 for size in (16, 32)}, repetitions=3))
    assert [(row.verdict, row.p_adjusted) for row in alone.pooled] == [("faster", pytest.approx(1 / 32))]
    one_pair = sweep(experiment({(2, 16): 1.2}, 8) + [
        dataclasses.replace(p, run_id=p.run_id + 500) for p in experiment({(2, 32): 1.2}, 1)
    ])  # fmt: skip
    assert [(row.ratio_low, row.p_adjusted) for row in one_pair.pooled] == [(None, None)]
    assert (one_pair.family.comparisons, one_pair.family.pooled) == (1, 0)


@pytest.mark.parametrize(
    ("axes", "sequential", "family"),
    [
        ({"scheduler": ["fork-join", "task"]}, False, (1, 0)),
        ({"scheduler": THREE, "token_slice": [16, 32, 64]}, False, (6, 2)),
        ({"scheduler": THREE, "threads": [1, 2], "token_slice": [16, 32, 64]}, False, (12, 4)),
        ({"scheduler": THREE, "token_slice": [1, 2, 4, 8, 16, 32]}, False, (12, 0)),  # the pooled ratios apart
        ({"scheduler": THREE, "token_slice": [1, 2, 4, 8, 16, 32]}, True, (12, 2)),
        ({"threads": [1, 2], "token_slice": [16, 32]}, False, (2, 0)),
        ({}, False, (0, 0)),
    ],
)
def test_the_planned_family_is_the_one_that_is_corrected(make_result, axes, sequential, family):
    variants = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    found = planned(variants, sequential)
    assert (found.comparisons, found.pooled) == family
    made: list[Any] = []
    for i in range(12):
        for variant in variants:
            result = make_result([9.0, *[STEPS_S[i % 10]] * 2], **variant)
            made.append(Process(len(made) + 1, result, variant, (1, i), "e", i, sequential))
    assert sweep(made).family == found == planned_by(made)


@pytest.fixture
def alike(experiment):
    """Ten runs of both schedulers at three places. Runs of a variant share their facts, as the server reads them."""
    facts: dict[str, Facts] = {}
    return [
        dataclasses.replace(process, shared=facts.setdefault(str(process.variant), process.facts))
        for process in experiment({(1, size): 1.0 for size in (16, 32, 64)}, repetitions=10)
    ]


@pytest.mark.slow
def test_a_sweep_of_equals_errs_in_one_of_twenty_at_most(alike):
    """Two equal noisy schedulers at three places: a comparison or a pooled ratio finds a difference in 1 of 20 sweeps
    at most. With a family each they did in 8 of 100."""
    rng, wrong, sweeps = np.random.default_rng(5), 0, 2000
    for _ in range(sweeps):
        for process in alike:
            process.result["step_s"] = [9.0, *[1 + 0.01 * rng.standard_normal()] * 2]
        found = sweep([dataclasses.replace(process) for process in alike], noise_floor=1e-6)
        wrong += any(row.verdict in ("faster", "slower") for rows in (found.rows, found.pooled) for row in rows)
    assert wrong <= 0.05 * sweeps + 3.7 * (0.05 * 0.95 * sweeps) ** 0.5


def test_few_places_that_differ_are_no_sample_of_others_and_many_are(experiment):
    """A difference at three places may not exist at a fourth. With seven places, the places are the sample."""
    few = sweep(experiment({(2, size): ratio for size, ratio in ((16, 1.02), (32, 1.05), (64, 1.08))})).pooled[0]
    differ = "which differ in token slice"
    assert (few.verdict, few.scope, few.pairs) == ("faster", f"these 3 places only, {differ}", 21)
    assert few.between_places == pytest.approx(0.0286, rel=0.01)
    ratios = dict(zip((1, 2, 4, 8, 16, 32, 64), (0.97, 1.05, 1.06, 1.04, 1.07, 1.05, 1.03), strict=True))
    many = sweep(experiment({(2, size): ratio for size, ratio in ratios.items()})).pooled[0]
    assert (many.scope, many.pairs, many.p_adjusted) == (f"places like these 7, {differ}", 49, pytest.approx(6 / 128))
    assert many.verdict == "faster"
    assert present(many.ratio_low) < 1.03 < many.ratio < 1.05 < present(many.ratio_high)


def test_the_fastest_of_equals_beats_none(alike):
    """The fastest was chosen by its times: among six equal noisy variants it beats some in at most 1 of 20 sweeps."""
    rng, claimed, sweeps = np.random.default_rng(3), 0, 100
    for _ in range(sweeps):
        for process in alike:
            process.result["step_s"] = [9.0, *[1 + 0.01 * rng.standard_normal()] * 2]
        claimed += bool(sweep([dataclasses.replace(process) for process in alike], noise_floor=1e-6).beats_share)
    assert claimed <= 0.05 * sweeps + 2 * (0.05 * 0.95 * sweeps) ** 0.5


def test_the_smallest_p_value_of_all_is_not_taken_for_none(experiment, monkeypatch):
    """The normal approximation of thousands of pairs gives a p-value of exactly 0."""
    runs = experiment({(2, 64): 1.3, (2, 32): 1.3})
    real = pool
    monkeypatch.setattr(
        sweep_module, "pool", lambda *given: dataclasses.replace(
            found := real(*given), estimate=dataclasses.replace(found.estimate, p_value=0.0)
        )
    )  # fmt: skip
    (pooled,) = sweep(runs).pooled
    assert (pooled.p_adjusted, pooled.verdict) == (0.0, "faster")


def test_places_whose_pairs_resemble_each_other_decide_nothing_together_either(make_result):
    made: list[Any] = []
    for size in (16, 32):
        for i in range(20):
            slow = 1.03 + 0.01 * np.sin(i * np.pi / 5)
            for scheduler, step_s in (("fork-join", slow), ("task", 1.0)):
                settings = {"scheduler": scheduler, "threads": 2, "token_slice": size}
                result = make_result([9.0, step_s, step_s], **settings)
                made.append(Process(len(made) + 1, result, settings, (1, i), "e", i))
    found = sweep(made)
    assert [row.verdict for row in found.rows] == ["undecided"] * 2
    (pooled,) = found.pooled
    assert present(pooled.ratio_low) > 1.01
    assert pooled.verdict == "undecided"
    assert "neighbours resemble each other" in pooled.diagnosis[0]


def test_a_comparison_without_an_interval_makes_no_other_undecidable(experiment):
    """Five pairs at one place have a p-value, but can never be called. Six at another one decide."""
    made = experiment({(2, 16): 1.2, (2, 32): 1.2}, repetitions=6)
    found = sweep([process for process in made if process.config["token_slice"] == 16 or process.block < 5])
    rows = {row.at["token_slice"]: row for row in found.rows}
    assert (rows[16].verdict, rows[32].verdict) == ("faster", "undecided")
    assert rows[16].p_adjusted == pytest.approx(1 / 32)
    assert rows[32].p_adjusted is None


def test_the_best_variant_computes_the_same_as_others(experiment):
    """A variant with other losses is the fastest, and is compared with nothing."""
    made = experiment({(2, 64): 1.2, (2, 32): 1.3}, repetitions=10)
    wrong = [
        dataclasses.replace(process, run_id=process.run_id + 100, variant={**process.variant, "scheduler": "omp-for"},
                            result={**process.result, "losses": [1.0] * 3, "step_s": [9.0, 0.1, 0.1],
                                    "config": {**process.config, "scheduler": "omp-for"}})
        for process in made if process.config["scheduler"] == "task" and process.config["token_slice"] == 64
    ]  # fmt: skip
    found = sweep([*made, *wrong])
    assert {row.verdict for row in found.rows if row.b == "omp-for"} == {"refused"}
    assert present(found.best).scheduler == "task"
    assert found.beats_share == 1.0
    assert found.best_step_s == pytest.approx(1.0 / 2 / 1.3, rel=0.02)
