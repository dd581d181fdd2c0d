"""PostgreSQL's clock jumps while two servers use it: no worker loses its lease, and no dead one keeps it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskloom import Client
from tests.support.faketime import clock_of
from tests.support.patience import until
from tests.support.postgres_server import postgres_server
from tests.support.processes import House, house, short_leases
from tests.support.runs import check_books, ended, submit, training

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("offset", ["+1h", "-2h"])]
LEASE_S = 2.0


@pytest.fixture
def clock() -> Iterator[Path]:
    """The file that says how much PostgreSQL's clock differs; its user can read it."""
    with tempfile.TemporaryDirectory(prefix="taskloom-clock-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "clock"


@pytest.fixture
def home(tmp_path: Path, clock: Path) -> Iterator[House]:
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in clock_of(clock).items():
                patch.setenv(name, value)
            postgres = stack.enter_context(postgres_server())
        settings = short_leases(LEASE_S, heartbeat_s=0.4, reap_after_s=0.0)
        yield stack.enter_context(house(tmp_path, postgres.new(), analysis_processes=0, **settings))


def test_a_worker_keeps_its_lease(home: House, client: Client, clock: Path, offset: str) -> None:
    home.start_another_server()
    worker, gate = home.start_gated("worker")
    run_id = submit(client)
    training(client, run_id)
    before = client.run(run_id).history[0].expires_at

    def moved() -> bool:
        return abs((client.run(run_id).history[0].expires_at - before).total_seconds()) > 1000

    clock.write_text(f"{offset}\n")
    until(moved, "the lease by the other clock")
    gate.touch()
    worker.event("delivered")
    assert [a.state for a in ended(client, run_id).history] == ["succeeded"]
    check_books(home, 1)


def test_a_dead_workers_run_is_taken_over(home: House, client: Client, clock: Path, offset: str) -> None:
    home.start_another_server()
    first, first_gate = home.start_gated("first")
    run_id = submit(client)
    training(client, run_id)
    first.popen.kill()
    first.wait()
    clock.write_text(f"{offset}\n")
    _, gate = home.start_gated("second")
    gate.touch()
    history = [(a.worker_id, a.state) for a in ended(client, run_id).history]
    assert history == [("first", "lost"), ("second", "succeeded")]
    first_gate.touch()  # ends the trainer of the killed worker
    check_books(home, 1)
