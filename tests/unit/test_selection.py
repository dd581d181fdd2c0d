import pytest

from gpt2core.spec.config import TrainConfig
from taskloom.server.errors import InvalidRequest
from taskloom.server.read.analysis.selection import Selection, parse

SPEC = TrainConfig(scheduler="task", threads=2, cores=(0, 1)).to_dict()


def test_run_ids():
    assert parse("12, 13,12", "a") == Selection(run_ids=(12, 13))


def test_an_experiments_runs_by_settings():
    assert parse("experiment_id=7,scheduler=task,threads=2", "a") == Selection(
        experiment_id=7, settings={"scheduler": "task", "threads": 2}
    )


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("scheduler=task", True),
        ("scheduler=serial", False),
        ("scheduler=task,threads=2,model=tiny", True),
        ("threads=1", False),
        ("warmup=null", True),
        ("allow_oversubscription=false", True),
        ("cores=0-1", True),
        ("cores=0", False),
        ("repetition=3", True),
        ("block=3", False),
    ],
)
def test_settings_choose_runs(text, takes):
    assert parse("experiment_id=7," + text, "a").takes(SPEC, repetition=3, block=2) is takes


@pytest.mark.parametrize(
    "text",
    ["", "x", "1,x", "-1", "1;2", "scheduler=task", "experiment_id=x", "experiment_id=1,cheese=2", "experiment_id=1,2",
     "experiment_id=1,threads=1,threads=2", "experiment_id=1,cores=x", "experiment_id=1,scheduler=tusk",
     "experiment_id=1,threads=true", "experiment_id=1,allow_oversubscription=0", "9" * 30, ",".join(["1"] * 1001), "²"],
)  # fmt: skip
def test_what_is_no_selection_is_refused_by_name(text):
    with pytest.raises(InvalidRequest) as caught:
        parse(text, "b")
    assert caught.value.fields["errors"][0]["field"] == "b"


@pytest.mark.parametrize("value", ["[" * 20_000, "9" * 5_000, "{", "nan-of-a-kind"])
def test_a_value_that_is_no_json_is_text(value):
    assert parse(f"experiment_id=7,data={value}", "a").settings == {"data": value}
