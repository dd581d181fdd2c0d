"""Settings of a run that generates: what follows from the prompt, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from pydantic import ValidationError

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, UnreadableFile
from gpt2core.spec.generation import parse_prompt, rates, read_bytes
from gpt2core.spec.series import without_new
from taskloom.contract.runs import RunSpec
from taskloom.options import prompt_of


def config(**settings: object) -> TrainConfig:
    return TrainConfig.from_dict({"mode": "infer", "generate": 5, "prompt": [1, 2, 3], **settings})


@pytest.mark.parametrize("model", ["tiny", "lstm-tiny"])
def test_batch_length_and_steps_follow_from_the_prompt(model):
    run = config(model=model)
    assert (run.batch, run.seq, run.steps, run.warmup_steps, run.tokens_per_step) == (1, 1, 4, 2, 1)
    assert config(model=model, batch=1, seq=1, steps=4, warmup=0) == dataclasses.replace(run, warmup=0)
    again = TrainConfig.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again == run
    assert (run.prompt, run.to_dict()["prompt"]) == ((1, 2, 3), [1, 2, 3])
    assert (config(prompt="9", generate=1).steps, config(prompt="9", generate=1).warmup_steps) == (1, 0)
    assert config(prompt="1, 2\n3").prompt == run.prompt


@pytest.mark.parametrize(
    ("settings", "field", "value", "accepted"),
    [
        ({"generate": -1}, "generate", -1, "an integer from 0 to 1048576"),
        ({"generate": 1.5}, "generate", 1.5, "an integer from 0 to 1048576"),
        ({"generate": True}, "generate", True, "an integer from 0 to 1048576"),
        ({"prompt": None}, "prompt", None, "token ids such as 15496,995 with generate"),
        ({"prompt": []}, "prompt", [], "1 to 65536 token ids of 0 or more, such as 15496,995"),
        ({"prompt": ""}, "prompt", [], "1 to 65536 token ids of 0 or more, such as 15496,995"),
        ({"prompt": "1,hello"}, "prompt", "hello", "1 to 65536 token ids of 0 or more, such as 15496,995"),
        ({"prompt": [1, -2]}, "prompt", -2, "1 to 65536 token ids of 0 or more, such as 15496,995"),
        ({"prompt": [1, 2.0]}, "prompt", 2.0, "1 to 65536 token ids of 0 or more, such as 15496,995"),
        ({"prompt": {"a": 1}}, "prompt", {"a": 1}, "1 to 65536 token ids of 0 or more, such as 15496,995"),
        ({"prompt": [1, 256]}, "prompt", 256, "token ids from 0 to 255, the model's vocabulary"),
        ({"prompt": [1] * 128}, "prompt", "128 tokens", "at most 127 tokens: the model's context is 128"),
        ({"generate": 126}, "generate", 126, "1 to 125: the model's context is 128, and the prompt has 3 tokens"),
        ({"temperature": -1.0}, "temperature", -1.0, "a number of 0 or more and below 1000000"),
        ({"batch": 4}, "batch", 4, "1 with generate"),
        ({"seq": 64}, "seq", 64, "1 with generate"),
        ({"steps": 12}, "steps", 12, "4 with generate (5)"),
        ({"logits": "last"}, "logits", "last", "the default 'all', since a step that generates has one position"),
        ({"score": True}, "score", True, "the default False, since a generated token has no successor"),
        ({"data": "synthetic"}, "data", "synthetic", "the default 'stdlib', since generation reads the prompt"),
        ({"distribution": "uniform"}, "distribution", "uniform", "since generation reads the prompt"),
        ({"model": "lstm-tiny", "carry_state": True}, "carry_state", True, "carries the state from token to token"),
        ({"mode": "train"}, "generate", 5, "the default 0, since mode train generates nothing"),
        ({"model": "resnet"}, "generate", 5, "the default 0, since network resnet does not read it"),
        ({"generate": 0}, "prompt", [1, 2, 3], "the default None without generate"),
        ({"generate": 0, "prompt": None, "temperature": 0.5}, "temperature", 0.5, "the default 0.0 without generate"),
    ],
)  # fmt: skip
def test_what_does_not_fit_generation_is_refused(settings, field, value, accepted):
    with pytest.raises(ConfigError) as refused:
        config(**settings)
    assert (refused.value.field, refused.value.value) == (field, value)
    assert accepted in refused.value.accepted


def test_the_longest_generation_fills_the_context():
    assert config(generate=125).steps == 124
    assert config(prompt=[1] * 127, generate=1).steps == 1


def test_a_request_takes_a_prompt_as_text_and_as_a_list():
    for prompt in ("15496,995", [15496, 995]):
        assert RunSpec.model_validate({"prompt": prompt}).model_dump()["prompt"] == [15496, 995]
    with pytest.raises(ValidationError, match="prompt = 'x' is not accepted: 1 to 65536 token ids"):
        RunSpec.model_validate({"prompt": "x"})


def test_earlier_workers_and_series_do_not_see_settings_of_generation():
    new = {"generate", "prompt", "temperature"}
    assert not new & without_new(TrainConfig(mode="infer").to_dict()).keys()
    assert {"generate", "prompt"} <= without_new(config().to_dict()).keys()


def test_a_prompt_comes_from_a_file(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("15496\n995, 7\n")
    assert parse_prompt(prompt_of(path, {})["prompt"]) == (15496, 995, 7)
    assert prompt_of(None, {"prompt": "1"}) == {}
    with pytest.raises(ConfigError, match="either --prompt or --prompt-file"):
        prompt_of(path, {"prompt": "1"})
    with pytest.raises(UnreadableFile, match="No such file"):
        prompt_of(tmp_path / "none", {})
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableFile, match="not text"):
        prompt_of(path, {})
    path.write_text("1," * (1 << 20))
    with pytest.raises(UnreadableFile, match="more than 524288 bytes"):
        prompt_of(path, {})


def test_the_rate_of_the_weights_stands_beside_the_triad_of_as_many_threads():
    peaks = {"peaks": {"threads": {"1": {"triad_gb_per_s": 12.5}, "2": {"triad_gb_per_s": None}}}}
    run = config()
    rate = 8 * run.model.read_weights() / 1e9
    assert rates(run, peaks, 0.5) == {
        "weights_gb_per_s": rate, "triad_gb_per_s": 12.5, "triad_share": rate / 12.5, "triad_missing": None,
    }  # fmt: skip
    half = dataclasses.replace(run, precision="bf16")
    assert rates(half, peaks, 0.5)["weights_gb_per_s"] == 2 * read_bytes(half) / 1e9


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (None, "the bandwidth of the node is not measured; taskloom doctor --peaks measures it"),
        ({"threads": {"2": {"triad_gb_per_s": None}}}, "the bandwidth of the node is not measured; taskloom doctor "
                                                       "--peaks measures it"),
        ({"threads": {"1": {"triad_gb_per_s": 9.0}, "2": None}}, "the bandwidth of the node is measured with 1 thread, "
                                                                 "not with 2"),
        ({"threads": {str(n): {"triad_gb_per_s": 9.0} for n in (8, 16, 1)}}, "the bandwidth of the node is measured "
                                                                            "with 1, 8 and 16 threads, not with 2"),
    ],
)  # fmt: skip
def test_an_unknown_bandwidth_has_no_share_but_a_reason(measured, reason):
    found = rates(dataclasses.replace(config(), threads=2), {"peaks": measured}, 0.5)
    assert (found["triad_gb_per_s"], found["triad_share"], found["triad_missing"]) == (None, None, reason)
