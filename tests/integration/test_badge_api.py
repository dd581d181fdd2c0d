"""The badge of the newest verdict: its words, its colour, and the experiments that its filters select."""

from __future__ import annotations

from functools import partial
from typing import Any
from xml.etree import ElementTree

import pytest

from taskloom.analysis.report.badge import badge, message
from taskloom.analysis.report.tokens import COLOURS
from tests.support.caller import Caller
from tests.support.patience import until

SPEC = {"model": "tiny", "batch_slice": 1, "token_slice": 64, "steps": 3, "warmup": 1}


def shown(api, **params):
    answer = api.http.get("/api/v1/badges/verdict.svg", params=params)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    image = ElementTree.fromstring(answer.text)
    return image.attrib["aria-label"], [part.attrib["fill"] for part in image.iter("{http://www.w3.org/2000/svg}rect")]


def run_all(node, make_result, times):
    for turn in range(2 * 6):
        lease = node.claim()
        step_s = times[lease["spec"]["scheduler"]] * (1 + 0.001 * (turn % 3))
        node.upload(lease, make_result([9, step_s, step_s], scheduler=lease["spec"]["scheduler"]))


def verdict_of(api: Caller, experiment_id: int) -> Any:
    return api.get(f"/experiments/{experiment_id}")["verdict"]


def test_a_badge_is_the_verdict_of_the_newest_experiment_that_is_selected(start_server, make_result):
    api = start_server(keep_verdicts=True)
    assert shown(api)[0] == "taskloom: no verdict"
    node = api.worker()
    for branch, task_s in (("main", 0.5), ("other", 1.5)):
        made = api.submit(
            name=branch, branch=branch, base=SPEC, axes={"scheduler": ["fork-join", "task"]}, repetitions=6
        )
        run_all(node, make_result, {"fork-join": 1.0, "task": task_s})
        found = until(partial(verdict_of, api, made["id"]), "the verdict")
        expected = f"taskloom: {found['verdict']} {found['ratio']:.3f}"
        assert shown(api)[0] == expected
    faster, fills = shown(api, filter="branch = main", text="<tasks>")
    words, _, ratio = faster.rpartition(" ")
    assert (words, float(ratio), fills[1]) == ("<tasks>: faster", pytest.approx(2, rel=0.01), COLOURS["good"][0])
    words, _, ratio = shown(api, name="other")[0].rpartition(" ")
    assert (words, float(ratio)) == ("taskloom: slower", pytest.approx(1 / 1.5, rel=0.01))
    assert shown(api, name="nothing", text="a\x01\uffffb")[0] == "a\ufffd\ufffdb: no verdict"
    api.submit(name="main", branch="main", base=SPEC)  # has not ended
    assert shown(api, name="main")[0] == faster.replace("<tasks>", "taskloom")
    assert api.http.get("/api/v1/badges/verdict.svg", params={"filter": "brnch = main"}).status_code == 422


@pytest.mark.parametrize(
    ("verdict", "ratio", "said"),
    [("faster", 1.25, "faster 1.250"), ("undecided", 1.25, "undecided"), ("refused", None, "refused")],
)
def test_only_a_decided_ratio_is_in_the_message(verdict, ratio, said):
    assert message(verdict, ratio) == said


def test_texts_stay_within_their_parts():
    image = ElementTree.fromstring(badge("a" * 30, "undecided", "undecided"))
    parts = list(image.iter())
    boxes = [part for part in parts if part.tag.endswith("rect")]
    texts = [part for part in parts if part.tag.endswith("text")]
    for box, text in zip(boxes, texts, strict=True):
        left, width = float(box.attrib.get("x", 0)), float(box.attrib["width"])
        begin, length = float(text.attrib["x"]), float(text.attrib["textLength"])
        assert left < begin < begin + length < left + width
