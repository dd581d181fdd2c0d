import dataclasses
import math

import pytest

from taskloom.analysis.comparison import compare, interleaved
from taskloom.analysis.processes import Process
from tests.support.present import present

A_S = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99]


@pytest.fixture
def side(make_result):
    """Processes with these median steps on one occasion; if `paired`, runs of the two sides are paired by index.
    """

    def build(first_id, medians, paired=False, occasion="today", **settings):
        return [
            Process(first_id + i, make_result([9.0, m, m, m], **settings), {"scheduler": settings.get("scheduler")},
                    (occasion, i) if paired else None, occasion, i)
            for i, m in enumerate(medians)
        ]  # fmt: skip

    return build


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.5, "faster"), (2.0, "slower"), (1.0001, "same"), (1.0, "same"), (1.008, "undecided")]
)
@pytest.mark.parametrize("paired", [True, False])
def test_verdicts(side, factor, verdict, paired):
    a = side(1, A_S, paired, scheduler="fork-join")
    b = side(100, [s * factor for s in A_S], paired, scheduler="task")
    found = compare(a, b, noise_floor=0.01 if paired or verdict != "same" else 0.05)
    if paired and verdict == "undecided":
        verdict = "same"  # pairs remove the variation between blocks: 0.8 % is detected, but is below the floor
    assert found.verdict == verdict, found.reason
    assert found.paired is paired
    assert found.ratio == pytest.approx(1 / factor)
    assert present(found.ratio_low) <= present(found.ratio) <= present(found.ratio_high)


def test_swapping_the_sides_turns_the_verdict(side):
    a, b = side(1, A_S), side(100, [s * 0.7 for s in A_S])
    assert compare(a, b).verdict == "faster"
    assert compare(b, a).verdict == "slower"
    assert compare(a, b).superiority == 1.0


def test_a_difference_below_the_noise_floor_is_no_difference(side):
    a = side(1, A_S, True)
    b = side(100, [s * 0.995 for s in A_S], True)
    assert compare(a, b, noise_floor=0.01).verdict == "same"
    assert compare(a, b, noise_floor=0.001).verdict == "faster"


def test_few_processes_decide_nothing(side):
    found = compare(side(1, [1.0, 1.0, 1.0], True), side(100, [0.5, 0.5, 0.5], True))
    assert found.verdict == "undecided"
    assert "too few" in found.reason
    assert found.ratio == 2.0


def test_one_process_each_speaks_of_steps(make_result):
    steps = [9.0, *(1.0 + 0.01 * (i % 5) for i in range(20))]
    a, b = Process(1, make_result(steps)), Process(2, make_result([s / 2 for s in steps]))
    found = compare([a], [b])
    assert (found.verdict, found.ratio, found.ratio_low, found.p_value) == ("undecided", pytest.approx(2.0), None, None)
    assert "one process each" in found.reason
    assert found.a.step_s.over == "steps"


def test_steps_of_one_process_are_not_mixed_with_medians_of_many(make_result, side):
    one = Process(1, make_result([9.0, *([1.0] * 50)]))
    found = compare([one], side(100, [0.5] * 8))
    assert found.verdict == "undecided"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"losses": [5.0, 4.9, 4.8, 4.700001]}, "losses disagree from step 3"),
        ({"weights_sha256": "other"}, "weights"),
        ({"seed": 1}, "seed"),
        ({"batch": 8}, "batch"),
        ({"token_slice": 32, "losses": [5.0, 4.9, 4.8, 4.6]}, "within 0.0001 relative"),
    ],
)
def test_results_that_disagree_are_refused(side, settings, reason):
    found = compare(side(1, A_S), side(100, A_S, **settings))
    assert found.verdict == "refused"
    assert reason in found.reason
    assert found.ratio is None


def test_a_disagreement_within_one_side_is_refused(side):
    a = side(1, A_S)
    a[-1].result["weights_sha256"] = "other"
    assert compare(a, side(100, A_S)).verdict == "refused"
    assert compare(side(100, A_S), a).verdict == "refused"


