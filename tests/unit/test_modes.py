"""Settings of mode infer: what it refuses, its phases, its series."""

import pytest

from gpt2core.spec import schedulers
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.modes import UNREAD
from gpt2core.spec.phases import PHASES
from gpt2core.spec.series import without_new
from taskloom.contract.series import SeriesRun
from taskloom.contract.variants import VariantRow


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("lr", 0.1, "updates no weight"),
        ("optimizer", "sgd", "updates no weight"),
        ("save", "x.bin", "updates no weight"),
        ("lr_schedule", "cosine", "updates no weight"),
        ("grad_accum", 2, "computes no gradient"),
        ("grad_clip", 1.0, "computes no gradient"),
        ("fusion", "all", "updates no weight"),
    ],
)
def test_inference_refuses_what_it_does_not_read(setting, value, why):
    with pytest.raises(ConfigError, match=why) as refused:
        TrainConfig(mode="infer", **{setting: value})
    assert refused.value.field == setting


@pytest.mark.parametrize(("setting", "value"), [("logits", "last"), ("score", True)])
def test_training_refuses_settings_of_inference(setting, value):
    with pytest.raises(ConfigError, match="mode train computes the loss from all logits"):
        TrainConfig(**{setting: value})
    assert TrainConfig(mode="infer", **{setting: value}).to_dict()[setting] == value


def test_phases_follow_from_the_mode():
    assert TrainConfig().phases == ("data", "forward", "loss", "backward", "update")
    assert TrainConfig(mode="infer").phases == ("data", "forward")
    assert TrainConfig(mode="infer", score=True).phases == ("data", "forward", "loss")
    assert TrainConfig(mode="infer").fused == "rows"


@pytest.mark.parametrize(
    "settings", [{"sync": "phase"}, {"sync": "step"}, {"grad_clip": 1.0}, {"mode": "infer"}], ids=str
)
def test_every_scheduler_runs_the_same_tasks_by_default(settings):
    """Or their comparison would be one of programs."""
    assert len({TrainConfig(scheduler=name, **settings).fused for name in schedulers.KNOWN}) == 1


def test_earlier_workers_and_series_do_not_see_the_new_settings():
    new = {"mode", "logits", "score"}
    assert not new & without_new(TrainConfig().to_dict()).keys()
    assert without_new(TrainConfig(mode="infer").to_dict())["mode"] == "infer"
    assert all(name in TrainConfig().to_dict() for mode in UNREAD.values() for name in mode)


@pytest.mark.parametrize("row", [SeriesRun, VariantRow])
def test_rows_of_the_api_have_the_times_of_every_phase(row):
    """A row drops values that it does not declare."""
    assert {f"{phase}_s" for phase in PHASES} <= row.model_fields.keys()
