import pytest

from taskloom.server.errors import InvalidTransition
from taskloom.server.queue.tables.states import ACTIVE, ATTEMPT, RUN

MACHINES = pytest.mark.parametrize("machine", [RUN, ATTEMPT], ids=["run", "attempt"])

# The allowed transitions, written by hand from the protocol.
RUN_MAY = {
    "queued": {"leased", "running", "succeeded", "failed", "cancelled"},
    "leased": {"running", "succeeded", "failed", "cancelled", "queued", "quarantined"},
    "running": {"succeeded", "failed", "cancelled", "queued", "quarantined"},
    "succeeded": set(),
    "failed": {"queued"},
    "cancelled": {"queued"},
    "quarantined": {"queued", "running", "succeeded", "failed"},
}
ATTEMPT_MAY = {
    "leased": {"running", "succeeded", "failed", "cancelled", "lost"},
    "running": {"succeeded", "failed", "cancelled", "lost"},
    "succeeded": set(),
    "failed": {"superseded"},
    "cancelled": set(),
    "lost": {"running", "succeeded", "failed", "cancelled", "superseded"},
    "superseded": set(),
}


@pytest.mark.parametrize(("machine", "may"), [(RUN, RUN_MAY), (ATTEMPT, ATTEMPT_MAY)], ids=["run", "attempt"])
def test_the_table_allows_just_what_the_protocol_does(machine, may):
    assert {state: set(machine.allowed(state)) for state in machine.states} == may


@MACHINES
def test_every_state_can_be_reached_from_the_first(machine):
    reached, new = set(), {machine.states[0]}
    while new:
        reached |= new
        new = {to for state in new for to in machine.allowed(state)} - reached
    assert reached == set(machine.states)


@MACHINES
def test_verbs_lead_where_the_table_says_and_nowhere_else(machine):
    for verb, table in machine.verbs.items():
        for state in machine.states:
            if state in table:
                assert machine.after(state, verb, 7) == table[state]
            else:
                with pytest.raises(InvalidTransition) as caught:
                    machine.after(state, verb, 7)
                assert caught.value.fields == {"current": state, "allowed": machine.allowed(state)}


@MACHINES
def test_tables_name_known_states_only(machine):
    for table in machine.verbs.values():
        assert {*table, *table.values()} <= set(machine.states)


def test_final_states_are_neither_queued_nor_active():
    assert set(RUN.final()) == {"succeeded", "failed", "cancelled", "quarantined"}
    assert set(ATTEMPT.final()) == {"succeeded", "failed", "cancelled", "lost", "superseded"}
    assert set(ACTIVE) <= set(RUN.states) & set(ATTEMPT.states)