def test_other_slices_agree_within_the_tolerance(side):
    losses = [5.0, 4.9, 4.8, 4.7 * (1 + 5e-5)]
    found = compare(side(1, A_S), side(100, [s / 2 for s in A_S], token_slice=32, losses=losses, weights_sha256="x"))
    assert found.verdict == "faster"


def test_another_processor_rounds_differently_and_is_listed(side):
    b = side(100, [s / 2 for s in A_S], environment={"cpu_model": "Other"}, weights_sha256="x")
    found = compare(side(1, A_S), b)
    assert found.verdict == "faster"
    assert found.differs == ["cpu_model: Some CPU / Other"]
    assert "not like for like" in found.reason


def test_differences_of_unknown_keys_and_of_steps_are_listed(side):
    a = side(1, A_S)
    b = side(100, A_S, environment={"firmware": "7", "load_average": [9, 9, 9]}, warmup=2)
    assert compare(a, b).differs == ["firmware: null / 7", "warmup: 1 / 2"]


def test_the_same_threads_on_other_cores_are_listed_but_more_threads_are_not(side):
    assert compare(side(1, A_S), side(100, A_S, cores=[3])).differs == ["cores: [0] / [3]"]
    assert compare(side(1, A_S), side(100, A_S, threads=2)).differs == []


def test_a_setting_that_follows_from_the_compared_one_is_a_difference(make_result):
    """With sync phase the default fusion is not that of sync step."""
    a, b = (
        [Process(run, make_result([9, 1, 1], sync=sync, fusion=fusion), {"sync": sync})]
        for run, (sync, fusion) in enumerate((("step", "all"), ("phase", "rows")))
    )
    assert compare(a, b).differs == ["fusion: all / rows"]


def test_a_side_has_one_configuration(side):
    mixed = [*side(1, A_S), *side(50, A_S, threads=2)]
    found = compare(mixed, side(100, A_S))
    assert found.verdict == "refused"
    assert "A mixes configurations: threads: 1 / 2" in found.reason


def test_runs_are_not_compared_with_themselves(side):
    found = compare(side(1, A_S), side(1, A_S))
    assert found.verdict == "refused"


def test_what_has_no_partner_is_left_out_if_enough_pairs_remain(side):
    a, b = side(1, A_S, True), side(100, [s / 2 for s in A_S], True)
    found = compare(a, b[1:])
    assert (found.paired, found.n, found.verdict) == (True, 7, "faster")
    assert "1 process without a partner left out" in found.reason
    assert compare(a, b[3:]).paired is False


def test_a_process_is_in_one_pair_only(side):
    """Several processes of a side may share a block (an axis that the comparison does not fix). Six processes that are
    all compared with the same one are not six pairs."""
    a = [dataclasses.replace(process, pair="the block") for process in side(1, A_S[:6], True, scheduler="fork-join")]
    b = [dataclasses.replace(process, pair="the block") for process in side(100, [0.5], True, scheduler="task")]
    found = compare(a, b)
    assert (found.verdict, found.n) == ("undecided", 1), found.reason
    b = [dataclasses.replace(process, pair="the block") for process in side(100, [s / 2 for s in A_S[:6]], True)]
    found = compare(a, b)
    assert (found.verdict, found.n, found.ratio_low) == ("faster", 6, pytest.approx(2.0))


def test_thousands_of_pairs_of_one_sign_have_a_finite_e_value(side):
    found = compare(side(1, [1.0] * 1100, True), side(100_000, [0.5] * 1100, True))
    assert found.verdict == "faster"
    assert 1e300 < present(found.e_value) < math.inf


def test_two_occasions_are_not_compared_side_by_side(side):
    """A difference between the occasions would look like a difference between the variants."""
    a, b = side(1, A_S), side(100, [s * 0.5 for s in A_S], occasion="tomorrow")
    found = compare(a, b)
    assert (found.verdict, found.ratio, found.ratio_low, found.p_value) == ("undecided", pytest.approx(2.0), None, None)
    assert "not of one interleaved occasion" in found.reason


def test_sides_that_ran_one_after_the_other_are_not_interleaved(side):
    a, b = side(1, A_S), side(100, [s * 0.5 for s in A_S])
    later = [dataclasses.replace(process, block=process.block + len(a)) for process in b]
    assert compare(a, b).verdict == "faster"
    assert compare(a, later).verdict == "undecided"


