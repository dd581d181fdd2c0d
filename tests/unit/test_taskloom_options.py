from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, CoreError, FileError
from taskloom import Client, ServerUnreachable, request_file, watch
from taskloom.cli import main
from taskloom.commands import submit
from taskloom.contract.experiments import Requirements, Stop
from taskloom.options import SIZES, question, required_labels, several_settings, single_settings, stop_rule


def test_every_setting_is_an_option_of_train_and_of_submit() -> None:
    for name in ("train", "submit"):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        found = {parameter.name for parameter in command.params if isinstance(parameter, click.Option)}
        assert {item.name for item in dataclasses.fields(TrainConfig)} <= found
        assert {*SIZES, "network", "as_json"} <= found


def test_every_command_takes_json() -> None:
    def leaves(command: click.Command) -> list[click.Command]:
        if not isinstance(command, click.Group):
            return [command]
        context = click.Context(command)
        children = [command.get_command(context, name) for name in command.list_commands(context)]
        return [leaf for child in children if child is not None for leaf in leaves(child)]

    for leaf in leaves(main):
        assert any("--json" in parameter.opts for parameter in leaf.params), leaf.name


def test_what_is_not_given_is_left_to_the_defaults() -> None:
    assert single_settings({"batch": 2, "seq": None, "model": None, "layers": None}) == {"batch": 2}


def test_sizes_replace_those_of_a_preset() -> None:
    tiny = single_settings({"model": "tiny", "context": 256})["model"]
    assert tiny == {"layers": 2, "heads": 4, "channels": 64, "vocab": 256, "context": 256}
    assert single_settings({"model": "tiny"})["model"] == "tiny"
    assert single_settings({"layers": 3})["model"]["channels"] == 768


def test_sizes_replace_those_of_another_network() -> None:
    sizes = {"embedding": 32, "hidden": 32, "layers": 2, "vocab": 100, "context": 1024, "tied": False}
    assert single_settings({"model": "lstm-tiny", "vocab": 100})["model"] == {"network": "lstm", **sizes}
    assert single_settings({"network": "lstm", "vocab": 100})["model"]["hidden"] == 650
    assert single_settings({"model": "lstm", "tied": True})["model"]["tied"] is True
    assert single_settings({"model": "lstm"})["model"] == single_settings({"network": "lstm"})["model"] == "lstm"
    assert single_settings({"network": "gpt2"})["model"] == "gpt2"
    assert single_settings({"network": "gpt2", "layers": 3})["model"] == {
        "layers": 3, "heads": 12, "channels": 768, "vocab": 50257, "context": 1024,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "field", "accepted"),
    [
        ({"model": "lstm-tiny", "heads": "2"}, "heads", "no size of lstm, but of gpt2; lstm has layers, embedding"),
        ({"network": "lstm", "channels": "64"}, "channels", "no size of lstm, but of gpt2; lstm has layers, embedding"),
        ({"hidden": "64"}, "hidden", "no size of gpt2, but of lstm, vgg, seq2seq, reader; gpt2 has layers, heads"),
        ({"model": "tiny", "tied": True}, "tied", "no size of gpt2"),
        ({"model": "tiny", "network": "lstm"}, "network", "gpt2, the network of tiny"),
        ({"model": "gpt5", "layers": "2"}, "model", "lstm-tiny"),
    ],
)
def test_sizes_and_presets_of_another_network_are_refused(given: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as raised:
        several_settings(given)
    assert raised.value.field == field
    numbers = {name: int(text) if str(text).isdecimal() else text for name, text in given.items()}
    with pytest.raises(ConfigError, match=accepted):
        single_settings(numbers)


def test_several_sizes_of_a_network_become_an_axis_of_models() -> None:
    base, axes = several_settings({"network": "lstm", "hidden": "8,16", "embedding": "8", "tied": None})
    assert not base
    assert [(model["network"], model["hidden"], model["tied"]) for model in axes["model"]] == [
        ("lstm", 8, False), ("lstm", 16, False),
    ]  # fmt: skip
    assert several_settings({"network": "lstm"}) == ({"model": "lstm"}, {})


def test_a_repeated_option_adds_values_to_its_comma_list() -> None:
    given = ["--threads", "1", "--threads", "2,4", "--layers", "1", "--layers", "2", "--cores", "0-1"]
    for name in ("submit", "experiments calibrate"):
        command: click.Command | None = main
        for part in name.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), part)
        assert command is not None
        found = command.make_context(name, list(given)).params
        assert (found["threads"], found["layers"], found["cores"], found["batch"]) == ("1,2,4", "1,2", "0-1", None)
    metg = main.get_command(click.Context(main), "metg")
    assert metg is not None
    found = metg.make_context("metg", ["--pattern", "tree", "--pattern", "fft"]).params
    assert (found["pattern"], found["scheduler"]) == ("tree,fft", "task,fork-join")


