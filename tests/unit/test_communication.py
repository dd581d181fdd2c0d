"""What ranks exchange: means of a timed step, rows of variants, and the report's section."""

import json
import re
from typing import Any

import pytest

from gpt2core.spec.result import communication_per_step
from taskloom.analysis.causes import efficiencies
from taskloom.analysis.communication import communication
from taskloom.analysis.processes import Process
from taskloom.analysis.report import page
from taskloom.server.queue.attempts.digest import digest
from tests.support.exchanges import MIB, exchanged
from tests.support.present import present
from tests.support.report_example import make_report

HIDING = ((0.02, 0.4, 0.1), (0.04, 0.2, 0.1))  # in calls, in flight, exposed
WAITING = ((0.03, 0.4, 0.392), (0.03, 0.4, 0.41))  # the second's clock says that it waited for longer than in flight


@pytest.fixture
def processes(make_result):
    """Seven blocks: one rank, and two ranks under two schedulers."""
    made: list[Any] = []
    for block in range(7):
        for scheduler, ranks, spent in (("task", 1, ()), ("fork-join", 2, WAITING), ("task", 2, HIDING)):
            step_s = (2.0 if scheduler == "fork-join" else 1.5) + 0.001 * ((3 * block + ranks) % 5)
            result = make_result([9, step_s, step_s], scheduler=scheduler, ranks=ranks, batch=4, threads=1,
                                 fusion="rows")  # fmt: skip
            result["memory_bytes"] = result["resident_bytes"] = {}
            result["communication"] = exchanged(*spent)
            variant = {"scheduler": scheduler, "ranks": ranks}
            made.append(Process(len(made) + 1, result, variant, (1, block)))
    return made


def test_a_mean_is_that_of_the_timed_steps(make_result):
    result = {**make_result([9, 1, 1]), "communication": exchanged(*HIDING)}
    first, second = communication_per_step(result)
    assert first == pytest.approx({"calls_s": 0.02, "in_flight_s": 0.4, "exposed_s": 0.1, "bytes_sent": 3 * MIB,
                                   "bytes_received": MIB})  # fmt: skip
    assert (second["bytes_sent"], second["bytes_received"]) == (MIB, 3 * MIB)
    assert communication_per_step(make_result()) == []
    only_warmup = {**result, "step_s": [9], "config": {**result["config"], "warmup": 1}}
    assert communication_per_step(only_warmup) == []


def test_what_is_kept_of_a_result_says_the_same(processes):
    for process in processes:
        kept: dict[str, Any] = {}
        for part in digest(process.result).values():
            kept |= json.loads(part)
        del kept["config"]  # it is kept apart
        assert Process(1, kept).communication == process.communication
        earlier = {name: value for name, value in kept.items() if name != "communication_per_step"}
        assert Process(1, earlier).communication == []


def test_variants_of_several_ranks_have_a_row(processes):
    waiting, hiding = communication(processes)
    assert [row.variant.scheduler for row in (waiting, hiding)] == ["fork-join", "task"]
    assert [rank.rank for rank in hiding.ranks] == [0, 1]
    assert hiding.ranks[1].calls_s == pytest.approx(0.04)
    assert hiding.ranks[1].bytes_received == 3 * MIB
    assert hiding.hidden == pytest.approx(1 - 0.2 / 0.6)
    assert waiting.hidden == pytest.approx(1 - 0.792 / 0.8)  # at most all of it is exposed


def test_the_report_says_what_computation_hides(processes):
    report = make_report(processes)
    said = report.conclusion
    assert (
        "Under fork-join 1x64, 2 ranks, 1 thread, messages between ranks are in flight for 400 ms of a step, of which "
        "computation hides 1%."
    ) in said
    assert "2 ranks, 1 thread, messages between ranks are in flight for 300 ms of a step, of which computation " in said
    assert "hides 67%." in said
    text = page(report)
    section = text.partition("<h2>Communication</h2>")[2].partition("<h2>")[0]
    names = ["fork-join 1x64, 2 ranks, 1 thread, rank 0", "fork-join 1x64, 2 ranks, 1 thread, rank 1",
             "task (sync step) 1x64, 2 ranks, 1 thread, rank 0", "task (sync step) 1x64, 2 ranks, 1 thread, rank 1"]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", section)[1:]]
    assert rows == [
        [names[0], "30", "400", "392", "3.0", "1.0"], [names[1], "30", "400", "410", "1.0", "3.0"],
        [names[2], "20", "400", "100", "3.0", "1.0"], [names[3], "40", "200", "100", "1.0", "3.0"],
    ]  # fmt: skip
    titles = re.findall(r"<title>(.*?)</title>", section)
    assert titles == ["hidden: 8 ms", "exposed: 392 ms", "hidden: 0 ms", "exposed: 400 ms", "hidden: 300 ms",
                      "exposed: 100 ms", "hidden: 100 ms", "exposed: 100 ms"]  # fmt: skip
    assert re.findall(r">(\d+%)<", section) == ["2%", "0%", "75%", "50%"]


def test_a_report_without_ranks_has_no_such_section(processes):
    report = make_report([process for process in processes if process.config["ranks"] == 1])
    assert report.communication == []
    assert "Communication" not in page(report)


def test_efficiency_is_that_of_the_threads_of_all_ranks(make_result):
    result = make_result([9, 1, 1], scheduler="task", ranks=2, batch=4, threads=1, fusion="rows")
    result["threads"] = [{"thread": 0, "useful_s": 1.8, "starvation_s": 0.2, "barrier_s": 0.0, "idle_s": 0.0}]
    result["graph"] = {"t1_s": 0.9, "tinf_s": 0.2, "fork_join_tinf_s": 0.5}
    result["communication"] = exchanged(*HIDING)
    for rank, useful_s in zip(result["communication"], (1.8, 0.9), strict=True):
        rank["useful_s"] = [useful_s]
    kept: dict[str, Any] = {}
    for part in digest(result).values():
        kept |= json.loads(part)
    for process in (Process(1, result), Process(1, kept)):
        (row,) = efficiencies([process])
        found = present(row.efficiency)
        assert (found.parallel, found.load_balance) == (pytest.approx(2.7 / 4), pytest.approx(1.35 / 1.8))
        assert (found.serialisation, found.transfer) == (pytest.approx(1.0), pytest.approx(0.9))
    del result["communication"][1]["useful_s"]  # as in older results: only rank 0's are known
    (row,) = efficiencies([Process(1, result)])
    assert present(row.efficiency).parallel == pytest.approx(0.9)
