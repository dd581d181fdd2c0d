"""Files that people edit: marks of editors, line ends, keys given twice, numbers, and what is no text."""

import pytest

from taskloom.contract import key_files
from taskloom.provisioner import pools
from taskloom.request_file import BadRequestFile, read

MARK = "\ufeff"
POOL = '[pools.a]\ncores = 1\nmemory = "1GiB"\nwalltime = 600\nmax_jobs = 1\n'


def request(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "name: x\nbase: {model: tiny, lr: 3e-4}\n"),
        ("a.toml", 'name = "x"\n[base]\nmodel = "tiny"\nlr = 3e-4\n'),
        ("a.json", '{"name": "x",\n"base": {"model": "tiny", "lr": 3e-4}}\n'),
    ],
)
@pytest.mark.parametrize("mark", ["", MARK])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_marks_and_line_ends_of_editors_change_nothing(tmp_path, name, text, mark, end):
    found = request(tmp_path, name, mark + text.replace("\n", end))
    assert (found.name, found.base.lr) == ("x", 3e-4)


@pytest.mark.parametrize("number", ["3e-4", "3E-4", "3.0e-4", "+3e-4", "0.0003", ".0003"])
def test_numbers_of_yaml(tmp_path, number):
    assert request(tmp_path, "a.yaml", f"base: {{lr: {number}}}\n").base.lr == 3e-4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "name: x\nname: y\n"),
        ("a.yaml", "base: {lr: 1.0, lr: 2.0}\n"),
        ("a.json", '{"base": {"lr": 1.0, "lr": 2.0}}'),
        ("a.toml", 'name = "x"\nname = "y"\n'),
    ],
)
def test_a_key_given_twice_is_refused(tmp_path, name, text):
    with pytest.raises(BadRequestFile, match=r"twice: (name|lr)|overwrite"):
        request(tmp_path, name, text)


@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
@pytest.mark.parametrize("content", [b"\xff\xfen\x00", b"n\xe4me: x", b"a: \x00", b"[" * 100_000])
def test_what_is_no_such_file_is_refused(tmp_path, suffix, content):
    with pytest.raises(BadRequestFile, match=f"a.{suffix}: not readable as {suffix}"):
        request(tmp_path, f"a.{suffix}", content)


def test_pools_with_a_mark(tmp_path):
    (tmp_path / "pools.toml").write_text(MARK + POOL, encoding="utf-8")
    assert pools.read(tmp_path / "pools.toml").pools[0].name == "a"


def test_pools_that_nest_without_end_are_refused(tmp_path):
    (tmp_path / "pools.toml").write_text("a = " + "[" * 9999)
    with pytest.raises(pools.PoolsFileRefused, match="not TOML"):
        pools.read(tmp_path / "pools.toml")


def test_a_key_with_a_mark(tmp_path):
    path = tmp_path / "key"
    path.write_text(MARK + "tlk_1_a\r\n", encoding="utf-8")
    path.chmod(0o600)
    assert key_files.read(path) == "tlk_1_a"
