"""Options of `taskloom tune`, and the request that they make."""

import pytest
from click.testing import CliRunner

from gpt2core.spec.errors import ConfigError
from taskloom.commands import tune
from taskloom.options import space_values
from tests.support.present import present


def test_values_of_a_space_have_the_types_of_their_settings():
    assert space_values(["threads=1,2", "scheduler=task, fork-join", "op_threads=default,qkv=2", "fusion=default"]) == {
        "threads": [1, 2], "scheduler": ["task", "fork-join"], "op_threads": [None, "qkv=2"], "fusion": [None],
    }  # fmt: skip
    tables = [None, "qkv=2,fc*=1", "recur[3]=1"]
    assert space_values(["op_threads=default; qkv=2,fc*=1;recur[3]=1"]) == {"op_threads": tables}
    assert space_values(["op_threads=qkv=2,fc=1;"]) == {"op_threads": ["qkv=2,fc=1"]}


@pytest.mark.parametrize(
    ("texts", "field"),
    [(["threads"], "space"), (["threads=;"], "space"),
     (["threads="], "space"), (["threads=1", "threads=2"], "space"), (["none=1"], "space"),
     (["threads=two"], "threads")],
)  # fmt: skip
def test_other_texts_are_refused(texts, field):
    with pytest.raises(ConfigError) as error:
        space_values(texts)
    assert error.value.field == field


def request(**given):
    terms = given.pop("terms", {})
    return tune._request(None, given, ("sync=step,none",), "n", terms).model_dump(mode="json", exclude_unset=True)


def test_several_values_are_the_space_and_one_is_the_base():
    assert request(model="tiny", threads="1,2", scheduler="task", terms={"runs": 5, "seed": 3}) == {
        "name": "n",
        "base": {"model": "tiny", "scheduler": "task"},
        "space": {"threads": [1, 2], "sync": ["step", "none"]},
        "tune": {"runs": 5, "seed": 3},
    }


def test_a_file_and_options_for_its_terms(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("base: {model: tiny}\nspace: {threads: [1, 2]}\ntune: {runs: 9, fresh: 3}\n")
    found = tune._request(file, {"model": None}, (), "", {"runs": 5})
    terms = present(found.tune)
    assert (terms.runs, terms.fresh, terms.confirm) == (5, 3, 8)


@pytest.mark.parametrize("arguments", [["--export", "a.yaml", "--threads", "1,2"], ["--threads", "1"], []])
def test_what_makes_no_tuning_is_a_usage_error(arguments):
    done = CliRunner().invoke(tune.tune, arguments)
    assert done.exit_code == 2
    assert "Error:" in done.output
