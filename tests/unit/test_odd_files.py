"""What may be where a file that people edit is expected: pipes, devices, folders, loops, and text that takes hours."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from gpt2core.spec.errors import ConfigError, FileError
from taskloom.commands.report import read_thresholds
from taskloom.contract import edited, key_files
from taskloom.provisioner import pools
from taskloom.provisioner.jobs import Jobs
from taskloom.request_file import read
from taskloom.server.access.keys import command as keys

REFUSED = (FileError, pools.PoolsFileRefused, click.BadParameter)
READERS: dict[str, Callable[[Path], object]] = {
    "a.yaml": read, "a.toml": read, "a.json": read, "pools.toml": pools.read, "key": key_files.read,
    "limits.toml": lambda path: read_thresholds(path, "--thresholds"), "state.json": lambda path: Jobs("a", path),
}  # fmt: skip
ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo, "a folder": Path.mkdir, "a loop": lambda path: path.symlink_to(path),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK),
}  # fmt: skip
ABSENT = {("state.json", "a loop")}  # a link that leads nowhere is no state yet


@pytest.mark.parametrize(("name", "kind"), sorted({(name, kind) for name in READERS for kind in ODD} - ABSENT))
def test_what_is_no_file_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr(edited, "WRITER_S", 0.1)
    path = tmp_path / name
    ODD[kind](path)
    with pytest.raises((*REFUSED, ConfigError, OSError)) as raised:
        READERS[name](path)
    assert str(path) in f"{raised.value} {getattr(raised.value, 'filename', '')}"


def test_a_process_substitution_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pools.toml"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("w") as file:
            file.write("a = 1\n")
            file.flush()
            time.sleep(0.2)
            file.write("b = 2\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert edited.parse_toml(edited.read_text(pipe)) == {"a": 1, "b": 2}
    writer.join()


@pytest.mark.parametrize("key", [
    ".".join(20_000 * "a"), ' . "x y".\'z\' . '.join(2_000 * "a"), "[" + ".".join(20_000 * "a") + "]\nx",
    "x = {" + ".".join(20_000 * "a") + " = 1}\ny",
])  # fmt: skip
def test_a_key_of_thousands_of_parts_is_refused_soon(key: str) -> None:
    began_s = time.process_time()
    with pytest.raises(ValueError, match="a key of more than 64 parts"):
        edited.parse_toml(f"b = 1\n{key} = 1\n")
    assert time.process_time() - began_s < 5


def test_text_with_many_dots_is_no_key() -> None:
    texts = ["ab cd. " * 1000, "..." * 1000, ", ".join(1000 * ["1.5"]), "127.0.0.1 " * 1000, "-" * 1_000_000]
    began_s = time.process_time()
    for text in texts:
        assert edited.parse_toml(f'{".".join(60 * "k")} = "{text}"')
        assert edited.parse_toml(f"# {text}\na = 1")
    assert time.process_time() - began_s < 5


def test_keys_are_not_made_in_a_database_that_nobody_could_open(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        with pytest.raises(ConfigError, match="umask = '0277' is not accepted"):
            keys.main(["--database-url", f"sqlite:///{tmp_path}/a.db", "list"])
    finally:
        os.umask(before)
    assert not (tmp_path / "a.db").exists()
