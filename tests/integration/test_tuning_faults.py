"""Tunings whose servers compete, whose nodes vanish, and which are cancelled or have nothing to choose from."""

from typing import Any

import pytest

from tests.support.patience import until
from tests.support.tunings import BASE, answer, decide, open_runs, play, run_block, seconds, settings_of, submit

pytestmark = pytest.mark.both_databases
PHASES = {"explore": 0, "confirm": 2, "fresh": 8}  # number of the first block of each phase
ONE_ON_BOTH = ["confirm", *(pytest.param(each, marks=pytest.mark.on_sqlite) for each in ("explore", "fresh"))]


@pytest.fixture
def api(start_server):
    """Its loop that decides does nothing within a test; `decide` does."""
    return start_server(poll_s=3600.0)


def decisions(api, made):
    """What ran, in the order of the decisions."""
    query = "SELECT block, role, variant FROM run WHERE experiment_id = :id ORDER BY id"
    return [tuple(map(str, row)) for row in api.sql(query, id=made["id"])]


def until_block(api, node, make_result, made, block):
    """Execute the blocks before this one."""
    for _ in range(block):
        run_block(node, make_result, open_runs(api, made))
        decide(api)


def places(api, made):
    """The node of each block's results."""
    query = (
        "SELECT run.block, attempt.node FROM run JOIN attempt ON attempt.run_id = run.id "
        "WHERE run.experiment_id = :id AND attempt.state = 'succeeded' ORDER BY run.id"
    )
    found: dict[str, Any] = {}
    for block, node in api.sql(query, id=made["id"]):
        found.setdefault(block, set()).add(node)
    return found


def test_two_servers_decide_what_one_decides(start_server, make_result):
    first = start_server(poll_s=3600.0)
    alone = submit(first)
    node = first.worker()
    play(first, node, make_result, alone)
    api, other = start_server(poll_s=0.1), start_server(poll_s=0.1)
    made = submit(api)

    def state():
        return other.get(f"/experiments/{made['id']}")["state"]

    number = 0
    while True:
        until(lambda: open_runs(api, made) or state() == "finished", "the next block, or the end")
        if state() == "finished":
            break
        run_block(node, make_result, open_runs(api, made), scale=1 + 0.01 * (number % 5))
        number += 1
    assert decisions(api, made) == decisions(api, alone)
    assert answer(api, made)["sentence"] == answer(other, alone)["sentence"]


@pytest.mark.parametrize("phase", ONE_ON_BOTH)
def test_a_worker_that_was_lost_returns_to_its_block(api, make_result, phase):
    made = submit(api)
    node, other = api.worker(), api.worker("w2")
    until_block(api, node, make_result, made, PHASES[phase])
    lost = node.claim()
    api.let_lease_run_out(lost["attempt_id"])
    api.reap()
    other.claim(204)  # the block belongs to the first node
    again = node.claim()
    assert (again["run_id"], again["attempt_no"]) == (lost["run_id"], 2)
    s = seconds(again["spec"])
    node.upload(again, make_result([9, s, s], **settings_of(again["spec"])))
    play(api, node, make_result, made)
    found = answer(api, made)
    settings = [str(trial["settings"]) for trial in found["trials"]]
    assert len(settings) == len(set(settings)) == 6
    assert (len(found["pairs"]), found["confirmed"]["pairs"], found["share"]["drawn"]) == (6, 6, 4)
    assert found["missing"] == []


@pytest.mark.parametrize("phase", ONE_ON_BOTH)
def test_a_block_whose_node_disappears_is_repeated_on_one_node(api, make_result, phase):
    """The second node takes three times as long, so a ratio over both nodes would be wrong by that factor."""
    made = submit(api)
    first_planned = answer(api, made)["planned_runs"]
    node, other = api.worker(), api.worker("w2")
    until_block(api, node, make_result, made, PHASES[phase])
    planned = open_runs(api, made)
    run_block(node, make_result, 1)
    api.sql("UPDATE worker SET seen_at = seen_at - 1000 WHERE worker_id = 'w1'")
    run_block(other, make_result, planned - 1, scale=3)
    decide(api)
    shown = play(api, other, make_result, made)
    assert (shown["state"], shown["tuning"]["reason"]) == ("finished", "complete")
    found, torn = answer(api, made), PHASES[phase]
    assert [block for block, nodes in places(api, made).items() if len(nodes) > 1] == [torn]
    measured = [trial for trial in found["trials"] if trial["state"] == "measured"]
    for trial in measured:
        assert trial["ratio"] == pytest.approx(2 * 2.0 / seconds({**BASE, **trial["settings"]}))
    if phase == "explore":
        apart = [trial for trial in found["trials"] if trial["state"] == "no-default"]
        assert {trial["block"] for trial in apart} == {torn}
        assert {trial["reason"] for trial in apart} == {"the default of its block ran on another node"}
    else:
        settings = [str(trial["settings"]) for trial in measured]
        assert len(settings) == len(set(settings)) == 6
    roles = [[role for block, role, _ in decisions(api, made) if block == str(number)] for number in (torn, torn + 1)]
    if phase == "confirm":
        assert roles[0] == roles[1]
        assert [pair["ratio"] is None for pair in found["pairs"]] == [True] + [False] * 6
    if phase == "fresh":
        drawn = [variant for _, role, variant in decisions(api, made) if role == "drawn"]
        assert drawn[0] == drawn[1]
        assert torn not in [draw["block"] for draw in found["draws"]]
    assert found["confirmed"]["pairs"] == 6
    assert found["confirmed"]["ratio"] == pytest.approx(4.0 / seconds({**BASE, **found["best"]}))
    assert {draw["state"] for draw in found["draws"]} <= {"slower", "not-slower", "equal"}
    assert found["missing"] == []
    assert found["planned_runs"] == first_planned + (0 if phase == "explore" else 2)


