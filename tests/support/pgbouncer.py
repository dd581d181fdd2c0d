"""A PgBouncer between a test and its database."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.support.patience import until

PROGRAM = shutil.which("pgbouncer", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))
CONNECTIONS = {"transaction": 3, "session": 90, "statement": 3}


@contextlib.contextmanager
def pooled(database_url: str, mode: str) -> Iterator[str]:
    """The URL of the database through a PgBouncer with few connections in this mode. Skips the test without one."""
    if PROGRAM is None:
        pytest.skip("PgBouncer is not installed")
    url = make_url(database_url)
    host = str(url.query["host"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not below pytest's folder: PgBouncer runs as another user if we are root.
    with tempfile.TemporaryDirectory(prefix="taskloom-pgbouncer-") as folder:
        Path(folder).chmod(0o755)
        settings = Path(folder, "pgbouncer.ini")
        settings.write_text(
            f"[databases]\n{url.database} = host={host} user={url.username}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {mode}\ndefault_pool_size = {CONNECTIONS[mode]}\n"
        )
        user = ["--user", Path(host).owner()] if os.getuid() == 0 else []
        with subprocess.Popen([PROGRAM, "--quiet", *user, settings], stderr=subprocess.PIPE) as pooler:
            through = f"postgresql://{url.username}@127.0.0.1:{port}/{url.database}"
            try:
                until(lambda: _answers(through), "PgBouncer's answer", 20)
                yield through
            finally:
                pooler.terminate()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
