"""Servers that are forks of an interpreter end and report as those that were started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.processes import House


def test_a_server_is_a_fork_which_is_seen_to_end(home: House) -> None:
    server = home.server.popen
    assert isinstance(server, forks.Fork)
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(0)
    assert server.poll() is None
    server.kill()
    assert home.server.wait() == server.poll() == -9
    home.start_server()
    home.server.end()
    assert home.server.wait() == 0


def test_a_server_that_cannot_start_says_why_in_its_log(tmp_path: Path, home: House) -> None:
    refused = home.start("refused", "-P", "-m", forks.MODULE, "--port", "0", "--database-url", f"sqlite:///{tmp_path}")
    assert isinstance(refused.popen, forks.Fork)
    assert refused.wait() == 2
    assert str(tmp_path) in refused.log.read_text()


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "PYTHONPATH"])
def test_variables_that_act_at_an_interpreters_start_start_one(variable: str) -> None:
    assert forks.possible(os.environ)
    assert not forks.possible({**os.environ, variable: "/nowhere"})
