from __future__ import annotations

import itertools

import pytest

from taskloom.worker.agent import TRANSITIONS, Agent, InvalidTransition, Phase, StopReason
from tests.support.leases import lease


def running(drain: str = "finish") -> Agent:
    agent = Agent("release" if drain == "release" else "finish")
    agent.claim(lease())
    return agent


@pytest.mark.parametrize(("phase", "verb"), list(itertools.product(Phase, ("finish", "acknowledge", "stop"))))
def test_every_verb_leads_where_the_table_says_or_is_refused(phase: Phase, verb: str) -> None:
    agent = Agent("finish")
    agent.phase = phase
    sources, target = TRANSITIONS[verb]
    if phase in sources:
        getattr(agent, verb)()
        assert agent.phase is target
    else:
        with pytest.raises(InvalidTransition):
            getattr(agent, verb)()
        assert agent.phase is phase


def test_a_worker_has_one_run_at_a_time() -> None:
    with pytest.raises(InvalidTransition):
        running().claim(lease(2))


def test_the_first_reason_to_stop_counts() -> None:
    agent = running()
    assert agent.ask_to_stop(StopReason.CANCEL) is True
    assert agent.ask_to_stop(StopReason.DEADLINE) is False
    assert agent.stop_reason is StopReason.CANCEL


def test_a_lost_lease_overrides_any_reason() -> None:
    agent = running()
    agent.ask_to_stop(StopReason.CANCEL)
    agent.ask_to_stop(StopReason.LEASE_LOST)
    assert agent.stop_reason is StopReason.LEASE_LOST


def test_a_reason_does_not_reach_the_next_run() -> None:
    agent = running()
    agent.ask_to_stop(StopReason.CANCEL)
    agent.finish()
    assert agent.ask_to_stop(StopReason.LEASE_LOST) is False
    agent.acknowledge()
    agent.claim(lease(2))
    assert agent.stop_reason is None


def test_draining_lets_the_run_finish_or_hands_it_back() -> None:
    for drain, reason in (("finish", None), ("release", StopReason.RELEASE)):
        agent = running(drain)
        assert agent.drain() is reason
        assert agent.draining
    assert Agent("release").drain() is None


def test_progress_follows_the_trainers_events() -> None:
    agent = running()
    assert (agent.progress.stage, agent.progress.steps) == ("starting", 12)
    assert agent.note({"event": "planned", "tasks": 5}) is False
    assert agent.progress.stage == "starting"
    assert agent.note({"event": "compiling", "done": 1, "total": 9}) is True
    assert agent.progress.stage == "compiling"
    assert agent.note({"event": "step", "step": 3, "steps": 12, "loss": 5.0, "tokens_per_s": 10.0}) is True
    assert (agent.progress.stage, agent.progress.step, agent.progress.loss) == ("training", 3, 5.0)
    assert agent.note({"event": "step", "step": 4, "steps": 12, "loss": 4.0, "tokens_per_s": 10.0}) is False
    assert agent.note({"event": "result"}) is True
    assert (agent.progress.stage, agent.progress.step) == ("finishing", 4)
    assert agent.note({"event": "from the future"}) is False


def test_the_stage_of_steps_follows_the_runs_mode() -> None:
    agent = running()
    stages = []
    for mode in ("infer", "train"):
        agent.finish()
        agent.acknowledge()
        agent.claim(lease(2, mode=mode))
        assert agent.note({"event": "step", "step": 1, "steps": 12, "loss": None, "tokens_per_s": 10.0}) is True
        stages.append(agent.progress.stage)
    assert stages == ["inferring", "training"]


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -1e101, "7"])
def test_a_figure_of_a_run_that_diverges_is_left_out(figure: object) -> None:
    agent = running()
    agent.note({"event": "step", "step": 3, "steps": 12, "loss": figure, "tokens_per_s": 10.0})
    assert (agent.progress.step, agent.progress.loss, agent.progress.tokens_per_s) == (3, None, 10.0)