@pytest.mark.parametrize(("n", "later", "mixed"), [(8, 1, True), (8, 2, False), (20, 2, True), (20, 9, False)])
def test_a_side_that_ran_a_little_later_is_not_interleaved_either(side, n, later, mixed):
    """The machine becomes slower by 1 % from block to block; nothing else differs. Cores differ, so nothing pairs."""
    a = side(1, [1 + 0.01 * block for block in range(n)])
    b = side(100, [1 + 0.01 * (block + later) for block in range(n)])
    b = [dataclasses.replace(process, block=process.block + later) for process in b]
    assert interleaved(a, b) is mixed
    assert compare(a, b).verdict == "undecided"


def test_six_occasions_a_side_are_what_is_sampled(side):
    def on(first_id, factor, names):
        return [p for i, name in enumerate(names)
                for p in side(first_id + 10 * i, [s * factor for s in A_S], occasion=name)]  # fmt: skip

    a, b = on(1, 1.0, "abcdef"), on(1000, 0.5, "ghijkl")
    found = compare(a, b)
    assert (found.verdict, found.unit, found.n) == ("faster", "occasions", 6)
    assert compare(a, on(1000, 0.5, "ghijk")).verdict == "undecided"


def test_pairs_of_a_few_occasions_speak_of_these_only(side):
    a = [*side(1, A_S, True), *side(20, A_S, True, occasion="tomorrow")]
    b = [*side(100, [s * 0.97 for s in A_S], True), *side(120, [s * 0.9 for s in A_S], True, occasion="tomorrow")]
    found = compare(a, b)
    assert (found.verdict, found.scope) == ("faster", "these 2 occasions only")
    assert found.ratio == pytest.approx((0.97 * 0.9) ** -0.5)


def test_a_difference_that_drifts_is_not_called(side):
    b = [s * (0.99 - 0.02 * i) for i, s in enumerate(A_S * 2)]
    found = compare(side(1, A_S * 2, True), side(100, b, True))
    assert found.verdict == "undecided"
    assert found.reason.startswith("would be faster, but the values show")
    assert any("a drift over the blocks" in finding for finding in found.diagnosis)


def test_where_a_rule_stopped_only_signs_judge(side):
    """Six pairs of one sign give p = 2 / 64 at a single look. With a look after each pair, a verdict needs seven."""
    a, b = (side(i, [s * f for s in A_S], True) for i, f in ((1, 1.0), (100, 0.5)))
    stopped = [dataclasses.replace(process, stop_rule=True) for process in a]
    assert compare(a[:6], b[:6]).verdict == "faster"
    assert compare(stopped[:6], b[:6]).verdict == "undecided"
    found = compare(stopped[:7], b[:7])
    assert (found.verdict, found.test, found.sequential) == ("faster", "signs", True)
    assert found.e_value == pytest.approx(1 / present(found.p_value))
    assert present(found.e_value) > 20


def test_an_empty_side_is_an_error(side):
    with pytest.raises(ValueError):
        compare([], side(1, A_S))


def disturb(process, foreign_s=0.0, flagged=()):
    steps = len(process.result["step_s"])
    process.result["validity"] = {"foreign": {"cores": [0], "busy_s": 3.0, "own_s": 3.0 - foreign_s,
                                              "foreign_s": foreign_s}}  # fmt: skip
    process.result["flagged"] = [["run_delay"] if step in flagged else [] for step in range(steps)]


def test_a_foreign_load_beside_a_run_is_marked_and_said(side):
    def sides(**loads):
        a, b = side(1, A_S), side(100, [s * 0.7 for s in A_S])
        for process in (*a, *b):
            disturb(process, **loads.get(f"run_{process.run_id}", {}))
        return a, b

    a, b = sides()
    assert compare(a, b).marks == compare(a, b).brief == []
    found = compare(*sides(run_102={"foreign_s": 0.4}))
    assert found.marks == ["run 102: foreign load: other processes used 19.2% of its cores"]
    assert found.brief == [f"1 of {len(a) + len(b)} runs disturbed (foreign load 19 %)"]
    assert found.reason.endswith(f"1 of {len(a) + len(b)} runs was disturbed")
    assert (found.verdict, found.disturbed_runs) == ("faster", 1)
    every = compare(*sides(**{f"run_{p.run_id}": {"foreign_s": 0.4} for p in (*a, *b)}))
    assert every.reason.endswith(f"most runs were disturbed ({len(a) + len(b)} of {len(a) + len(b)})")


