"""Files that people edit: marks of editors, line ends, keys given twice, numbers, and what is no text."""

import json
import time

import click
import pytest

from gpt2core.networks import shards
from gpt2core.spec.errors import BadMagic, ConfigError, FileError
from taskloom.commands import report
from taskloom.contract import key_files
from taskloom.provisioner import pools
from taskloom.provisioner.jobs import Jobs
from taskloom.request_file import BadRequestFile, read

MARK = "\ufeff"
LIMITS = "[[threshold]]\nreference = 1\nupper = 5\n"
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


@pytest.mark.parametrize("number", ["16", "0x10", "0o20", "0b10000", "1_6", "+16", "16.0", "1.6e1", "1.6E+1", "160e-1"])
def test_whole_numbers_of_yaml(tmp_path, number):
    assert request(tmp_path, "a.yaml", f"base: {{steps: {number}}}\n").base.steps == 16


@pytest.mark.parametrize("text", ["010", "007", "0_1", "1:30", "1:30.5", "0x1p-3", "1,5", "NaN", "٣"])
@pytest.mark.parametrize("field", ["steps", "lr"])
def test_what_yaml_reads_as_another_number_is_refused(tmp_path, field, text):
    with pytest.raises(ConfigError, match=rf"base\.{field} = '{text}' is not accepted"):
        request(tmp_path, "a.yaml", f"base:\n  {field}: {text}\n")


@pytest.mark.parametrize("name", ["2026-11-28", "2026-11-28 10:00:00", "1:30", "007", "1.2.3", "3e", "0x", "1-4"])
def test_a_name_that_looks_like_a_date_or_number_is_kept(tmp_path, name):
    assert request(tmp_path, "a.yaml", f"name: {name}\n").name == name


@pytest.mark.parametrize("key", ["on", "yes", "null", "1", "1.5", "2026-11-28", "Name", "~"])
def test_a_key_of_yaml_is_named_as_it_is_written(tmp_path, key):
    with pytest.raises(ConfigError, match=f"^{key} = 1 is not accepted: no such field"):
        request(tmp_path, "a.yaml", f"{key}: 1\n")


@pytest.mark.parametrize("text", [
    "Name: x", "base: {Batch: 1}", "base: {batch-slice: 1}", "base: {'batch_slice ': 1}", "repetition: 3",
    "base: {batchslice: 1}",
])  # fmt: skip
def test_a_field_written_in_another_way_is_recognised(tmp_path, text):
    with pytest.raises(ConfigError, match=r"no such field; did you mean (name|batch|batch_slice|repetitions)\?"):
        request(tmp_path, "a.yaml", text)


def test_anchors_and_merges_of_yaml(tmp_path):
    found = request(tmp_path, "a.yaml", "name: &n x\ntags: [*n]\nbase: {<<: {lr: 1.0, steps: 16}, lr: 2.0}\n")
    assert (found.tags, found.base.lr, found.base.steps) == (["x"], 2.0, 16)


def test_aliases_without_end_are_refused(tmp_path):
    with pytest.raises(BadRequestFile, match="an alias that contains itself"):
        request(tmp_path, "a.yaml", "axes: &a {threads: [*a]}\n")
    lines = [f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]" for n in range(20)]
    with pytest.raises(BadRequestFile, match="more than 100,000 values"):
        request(tmp_path, "a.yaml", "a: &a [x]\n" + "\n".join(lines))


@pytest.mark.parametrize(("name", "text"), [
    ("a.yaml", ""), ("a.yaml", "# only"), ("a.yaml", "- a"), ("a.yaml", "name=x"), ("a.json", "null"), ("a.json", "[]"),
])  # fmt: skip
def test_a_file_without_fields_is_refused(tmp_path, name, text):
    with pytest.raises(BadRequestFile, match="contains no fields of an experiment, such as name, base and axes"):
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


@pytest.mark.parametrize("text", ["{", '{"token"}', '{"a": 1}', '{"a":' * 100_000])
def test_a_key_in_json_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(FileError, match="not a file of a key: JSON without `token`"):
        key_files.read(path)