@pytest.mark.on_sqlite
def test_blocks_that_always_lose_their_node_end(api, make_result):
    """Three of a phase are repeated; later ones count as blocks without a result."""
    made = submit(api, tune={"runs": 3, "fresh": 1})
    node, other = api.worker(), api.worker("w2")
    until_block(api, node, make_result, made, 1)
    for _ in range(40):
        if not open_runs(api, made):
            break
        api.sql("UPDATE worker SET seen_at = seen_at + 1000 WHERE worker_id = 'w1'")
        node.register()
        run_block(node, make_result, 1)
        api.sql("UPDATE worker SET seen_at = seen_at - 1000 WHERE worker_id = 'w1'")
        run_block(other, make_result, 1)
        decide(api)
    found = answer(api, made)
    assert (found["phase"], found["reason"], found["confirmed"]) == ("ended", "complete", None)
    assert (len(found["pairs"]), found["k"], found["m"]) == (6 + 3, 0, 1)
    assert found["missing"][0] == "0 of 6 pairs of the confirmation have results; a ratio needs 6"


@pytest.mark.parametrize("phase", ONE_ON_BOTH)
def test_cancelled_between_two_blocks_and_tried_again(api, make_result, phase):
    made = submit(api)
    node = api.worker()
    until_block(api, node, make_result, made, PHASES[phase])
    run_block(node, make_result, open_runs(api, made))
    assert api.post(f"/experiments/{made['id']}/cancel")["state"] == "cancelled"
    assert not decide(api)
    assert answer(api, made)["phase"] == "ended"
    again = api.post(f"/experiments/{made['id']}/retry")
    assert (again["state"], again["finished_at"]) == ("active", None)
    assert decide(api)
    assert play(api, node, make_result, made)["tuning"]["reason"] == "complete"
    found = answer(api, made)
    assert (len(found["trials"]), found["confirmed"]["pairs"], found["share"]["drawn"]) == (6, 6, 4)
    assert api.post(f"/experiments/{made['id']}/retry", status=409)["current"] == "finished"


@pytest.mark.on_sqlite
def test_ties(api, make_result):
    """All settings take the same time: the first one tried is the winner, and it beats nothing."""
    made = submit(api)
    node = api.worker()
    for number in range(40):
        for _ in range(open_runs(api, made)):
            lease = node.claim()
            s = 1 + 0.01 * (number % 5)
            node.upload(lease, make_result([9, s, s], **settings_of(lease["spec"])))
        if not decide(api):
            break
    found = answer(api, made)
    assert found["best"] == found["trials"][0]["settings"]
    assert (found["confirmed"]["verdict"], found["confirmed"]["ratio"]) == ("same", 1.0)
    assert {draw["state"] for draw in found["draws"]} <= {"not-slower", "equal"}
    assert (found["k"], found["beats_at_least"]) == (0, 0.0)
    assert "equivalent within the noise floor" in found["sentence"]
    assert "faster than at least 0 % of the 10 valid settings" in found["sentence"]


@pytest.mark.on_sqlite
def test_a_default_outside_the_space(api, make_result):
    """The base has 4 threads and a policy that no setting of the space has."""
    base = {**BASE, "scheduler": "task", "threads": 4, "policy": "critical-path"}
    space = {"threads": [1, 2], "sync": ["phase", "none"], "policy": ["breadth-first"]}
    made = api.submit(base=base, space=space, tune={"runs": 3, "batch": 3, "confirm": 6, "fresh": 2})
    play(api, api.worker(cores=[0, 1, 2, 3]), make_result, made)
    runs = [api.get(f"/runs/{run['id']}") for run in api.runs(made["id"])]
    defaults = [run["spec"] for run in runs if run["variant"]["threads"] == 4]
    assert {(spec["threads"], spec["policy"], spec["sync"]) for spec in defaults} == {(4, "critical-path", "step")}
    assert len(defaults) == 1 + 6
    found = answer(api, made)
    assert found["best"]["threads"] == 2
    assert found["confirmed"]["verdict"] == "slower"
    assert "is slower than the default" in found["sentence"]
    assert api.get("/tuned")["items"] == []


@pytest.mark.parametrize(
    ("phase", "share"), [pytest.param("explore", None, marks=pytest.mark.on_sqlite), ("fresh", 1)]
)
def test_a_budget_that_ends_in_explore_or_in_the_draws(api, make_result, phase, share):
    made = submit(api, tune={"runs": 6, "budget_s": 1e5})
    node = api.worker()
    until_block(api, node, make_result, made, PHASES[phase] + 1)
    run_block(node, make_result, open_runs(api, made))
    api.sql("UPDATE attempt SET claimed_at = claimed_at - 90000")
    decide(api)
    shown = api.get(f"/experiments/{made['id']}")
    assert (shown["state"], shown["tuning"]["reason"]) == ("finished", "budget")
    found = answer(api, made)
    assert found["missing"]
    if share is None:
        assert found["confirmed"] is found["share"] is None
    else:
        counted = [draw for draw in found["draws"] if draw["state"] not in ("not-run", "equal")]
        assert len(counted) == 2
        assert found["m"] == 4  # the number was fixed beforehand
        lost = [draw["state"] for draw in found["draws"]].count("not-run")
        assert lost > 0
        assert found["missing"] == [f"{lost} of 4 fresh draws were not run and count against the setting"]
