"""The template `workload`: the requests it makes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gpt2core.spec.errors import ConfigError
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.templates import filled
from taskloom.server.errors import InvalidRequest
from taskloom.server.queue.experiments.expansion import expand
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.workers.capacity import Capacity

SMALL = {
    "template": "workload",
    "workload": {"networks": ["tiny", {"model": "lstm-tiny", "batch": 8, "seq": 16}], "threads": [1, 2]},
    "base": {"steps": 4},
}


def variants(body):
    found, _ = expand(ExperimentRequest.model_validate(body), 1000, run_memory_bytes, Capacity())
    return [variant.config for variant in found]


def settings(config):
    return (config.model.name, config.mode, config.data, config.batch, config.seq, config.scheduler, config.threads)


def test_each_network_runs_in_both_modes_and_once_more_on_real_data_and_with_larger_batches():
    found = {settings(config) for config in variants(SMALL)}
    tiny = [each for each in found if each[0] == "tiny"]
    assert {each[1:] for each in tiny} == {
        *((mode, "synthetic", 4, 64, *place) for mode in ("train", "infer")
          for place in (("fork-join", 2), ("task", 2), ("task", 1))),
        *((mode, "synthetic", 8, 64, "task", 2) for mode in ("train", "infer")),
        ("train", "stdlib", 4, 64, "task", 2),
    }  # fmt: skip
    lstm = {each[3:5] for each in found - set(tiny)}
    assert lstm == {(8, 16), (16, 16)}
    assert len(found) == 18


def test_the_default_networks_can_all_run():
    found = variants({"template": "workload", "base": {"steps": 4}})
    assert {config.model.network for config in found} == {"gpt2", "lstm", "resnet", "vgg", "seq2seq", "reader"}
    assert {config.seq for config in found if config.model.reads == "images"} == {1}


def test_a_base_holds_for_all_but_the_length_of_images():
    body = {"template": "workload", "workload": {"networks": ["tiny", "resnet"], "threads": [1], "batches": []},
            "base": {"steps": 4, "batch": 2, "seq": 32}}  # fmt: skip
    assert {(config.model.network, config.batch, config.seq) for config in variants(body)} == {
        ("gpt2", 2, 32), ("resnet", 2, 1),
    }  # fmt: skip


def test_real_images_and_no_real_tokens():
    terms = {"networks": ["tiny", "resnet"], "threads": [2], "schedulers": ["task"], "batches": [],
             "tokens": None, "images": "cifar10:c10", "modes": ["train"]}  # fmt: skip
    found = variants({"template": "workload", "workload": terms, "base": {"steps": 4, "batch": 2}})
    assert sorted((config.model.network, config.data) for config in found) == [
        ("gpt2", "synthetic"), ("resnet", "cifar10:c10"), ("resnet", "synthetic"),
    ]  # fmt: skip


def test_pairs_have_a_length_and_real_data_of_their_own():
    terms = {"networks": ["seq2seq-tiny"], "threads": [2], "schedulers": ["task"], "batches": [], "pairs": "pairs:fr"}
    found = variants({"template": "workload", "workload": terms, "base": {"steps": 4, "batch": 2, "seq": 24}})
    assert sorted((config.mode, config.data, config.seq) for config in found) == [
        ("infer", "synthetic", 24), ("train", "pairs:fr", 24), ("train", "synthetic", 24),
    ]  # fmt: skip


def test_records_have_a_length_and_real_data_of_their_own():
    terms = {"networks": ["reader-tiny"], "threads": [2], "schedulers": ["task"], "batches": [], "cloze": "cloze:fr"}
    found = variants({"template": "workload", "workload": terms, "base": {"steps": 4, "batch": 2, "seq": 24}})
    assert sorted((config.mode, config.data, config.seq) for config in found) == [
        ("infer", "synthetic", 24), ("train", "cloze:fr", 24), ("train", "synthetic", 24),
    ]  # fmt: skip


def test_settings_of_training_are_not_those_of_inference():
    terms = {"networks": [{"model": "tiny", "lr": 0.01, "grad_clip": 1.0}], "threads": [1]}
    found = variants({"template": "workload", "workload": terms, "base": {"steps": 4}})
    assert {(config.mode, config.lr, config.grad_clip) for config in found} == {
        ("train", 0.01, 1.0), ("infer", 1e-4, 0.0),
    }  # fmt: skip


def test_batches_that_several_rows_have_run_once():
    """A larger batch of one row is the batch of another one, which keeps all schedulers."""
    terms = {"networks": [{"model": "tiny", "batch": 4}, {"model": "tiny", "batch": 8}], "threads": [2],
             "batches": [2, 4], "modes": ["infer"]}  # fmt: skip
    found = variants({"template": "workload", "workload": terms, "base": {"steps": 4}})
    assert sorted((config.batch, config.scheduler) for config in found) == [
        (4, "fork-join"), (4, "task"), (8, "fork-join"), (8, "task"), (16, "task"), (32, "task"),
    ]  # fmt: skip


def test_a_filled_request_is_itself_and_given_fields_stay():
    once = filled(SMALL)
    assert filled(once) == once
    assert once["name"] == "workload of tiny, lstm-tiny"
    stored = ExperimentRequest.model_validate(SMALL).model_dump(mode="json", exclude_unset=True)
    again = ExperimentRequest.model_validate(stored).model_dump(mode="json", exclude_unset=True)
    assert again == stored
    own = {**SMALL, "name": "mine", "axes": {"scheduler": ["task"]}, "exclude": []}
    assert {config.scheduler for config in variants(own)} == {"task"}
    assert ExperimentRequest.model_validate(own).name == "mine"


@pytest.mark.parametrize(
    ("terms", "place", "message"),
    [
        ({"networks": ["nothing"]}, ("networks", 0), "model: one of"),
        ({"networks": [{"batch": 2}]}, ("networks", 0), "`model`"),
        ({"networks": [{"model": "tiny", "threads": 2}]}, ("networks", 0), "without threads"),
        ({"networks": [{"model": "tiny", "seq": 4096}]}, ("networks", 0), "seq: "),
        ({"networks": [7]}, ("networks", 0), "dictionary"),
        ({"networks": []}, ("networks",), "at least 1"),
        ({"modes": ["both"]}, ("modes", 0), "train"),
        ({"batches": [1]}, ("batches", 0), "2"),
        ({"threads": []}, ("threads",), "at least 1"),
        ({"nothing": 1}, ("nothing",), "Extra"),
    ],
)
def test_wrong_settings_of_the_template_are_refused_at_their_field(terms, place, message):
    with pytest.raises(ValidationError) as caught:
        ExperimentRequest.model_validate({"template": "workload", "workload": terms})
    (error,) = caught.value.errors()
    assert error["loc"] == ("workload", *place)
    assert message in error["msg"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"workload": {"networks": ["tiny"]}}, "/workload"),
        ({"template": "workload", "workload": {"networks": ["tiny"], "threads": [0]}}, "/axes/threads/0"),
        ({"template": "workload", "workload": {"networks": ["tiny"], "schedulers": ["none"]}}, "/axes/scheduler/0"),
        ({"template": "workload", "workload": {"networks": ["tiny"]}, "tune": {}}, "/space"),
        ({"template": "workload", "workload": {"networks": ["tiny"]}, "base": {"lr": 0.1}}, "/base/lr"),
        ({"template": "workload", "workload": {"networks": ["tiny", "tiny"]}}, "/axes"),
    ],
)
def test_the_server_refuses_what_no_run_accepts(body, pointer):
    with pytest.raises((InvalidRequest, ValidationError)) as caught:
        variants(body)
    refusal: Any = caught.value
    if isinstance(refusal, InvalidRequest):
        found = [error["pointer"] for error in refusal.fields["errors"]]
    else:
        found = ["/" + "/".join(map(str, error["loc"])) for error in refusal.errors()]
    assert pointer in found


def test_the_command_has_the_templates_fields():
    from taskloom.commands.workload import _request

    made = _request({"model": "tiny,lstm-tiny", "threads": "1,2", "mode": "train", "data": "stdlib", "steps": "4"},
                    "2,4", {"images": None, "pairs": None}, {"name": "", "repetitions": 2})  # fmt: skip
    assert made.workload is not None
    assert made.workload.model_dump(exclude_unset=True) == {
        "networks": [{"model": "tiny"}, {"model": "lstm-tiny"}], "threads": [1, 2], "modes": ["train"],
        "tokens": "stdlib", "batches": [2, 4],
    }  # fmt: skip
    assert (made.base.model_dump()["steps"], made.repetitions, made.name) == (4, 2, "workload of tiny, lstm-tiny")
    with pytest.raises(ConfigError, match=r"batch .*one value"):
        _request({"batch": "1,2"}, None, {}, {})
    with pytest.raises(ConfigError, match="whole numbers"):
        _request({}, "two", {}, {})