def test_thresholds_with_a_mark_and_without_end(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text(MARK + LIMITS, encoding="utf-8")
    assert len(report.read_thresholds(path, "--thresholds")) == 1
    path.write_text("a = " + "[" * 9999)
    with pytest.raises(click.BadParameter, match=r"limits\.toml: maximum recursion depth"):
        report.read_thresholds(path, "--thresholds")


@pytest.mark.parametrize("content", [b'{"a":' * 100_000, b"{", b"[]", b"{} {}", b"\xff\xfe{}", b"{'n_head': 2}"])
def test_a_checkpoint_with_a_configuration_that_is_none_is_refused(tmp_path, content):
    (tmp_path / shards.CONFIG).write_bytes(content)
    with pytest.raises(BadMagic, match=f"{shards.CONFIG}: is no JSON"):
        shards.read_config(tmp_path)


@pytest.mark.parametrize("text", [
    'base: {steps: !!int ""}', "base: {steps: !!bool x}", 'base: {lr: !!float ""}', "name: !!timestamp x",
    "axes: !!set {a, b}", 'name: !!binary "AAAA"', r'name: "\UFFFFFFFF"', "base: {lr: 1.0, steps: [}", "name: a\n---\n",
])  # fmt: skip
def test_tags_and_escapes_that_no_value_has_are_refused_in_one_line(tmp_path, text):
    with pytest.raises(BadRequestFile, match=r"a\.yaml: not readable as yaml") as raised:
        request(tmp_path, "a.yaml", text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["a.yaml", "a.toml", "a.json"])
def test_a_file_in_another_encoding_says_which_one_is_read(tmp_path, name):
    with pytest.raises(BadRequestFile, match="save it as UTF-8"):
        request(tmp_path, name, 'name = "x"'.encode("utf-16"))
    (tmp_path / "pools.toml").write_bytes(POOL.encode("utf-16"))
    with pytest.raises(pools.PoolsFileRefused, match="save it as UTF-8"):
        pools.read(tmp_path / "pools.toml")


@pytest.mark.parametrize("text", [
    '"base": {"lr": 1%s}', '"axes": {"lr": [0.1, 1%s]}, "x": 1', '"base": {"stop_at": {"loss": 1%s}}',
    '"base": {"steps": 1%s}',
])  # fmt: skip
def test_numbers_beyond_every_float_are_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"(lr|loss|stop_at|steps)"):
        request(tmp_path, "a.json", "{" + text % (400 * "0") + "}")


@pytest.mark.parametrize("value", ["inf", "nan", "2026-11-29", "10:00:00", "0x" + 5000 * "F", "'" + 5000 * "x" + "'"])
def test_a_refused_value_of_toml_is_named_in_short_also_as_json(tmp_path, value):
    with pytest.raises(ConfigError, match=r"base\.steps") as raised:
        request(tmp_path, "a.toml", f"base.steps = {value}\n")
    assert len(str(raised.value)) < 1000
    json.dumps(raised.value.fields(), allow_nan=False)


@pytest.mark.parametrize(("old", "new", "named"), [
    ('"1GiB"', "inf", "memory"), ('"1GiB"', f'"{400 * "9"}GiB"', "memory"), ("600", "inf", "walltime"),
    ("600", "1" + 5000 * "0", "pools.toml"), ("600", "0x" + 5000 * "F", "walltime"),
    ("cores = 1", "cores = true", "cores"),
    ("max_jobs = 1", 'max_jobs = 1\npartition = "a\\u0000"', "partition"),
    ("max_jobs = 1", 'max_jobs = 1\nsbatch_options = ["a\\u0000"]', "sbatch_options"),
    ("max_jobs = 1", 'max_jobs = 1\nprelude = "a\\u0000"', "prelude"),
    ("max_jobs = 1", 'max_jobs = 1\nlabels = {"a=b" = "c"}', "labels"),
    ("[pools", 'log_folder = "a\\u0000"\n[pools', "log_folder"),
    ("[pools", 'token_file = "a\\u0000"\n[pools', "token_file"),
])  # fmt: skip
def test_a_value_of_a_pool_that_nothing_can_use_is_named(tmp_path, old, new, named):
    (tmp_path / "pools.toml").write_text(POOL.replace(old, new))
    with pytest.raises(pools.PoolsFileRefused, match=named) as raised:
        pools.read(tmp_path / "pools.toml")
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("text", [
    "tlk_1_a\ntlk_1_b\n", "# mine\ntlk_1_a\n", "tlk\u200b_1_a", MARK + MARK + "tlk_1_a", '{"token": "tlk\u200b"}',
    '{"token": "tlk_1_a", "token": "tlk_1_b"}',
])  # fmt: skip
def test_a_file_that_holds_more_than_a_key_is_named(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(FileError, match=f"{path}: not a file of a key"):
        key_files.read(path)


def test_a_key_in_a_variable_may_end_with_a_line_end():
    assert key_files.token({"TASKLOOM_TOKEN": "tlk_1_a\r\n"}) == "tlk_1_a"


@pytest.mark.parametrize("reference", ["inf", "1" + 400 * "0", "nan"])
def test_a_threshold_beyond_every_number_is_refused(tmp_path, reference):
    path = tmp_path / "limits.toml"
    path.write_text(LIMITS.replace("= 1\n", f"= {reference}\n"))
    with pytest.raises(click.BadParameter, match=r"limits\.toml: threshold 1: reference"):
        report.read_thresholds(path, "--thresholds")


@pytest.mark.parametrize(
    "content", ["", '{"name": "a"}', "null", "[1]", '[{"name": 1}]', '[{"name": "a", "pool": "b", "new": 1}]']
)  # fmt: skip
def test_a_state_of_a_provisioner_that_is_none_is_named(tmp_path, content):
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(FileError, match=r"state\.json: not the state of a provisioner"):
        Jobs("a", tmp_path / "state.json")


def test_a_file_of_nothing_but_wrong_fields_is_refused_soon(tmp_path):
    wrong = json.dumps({f"field {number}": 1 for number in range(60_000)})
    began_s = time.process_time()
    with pytest.raises(ConfigError, match="field 0 = 1 is not accepted: no such field"):
        request(tmp_path, "a.json", wrong)
    assert time.process_time() - began_s < 20