def test_one_value_goes_to_the_base_and_several_become_an_axis() -> None:
    base, axes = several_settings({"scheduler": "fork-join, task", "threads": "2", "lr": "1e-3,1e-4", "seed": None})
    assert base == {"threads": 2}
    assert axes == {"scheduler": ["fork-join", "task"], "lr": [1e-3, 1e-4]}


def test_a_list_of_cores_is_one_value() -> None:
    assert several_settings({"cores": "0,1"}) == ({"cores": "0,1"}, {})


def test_a_stopping_rule_is_written_as_pairs() -> None:
    whole = stop_rule("rel_ci=0.02, max_repetitions=30,budget_s=3600")
    assert request_file.parse({"stop": whole}).stop == Stop(rel_ci=0.02, max_repetitions=30, budget_s=3600.0)


@pytest.mark.parametrize(
    ("text", "field", "accepted"),
    [
        ("rel=0.02", "stop", "rel_ci, max_repetitions, budget_s"),
        ("rel_ci=0.1,rel_ci=0.2", "stop", "at most once"),
        ("", "stop", "rel_ci"),
        ("rel_ci", "stop.rel_ci", "a number"),
        ("rel_ci=0.1,max_repetitions=3.5", "stop.max_repetitions", "an integer"),
        ("rel_ci=2", "stop.rel_ci", "less than 1"),
        ("rel_ci=nan", "stop.rel_ci", ""),
        ("budget_s=60", "stop.rel_ci", "required"),
    ],
)
def test_a_stopping_rule_that_is_none_is_named(text: str, field: str, accepted: str) -> None:
    with pytest.raises(ConfigError) as raised:
        request_file.parse({"stop": stop_rule(text)})
    assert raised.value.field == field
    assert accepted in raised.value.accepted


def test_sizes_in_lists_multiply_with_the_models() -> None:
    _, axes = several_settings({"model": "tiny,gpt2-124m", "layers": "1,2", "context": "64"})
    assert [(m["channels"], m["layers"], m["context"]) for m in axes["model"]] == [
        (64, 1, 64), (64, 2, 64), (768, 1, 64), (768, 2, 64),
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "field"), [({"threads": "1,two"}, "threads"), ({"lr": "fast"}, "lr")])
def test_text_where_a_number_is_needed_is_named(given: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        several_settings(given)
    assert raised.value.field == field


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ConfigError, match="gpt5"):
        several_settings({"model": "gpt5", "layers": "1"})