def test_flagged_steps_count_unless_it_is_declared_that_they_do_not(make_result):
    def process(run_id, leave_out):
        result = make_result([9.0, 1.0, 5.0, 5.0])
        made = Process(run_id, result, {}, leave_out_flagged=leave_out)
        disturb(made, flagged=(2, 3))
        return made

    assert process(1, leave_out=False).median_step_s == 5.0
    assert process(1, leave_out=True).median_step_s == 1.0
    found = compare([process(1, True)], [process(2, True)])
    assert found.marks[0] == "run 1: 2 of 3 timed steps are flagged (run_delay 2)"
    everything = process(1, leave_out=True)
    disturb(everything, flagged=(1, 2, 3))
    assert everything.median_step_s == 5.0


def test_one_bit_of_one_loss_refuses_the_comparison(side):
    a, b = side(1, A_S), side(100, A_S)
    b[3].result["losses"][2] = math.nextafter(b[3].result["losses"][2], 10.0)
    found = compare(a, b)
    assert (found.verdict, found.ratio) == ("refused", None)
    assert "disagree from step 2" in found.reason


def test_runtimes_are_compared_if_asked_for_and_named_if_they_changed_unasked(side):
    """Runs of two schedulers have two runtimes. Runs of one scheduler should have one, whatever `auto` selected."""
    ours, old, new = ({"scheduler": runtime} for runtime in (None, {"version": "GOMP_5.0"}, {"version": "GOMP_5.1"}))
    task = side(1, A_S, scheduler="task", environment=ours)
    omp = side(100, A_S, scheduler="omp-task", environment=new)
    assert compare(task, omp).differs == []
    mixed = side(100, A_S[1:], scheduler="omp-task", environment=new) + side(
        200, A_S[:1], scheduler="omp-task", environment=old
    )
    assert any("GOMP_5.0" in difference for difference in compare(task, mixed).differs)


def waves(runs):
    """Log ratios around 3 % that resemble their neighbours, though they do not drift."""
    return [1 - 0.03 - 0.01 * math.sin(i * math.tau / runs * 2) for i in range(runs)]


def test_pairs_that_resemble_each_other_within_two_occasions_decide_nothing(side):
    a, b = [], []
    for occasion in ("today", "later"):
        first = 1 + 1000 * (occasion == "later")
        a += side(first, [1.0] * 20, True, occasion=occasion, scheduler="fork-join")
        b += side(first + 100, waves(20), True, occasion=occasion, scheduler="task")
    found = compare(a, b)
    assert found.scope == "these 2 occasions only"
    assert found.verdict == "undecided", found.reason
    assert "would be faster, but the values show neighbours resemble each other" in found.reason


def test_many_processes_without_a_valid_test_are_not_called_few(side):
    found = compare(side(1, A_S), side(100, [s * 0.7 for s in A_S], occasion="tomorrow"))
    assert found.verdict == "undecided"
    assert "too few" not in found.reason
    assert "no interval and no test" in found.reason
    sides = side(1, A_S), side(100, [s * 0.7 for s in A_S])
    a, b = ([dataclasses.replace(process, stop_rule=True) for process in each] for each in sides)
    found = compare(a, b)
    assert "their number was not fixed beforehand" in found.reason
    assert "not of one interleaved occasion" not in found.reason


def test_an_occasion_with_two_pairs_is_named_as_what_is_missing(side):
    """Eight pairs on one occasion would decide, but two on another one leave its variance unknown."""
    a = [*side(1, A_S, True), *side(50, A_S[:2], True, occasion="tomorrow")]
    b = [*side(100, [s * 0.5 for s in A_S], True), *side(150, [s * 0.5 for s in A_S[:2]], True, occasion="tomorrow")]
    found = compare(a, b)
    assert (found.verdict, found.n, found.ratio_low) == ("undecided", 10, None)
    assert "at least 3 on every occasion" in found.reason
