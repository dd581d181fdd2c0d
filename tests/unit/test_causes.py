import pytest

from taskloom.analysis.causes import efficiencies, rooflines
from taskloom.analysis.processes import Process
from taskloom.analysis.roofline import model_flop
from tests.support.present import present

PEAKS = {"peaks": {"threads": {"1": {"gflop_per_s": 200.0, "triad_gb_per_s": 10.0},
                               "2": {"gflop_per_s": 400.0, "triad_gb_per_s": 12.0}}}}  # fmt: skip


def thread(number, useful_s, barrier_s=0.0, starvation_s=0.0, scheduling_s=0.0):
    return {"thread": number, "useful_s": useful_s, "barrier_s": barrier_s, "starvation_s": starvation_s,
            "scheduling_s": scheduling_s, "idle_s": 0.0}  # fmt: skip


@pytest.fixture
def processes(make_result):
    """One run with one thread, two alike with two; each has two timed steps of 1 s or 0.6 s."""
    one = make_result([9.0, 1.0, 1.0], scheduler="fork-join", environment=PEAKS)
    one["threads"] = [thread(0, 1.98, scheduling_s=0.02)]
    one["graph"] = {"t1_s": 1.0, "tinf_s": 0.2, "fork_join_tinf_s": 0.4}
    one["ops"] = [
        {"op": "fc", "phase": "forward", "calls": 2, "time_s": 1.0, "flop": 10**11, "bytes": 10**9},
        {"op": "adamw", "phase": "update", "calls": 2, "time_s": 1.0, "flop": 10**9, "bytes": 8 * 10**9},
    ]
    found = [Process(1, one, {"threads": 1})]
    for run_id in (2, 3):
        two = make_result([9.0, 0.6, 0.6], scheduler="fork-join", threads=2, environment=PEAKS)
        two["threads"] = [thread(0, 1.1, barrier_s=0.08, scheduling_s=0.02), thread(1, 0.9, 0.2, 0.06, 0.04)]
        two["graph"] = one["graph"]
        two["ops"] = one["ops"]
        found.append(Process(run_id, two, {"threads": 2}))
    return found


def test_factors_of_a_variant_come_from_the_totals_of_its_runs(processes):
    _, row = efficiencies(processes)
    assert (row.variant.threads, row.variant.runs, row.missing) == (2, 2, [])
    factors, split, bounds = present(row.efficiency), present(row.waiting), present(row.bounds)
    assert factors.parallel == pytest.approx(4.0 / (2 * 2.4))
    assert factors.load_balance == pytest.approx(2.0 / 2.2)
    product = factors.load_balance * present(factors.serialisation) * present(factors.transfer)
    assert product == pytest.approx(factors.parallel, rel=1e-9)
    assert (split.useful_s, split.serial_s, split.load_balance_s) == pytest.approx((4.0, 0.12, 0.56))
    assert split.serial * split.load_balance * split.scheduling == pytest.approx(factors.parallel, rel=1e-9)
    assert present(row.scalability).computation == pytest.approx((1.98 / 2) / (4.0 / 4))
    assert [b.threads for b in bounds.fork_join] == [1, 2, 4, 8]
    assert bounds.gain_limit == pytest.approx(2.0)


def test_the_critical_path_is_the_span_where_that_is_longer(processes):
    for process in processes[1:]:
        process.result["graph"] = {"t1_s": 1.0, "tinf_s": 0.2, "fork_join_tinf_s": 0.59}
    _, row = efficiencies(processes)
    assert present(row.efficiency).serialisation == pytest.approx(2.2 / (4 * 0.59))


def test_what_results_lack_is_said(make_result):
    (row,) = efficiencies([Process(1, make_result(), {})])
    assert (row.efficiency, row.waiting, row.bounds) == (None, None, None)
    assert row.missing == ["the results contain no times of threads", "the results contain no work and span"]
    (roof,) = rooflines([Process(1, make_result(), {})])
    said = "the node's peaks with threads = 1 were not measured (there: taskloom doctor --peaks)"
    assert (roof.peaks, roof.missing) == (None, [said])


def test_rooflines_join_with_computation_scalability(processes):
    for process in processes[1:]:
        process.result["phase_busy_s"]["update"] = [0.1, 0.2, 0.2]  # one thread: 0.1 of 1 s
    _, row = rooflines(processes)
    assert row.mfu == pytest.approx(model_flop(processes[1].config) / (0.6 * 400e9))
    assert row.mfu_registers is None
    for process in processes:
        process.result["environment"]["peaks"] = {
            "threads": {"2": {"gflop_per_s": 400.0, "triad_gb_per_s": 12.0, "registers_gflop_per_s": 500.0}}
        }
    assert rooflines(processes)[1].mfu_registers == pytest.approx(0.8 * present(row.mfu))
    roofs = {roof.op: roof for roof in row.ops}
    assert roofs["fc"].bound == "compute"
    assert roofs["fc"].achieved_gflop_per_s == pytest.approx(200.0)
    assert (roofs["adamw"].bound, roofs["adamw"].achieved_gb_per_s) == ("memory", pytest.approx(16.0))
    answers = {phase.phase: phase.answer for phase in row.phases}
    assert answers == {"forward": "partly", "update": "yes"}


def test_a_rank_is_measured_against_the_peak_of_its_own_threads(make_result):
    peaks = {"peaks": {"threads": {"1": {"gflop_per_s": 100.0, "triad_gb_per_s": 10.0}}}}
    one, two = (rooflines([Process(1, make_result([9, 1, 1], ranks=ranks, environment=peaks), {})])[0].mfu
                for ranks in (1, 2))  # fmt: skip
    assert two == pytest.approx(present(one) / 2)


def test_counters_count_where_waiting_is_a_small_part_of_them(processes):
    for process in processes:
        steps = 2 * len(process.result["threads"])
        process.result["counters"] = {"threads": [{"instructions": 10**9 / steps, "cycles": 10**9 / steps}]}
    _, waiting = efficiencies(processes)
    assert present(waiting.scalability).ipc is None
    for process in processes[1:]:
        process.result["threads"] = [thread(0, 1.19), thread(1, 1.19)]
    _, busy = efficiencies(processes)
    found = present(busy.scalability)
    counted = present(found.instructions) * present(found.ipc) * present(found.frequency)
    assert counted == pytest.approx(found.computation, rel=1e-9)