def test_a_question_names_two_sides() -> None:
    """The verdict is about the first one."""
    asked = question("scheduler=task, threads=2 vs scheduler=fork-join,threads=2,lr=1e-4,allow_oversubscription=true")
    assert asked == {
        "a": {"scheduler": "fork-join", "threads": 2, "lr": 1e-4, "allow_oversubscription": True},
        "b": {"scheduler": "task", "threads": 2},
    }
    request = request_file.parse({"primary": asked})
    assert request.primary is not None
    assert request.primary.b == {"scheduler": "task", "threads": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("threads=2", "primary = 'threads=2' is not accepted: SETTING=VALUE,... vs"),
        ("threads=1 vs threads=2 vs threads=3", "SETTING=VALUE"),
        ("threads vs threads=2", "SETTING=VALUE"),
        ("threads=1,threads=2 vs threads=3", "SETTING=VALUE"),
        ("treads=1 vs threads=2", "primary = 'treads' is not accepted: a setting: model, batch"),
        ("threads=two vs threads=2", "primary.threads = 'two' is not accepted: an integer"),
        ("lr=low vs lr=1", "primary.lr = 'low' is not accepted: a number"),
        ("allow_oversubscription=no vs threads=1", "'no' is not accepted: true or false"),
    ],
)
def test_a_question_that_cannot_be_read_is_explained(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        question(text)
    assert message in str(raised.value)


TOML = '[base]\nthreads = 2\n[axes]\nscheduler = ["task"]\n'
YAML = "base: {threads: 2}\naxes: {scheduler: [task]}\n"
JSON = '{"base": {"threads": 2}, "axes": {"scheduler": ["task"]}}'


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.yaml", YAML), ("a.YML", YAML), ("a.json", JSON)])
def test_a_request_is_the_same_in_every_format(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    request = request_file.read(path)
    assert request.model_dump(exclude_unset=True) == {"base": {"threads": 2}, "axes": {"scheduler": ["task"]}}


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.toml", b"= 3"), ("a.yaml", b"a: [\n"), ("a.json", b"{"), ("a.json", b"\xff\xfe"), ("a.ini", b""),
     ("a.json", b"[]"), ("a.json", b"null")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileError, match=name):
        request_file.read(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="absent"):
        request_file.read(tmp_path / "absent.toml")


@pytest.mark.parametrize("text", ['{"base": {"treads": 2}}', '{"repetitions": 0}'])
def test_a_field_that_is_not_accepted_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        request_file.read(path)


def test_a_file_with_several_wrong_values_is_refused_for_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("repetitions = 0\n[base]\nbatch = 0\nlr = -1\n[axes]\nthreads = [1, 0]\ncheese = [1]\n")
    done = CliRunner().invoke(main, ["submit", str(path), "--dry-run"])
    assert done.exit_code == 2
    for each in ("repetitions = 0", "base.batch = 0", "base.lr = -1", "axes.threads.1 = 0", "axes.cheese = [1]"):
        assert f"{each} is not accepted: " in done.stderr
    done = CliRunner().invoke(main, ["submit", "--batch", "x,1,y", "--lr", "low"])
    assert all(f"= {each} is not accepted" in done.stderr for each in ("'x'", "'y'", "'low'"))
    done = CliRunner().invoke(main, ["submit", "--batch", "0", "--lr", "-1", "--threads", "1,0", "--dry-run", "--json"])
    named = json.loads(done.stderr)
    assert [each["field"] for each in (named, *named["others"])] == ["base.batch", "base.lr", "axes.threads.1"]


def test_all_wrong_settings_of_a_configuration_are_named() -> None:
    with pytest.raises(ConfigError) as raised:
        TrainConfig.from_dict({"batch": 0, "lr": -1, "model": "gpt5", "cores": "x"})
    assert {error.field for error in (raised.value, *raised.value.others)} == {"batch", "lr", "model", "cores"}
    with pytest.raises(ConfigError) as raised:
        TrainConfig(batch_slice=9, token_slice=99, scheduler="serial", threads=2)
    assert {error.field for error in (raised.value, *raised.value.others)} == {"batch_slice", "token_slice", "threads"}


@pytest.mark.parametrize("field", ["base.lr", "axes.lr.1", "zip.0.lr.0"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_not_finite_is_refused(tmp_path: Path, field: str, value: str) -> None:
    """In JSON it would be null, and the run would take the default."""
    path = tmp_path / "a.toml"
    path.write_text({"base.lr": f"[base]\nlr = {value}", "axes.lr.1": f"[axes]\nlr = [1e-3, {value}]",
                     "zip.0.lr.0": f"[[zip]]\nlr = [{value}]\nseed = [1]"}[field])  # fmt: skip
    with pytest.raises(ConfigError, match="finite number") as raised:
        request_file.read(path)
    assert str(raised.value).startswith(f"{field} = {value} is not accepted")


def test_an_option_that_is_not_finite_is_refused() -> None:
    for given in ("nan", "1e-3,inf"):
        done = CliRunner().invoke(main, ["submit", "--lr", given, "--dry-run"])
        assert (done.exit_code, "finite" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("end", "code"), [(ServerUnreachable("http://there", "gone"), 3), (KeyboardInterrupt(), 1)]
)
def test_a_wait_that_ends_early_names_the_experiment(
    monkeypatch: pytest.MonkeyPatch, end: BaseException, code: int
) -> None:
    def wait(*_: object, **__: object) -> None:
        raise end

    monkeypatch.setattr(Client, "submit", lambda *_: SimpleNamespace(id=7))
    monkeypatch.setattr(watch, "until_finished", wait)
    done = CliRunner().invoke(main, ["submit", "--model", "tiny", "--wait", "--json"])
    assert (done.exit_code, "taskloom experiments show 7" in done.stderr) == (code, True)
    assert ("no server answers at http://there" in done.stderr) == (code == 3)


def test_nodes_of_an_experiment_are_an_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also of one in a file, beside its other requirements; the option counts more."""
    asked: list[Requirements] = []
    monkeypatch.setattr(Client, "submit", lambda _, request, *__: asked.append(request.requires))
    monkeypatch.setattr(submit, "_print", lambda *_: None)
    path = tmp_path / "a.toml"
    path.write_text("[base]\nranks = 4\n[requires]\nnodes = 4\nlabels = {room = 'a'}\n")
    for given in (["--ranks", "2"], ["--ranks", "2", "--nodes", "2"], [str(path)], [str(path), "--nodes", "2"]):
        assert CliRunner().invoke(main, ["submit", *given], catch_exceptions=False).exit_code == 0
    room = {"room": "a"}
    assert [(each.nodes, each.labels) for each in asked] == [(None, {}), (2, {}), (4, room), (2, room)]
    assert CliRunner().invoke(main, ["submit", "--ranks", "2", "--nodes", "0"]).exit_code == 2


def test_labels_are_required_by_an_option_beside_those_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Requirements] = []
    monkeypatch.setattr(Client, "submit", lambda _, request, *__: asked.append(request.requires))
    monkeypatch.setattr(submit, "_print", lambda *_: None)
    path = tmp_path / "a.toml"
    path.write_text("[base]\nthreads = 1\n[requires.labels]\nroom = 'a'\ncpu = 'intel'\n")
    named = ["--require", "cpu=epyc", "--require", "rack=3"]
    for given in (["--threads", "1", *named], [str(path), *named]):
        assert CliRunner().invoke(main, ["submit", *given], catch_exceptions=False).exit_code == 0
    labels = {"cpu": "epyc", "rack": "3"}
    assert [each.labels for each in asked] == [labels, {"room": "a", **labels}]
    assert CliRunner().invoke(main, ["submit", "--threads", "1", "--require", "cpu"]).exit_code == 2


def test_errors_of_the_core_and_usage_end_with_2() -> None:
    for arguments in (["submit", "no-such.toml"], ["submit"], ["train", "--threads", "0"], ["nonsense"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2, arguments
        assert done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "--model", "nope"], "nope"),
        (["runs", "list", "--bogus"], "--bogus"),
        (["runs", "nope"], "nope"),
        (["nope"], "nope"),
        (["submit", "--follow-logs"], "--follow-logs"),
        (["keys", "create"], "--scope"),
    ],
)
def test_bad_usage_is_one_json_line_with_json(arguments: list[str], named: str) -> None:
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    event = json.loads(line)
    assert event["slug"] == "bad-usage"
    assert named in event["error"]
    plain = CliRunner().invoke(main, arguments)
    assert (plain.exit_code, plain.stderr.partition(" ")[0]) == (2, "Usage:")


def test_a_file_and_settings_together_are_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["submit", str(tmp_path / "a.toml"), "--batch-slice", "1"])
    assert done.exit_code == 2
    assert "--batch-slice" in done.stderr


def test_core_errors_have_exit_codes_that_the_command_line_knows() -> None:
    kinds = [CoreError]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        assert kind.exit_code in (1, 2)


def test_labels_that_workers_must_have() -> None:
    assert required_labels(["cpu=epyc", "zone=a=b", "cpu=epyc"]) == {"cpu": "epyc", "zone": "a=b"}
    for texts in (["cpu"], ["=epyc"], ["cpu="], ["cpu=epyc", "cpu=xeon"]):
        with pytest.raises(ConfigError) as refused:
            required_labels(texts)
        assert (refused.value.field, refused.value.value) == ("require", texts[-1])
