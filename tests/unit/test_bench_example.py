"""The stored report of docs/examples is rendered again by today's code."""

from __future__ import annotations

import json
from pathlib import Path

from bench import example

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
NAME = "gpt2-124m-runtimes"


def test_a_stored_report_gets_todays_sentences_and_keeps_its_data(tmp_path: Path) -> None:
    stored = json.loads((EXAMPLES / f"{NAME}.json").read_text())
    copy = tmp_path / f"{NAME}.json"
    copy.write_text(json.dumps(stored | {"answer": ["old words"], "conclusion": "old words", "card": []}))
    example.render_again(tmp_path, NAME)
    again = json.loads(copy.read_text())
    sentences = {"answer", "conclusion", "card"}
    assert {key: again[key] for key in again.keys() - sentences} == {k: stored[k] for k in stored.keys() - sentences}
    assert [rule["number"] for rule in again["card"]] == list(range(1, 12))
    assert again["answer"][0].startswith("Most runs were disturbed (47 of 60). It is undecided whether omp-for ")
    assert "0.953 [0.808, 1.053]" in again["answer"][0]
    assert "47 of 60 runs disturbed" in again["answer"][1]
    html = (tmp_path / f"{NAME}.html").read_text()
    assert "0.953 [0.808, 1.053]" in html
    assert "old words" not in html
