"""The report: its document, and the page that is rendered from it."""

import html
import math
import re

import pytest

FIGURES = [
    "Ratios: fork-join time / task time",
    "Time of a step by variant and phase",
    "Distribution of samples",
    "Speedup",
    "Speedup of forward and backward",
    "Where the threads' time went",
    "Timeline of one step",
    "Roofline of task (sync step) 1x64, 2 threads",
    "Forecast",
    "Memory by variant",
    "Growth of memory",
]


def test_the_report_is_one_document_and_one_page(api, explained):
    document = api.get("/analysis/report", experiment_id=explained)
    assert document["schema"] == "taskloom.report/1"
    assert any(point.startswith("The variant with the smallest median is task") for point in document["answer"])
    assert document["timeline"]["rows"][0]["scheduler"] == "fork-join"
    assert len(document["card"]) == 11
    card = api.get("/analysis/card", experiment_id=explained)
    assert card == {name: document[name] for name in ("card", "environment")}
    page = api.http.get(f"/reports/{explained}")
    assert page.headers["content-type"].startswith("text/html")
    assert "script" not in page.headers["content-security-policy"]
    assert [html.unescape(label) for label in re.findall(r'<svg [^>]*aria-label="([^"]*)"', page.text)] == FIGURES
    assert f"<li>{html.escape(document['answer'][0])}</li>" in page.text


def one_bit(result):
    result["losses"][-1] = math.nextafter(result["losses"][-1], 0.0)


def foreign_load(result):
    result["validity"] = {"foreign": {"cores": [0], "busy_s": 3.0, "own_s": 2.0, "foreign_s": 1.0}}


def other_processor(result):
    result["environment"]["cpu_model"] = "Other CPU"


@pytest.mark.parametrize(
    ("spoil", "sentence", "rule"),
    [(one_bit, "disagree", 9), (foreign_load, "foreign load", 7), (other_processor, "Some CPU / Other CPU", 6)],
)
def test_one_run_that_spoils_a_comparison_is_named_wherever_it_counts(api, make_result, spoil, sentence, rule):
    made = api.submit(
        base={"token_slice": 64, "batch_slice": 1}, axes={"scheduler": ["fork-join", "task"]}, repetitions=6
    )
    node, spoilt = api.worker(), None
    for _ in range(made["runs"]):
        lease = node.claim()
        result = make_result([9, 1.0, 1.0, 1.0], scheduler=lease["spec"]["scheduler"])
        if spoilt is None and lease["spec"]["scheduler"] == "task":
            spoilt = lease["run_id"]
            spoil(result)
        node.upload(lease, result)
    a, b = (f"experiment_id={made['id']},scheduler={scheduler}" for scheduler in ("fork-join", "task"))
    compared = api.get("/analysis/compare", a=a, b=b)
    assert sentence in " ".join([compared["reason"], *compared["differs"], *compared["marks"]])
    assert (compared["verdict"] == "refused") == (spoil is one_bit)
    if spoil is not one_bit:  # the ratio is shown with a reason
        assert "runs was disturbed" in compared["reason"] or "not like for like" in compared["reason"]
    table = api.get("/analysis/scaling", experiment_id=made["id"])
    assert any(sentence in warning for warning in table["warnings"])
    assert (table["brief"] != table["warnings"]) == (spoil is foreign_load)
    assert [row["agrees"] for row in table["rows"]] == [True, spoil is not one_bit]
    report = api.get("/analysis/report", experiment_id=made["id"])
    assert report["card"][rule - 1]["holds"] != "yes"
    assert f"{rule}" in report["conclusion"].rpartition("not fully kept: ")[2].partition(" (")[0].split(", ")
    if spoil is foreign_load:
        assert report["marks"][0].startswith(f"run {spoilt}: foreign load")
        left = api.get("/analysis/report", experiment_id=made["id"], disturbed="leave-out")
        assert left["left_out"] == [spoilt]


def test_the_report_of_an_unknown_experiment_is_not_found(empty_api):
    for part in ("report", "card"):
        assert empty_api.get(f"/analysis/{part}", 404, experiment_id=7)["type"] == "/problems/not-found"
    assert empty_api.http.get("/reports/7").status_code == 404
