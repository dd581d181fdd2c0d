"""The rules obey the transition table for every possible combination of facts."""

import itertools

import pytest

from taskloom.server.errors import InvalidTransition, LeaseLost
from taskloom.server.queue.attempts.rules import Change, Facts, beat, expire, finish, overrun
from taskloom.server.queue.tables.states import ACTIVE, ATTEMPT, RUN


def facts(**given):
    return Facts(
        **{
            "attempt_id": 1,
            "attempt_no": 1,
            "attempt_state": "running",
            "deadline_at": 100.0,
            "run_state": "running",
            "newest_attempt_no": 1,
            "cancel_requested": False,
            "losses": 0,
            "now": 50.0,
            "tracing": False,
            "to_trace": False,
            "replaced": False,
            **given,
        }
    )


def every_fact():
    """All combinations that the schema and the table allow."""
    for attempt, run, newer, cancel, late, losses, trace in itertools.product(
        ATTEMPT.states, RUN.states, (0, 1), (False, True), (False, True), (0, 2), ("no", "wanted", "now")
    ):
        if attempt in ACTIVE and (run != attempt or newer):
            continue  # an active attempt is the newest of its run, and both have the same state
        if attempt not in ACTIVE and run in ACTIVE and not newer:
            continue  # an active run has an active newest attempt
        if cancel and run in ("queued", "quarantined"):
            continue  # a cancelled run is not queued again; a retry withdraws the cancellation
        if trace == "now" and run in ("failed", "cancelled", "quarantined"):
            continue  # a run that is being traced has its result
        yield facts(
            tracing=trace == "now",
            to_trace=trace != "no",
            attempt_state=attempt,
            run_state=run,
            newest_attempt_no=1 + newer,
            cancel_requested=cancel,
            now=200.0 if late else 50.0,
            losses=losses,
        )


def lands(given, change):
    """The states after a change according to the table. Raises if the table does not allow it."""
    run = given.run_state if change.run is None else RUN.after(given.run_state, change.run, 1)
    return ATTEMPT.after(given.attempt_state, change.attempt, 1), run


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
def test_results_lead_where_the_table_allows(outcome):
    for given in every_fact():
        change = finish(given, outcome)
        try:
            attempt, run = lands(given, change)
        except InvalidTransition:
            assert given.attempt_state in ("succeeded", "cancelled", "superseded"), given
            continue
        assert attempt not in ACTIVE
        if change.canonical:
            assert given.counts
            assert not given.tracing
            assert run == attempt or (run, attempt) == ("queued", "succeeded")
        if given.tracing:
            assert run in (given.run_state, "succeeded", "queued")
        if not given.counts:
            assert (attempt, run) == ("superseded", given.run_state)


def test_no_rule_leaves_a_run_active_without_an_active_attempt():
    for given in every_fact():
        changes = [finish(given, outcome) for outcome in ("succeeded", "failed", "cancelled")]
        if given.active:
            changes += [expire(given, 2), overrun(given)]
        try:
            changes.append(beat(given))
        except (LeaseLost, InvalidTransition):
            assert not given.counts
        for change in changes:
            try:
                attempt, run = lands(given, change)
            except InvalidTransition:
                continue
            if given.newest_attempt_no == 1:
                assert (attempt in ACTIVE) == (run in ACTIVE), (given, change)


def test_a_run_that_succeeded_stays_so():
    for given in every_fact():
        if given.run_state == "succeeded":
            assert not given.counts
            assert finish(given, "failed").run is None


def test_a_lost_lease_is_renewed_until_someone_takes_the_run():
    lost = {"attempt_state": "lost", "run_state": "queued"}
    assert beat(facts(**lost)) == Change("renew", "renew")
    assert beat(facts(attempt_state="lost", run_state="quarantined")) == Change("renew", "renew")
    with pytest.raises(LeaseLost):
        beat(facts(**lost, newest_attempt_no=2))
    with pytest.raises(LeaseLost):
        beat(facts(attempt_state="lost", run_state="cancelled"))
    with pytest.raises(LeaseLost):
        beat(facts(**lost, replaced=True))


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_what_is_finished_takes_no_heartbeat(state):
    with pytest.raises(InvalidTransition, match="accepts no heartbeat") as caught:
        beat(facts(attempt_state=state, run_state=state))
    assert caught.value.fields["current"] == state


def test_a_late_result_counts_unless_a_newer_attempt_was_claimed():
    lost = {"attempt_state": "lost", "run_state": "queued"}
    assert finish(facts(**lost), "succeeded") == Change("succeed", "succeed", canonical=True)
    assert finish(facts(**lost, newest_attempt_no=2), "succeeded") == Change("supersede", None)


def test_cancelled_without_being_asked_hands_the_run_back():
    assert finish(facts(), "cancelled") == Change("cancel", "requeue")
    assert finish(facts(cancel_requested=True), "cancelled") == Change("cancel", "cancel", canonical=True)
    assert finish(facts(now=100.0), "cancelled") == Change("fail", "fail", canonical=True)
    assert finish(facts(attempt_state="lost", run_state="queued"), "cancelled") == Change("cancel", None)


@pytest.mark.parametrize(("losses", "verb"), [(0, "requeue"), (1, "requeue"), (2, "quarantine")])
def test_a_run_is_queued_again_twice_then_quarantined(losses, verb):
    assert expire(facts(losses=losses), max_losses=2) == Change("expire", verb)


def test_a_run_to_be_cancelled_is_not_queued_again():
    assert expire(facts(cancel_requested=True), max_losses=2) == Change("expire", "cancel")


def test_a_run_to_be_traced_is_queued_again_when_it_was_timed():
    assert finish(facts(to_trace=True), "succeeded") == Change("succeed", "trace", canonical=True)
    assert finish(facts(to_trace=True, cancel_requested=True), "succeeded") == Change(
        "succeed", "succeed", canonical=True
    )
    assert finish(facts(to_trace=True), "failed") == Change("fail", "fail", canonical=True)


@pytest.mark.parametrize(
    ("outcome", "attempt"), [("succeeded", "succeed"), ("failed", "fail"), ("cancelled", "cancel")]
)
def test_however_tracing_ends_the_run_has_succeeded(outcome, attempt):
    traced = facts(tracing=True, to_trace=True, cancel_requested=outcome == "cancelled")
    assert finish(traced, outcome) == Change(attempt, "succeed")
    assert overrun(traced) == Change("fail", "succeed")
    assert expire(facts(tracing=True, losses=2), max_losses=2) == Change("expire", "succeed")


def test_tracing_that_was_lost_or_handed_back_is_tried_again():
    assert expire(facts(tracing=True, losses=1), max_losses=2) == Change("expire", "requeue")
    assert finish(facts(tracing=True), "cancelled") == Change("cancel", "requeue")
