"""Files of keys: who can read them, and what they may contain."""

import json
import os
import stat

import pytest

from gpt2core.spec.errors import ConfigError, FileError
from taskloom import Client
from taskloom.contract import key_files
from taskloom.provisioner.pools import PoolsFileRefused, read
from taskloom.worker.settings import parse

KEY = "tlk_1_secret"


@pytest.fixture
def file(tmp_path):
    with key_files.new(tmp_path / "a.key") as file:
        file.write(KEY + "\n")
    return tmp_path / "a.key"


@pytest.mark.parametrize("mask", [0, 0o277, 0o777])
def test_a_new_file_is_its_owners_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        with key_files.new(tmp_path / "a.key"):
            assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_file_is_never_overwritten_and_none_is_left_by_a_failure(file, tmp_path):
    with pytest.raises(FileError, match="never overwritten"), key_files.new(file):
        raise AssertionError
    assert key_files.read(file) == KEY
    with pytest.raises(RuntimeError), key_files.new(tmp_path / "b.key"):
        raise RuntimeError("the server refused")
    assert not (tmp_path / "b.key").exists()
    with pytest.raises(FileError, match="No such file"), key_files.new(tmp_path / "missing/c.key"):
        raise AssertionError


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused_by_everyone_who_reads_it(file, tmp_path, monkeypatch, mode):
    assert parse([], {"TASKLOOM_TOKEN_FILE": str(file)}).token == KEY
    pool = '[pools.a]\ncores = 1\nmemory = "1GiB"\nwalltime = 600\nmax_jobs = 1\n'
    (tmp_path / "pools.toml").write_text(f'token_file = "{file}"\n{pool}')
    monkeypatch.delenv("TASKLOOM_TOKEN", raising=False)
    assert read(tmp_path / "pools.toml").token() == KEY
    file.chmod(mode)
    message = f"other users can read this key .mode {mode:04o}.: chmod 600 {file}"
    with pytest.raises(FileError, match=message):
        parse([], {"TASKLOOM_TOKEN_FILE": str(file)})
    with pytest.raises(PoolsFileRefused, match=message):
        read(tmp_path / "pools.toml").token()
    monkeypatch.setenv("TASKLOOM_TOKEN_FILE", str(file))
    with pytest.raises(FileError, match=message):
        Client("http://127.0.0.1:9")
    monkeypatch.setenv("TASKLOOM_TOKEN", KEY)
    Client("http://127.0.0.1:9").close()  # its value takes precedence


def test_the_json_of_a_new_key_is_a_file_of_a_key(file):
    file.write_text(json.dumps({"id": 1, "token": KEY}))
    assert key_files.read(file) == KEY


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b'{"id": 1}', b'{"token": 7}'])
def test_what_holds_no_key_is_refused(file, content):
    file.write_bytes(content)
    with pytest.raises(FileError, match="not a file of a key"):
        key_files.read(file)


@pytest.mark.parametrize(
    "content", ["TASKLOOM_TOKEN={}", "export TASKLOOM_TOKEN={}", '"{}"', "'{}'", "{},", "Bearer {}"]
)
def test_a_line_of_another_file_is_not_taken_as_a_key(file, content):
    file.write_text(content.format(KEY))
    with pytest.raises(FileError, match="not a file of a key: it must hold") as raised:
        parse([], {"TASKLOOM_TOKEN_FILE": str(file)})
    assert KEY not in str(raised.value)
    with pytest.raises(ConfigError, match="not accepted: a key alone, without a name, quotes or spaces"):
        parse([], {"TASKLOOM_TOKEN": content.format(KEY)})
