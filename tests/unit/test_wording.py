"""Numbers are written for people by one module (gpt2core/spec/wording.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpt2core.spec.wording import counted, enumerated, noun_for, seconds, slices
from taskloom.analysis.wording import settings, value_name

ROOT = Path(__file__).parents[2]
OURS = ("analysis", "bench", "contract", "gpt2core", "provisioner", "server", "taskloom", "worker")
BY_HAND = re.compile(r"""slice['"]?\]?\}x\{|\} ?\w+\{['"]{1,2}s?['"]|"run" if .* else "runs"|"s" \* \(""")
BY_HAND_IN_SCRIPTS = re.compile(r"=== 1 \? '(?:\w*)' : '\w*s'")


def test_a_list_has_one_and() -> None:
    assert [enumerated(items) for items in (["a"], [1, 2], iter("abc"))] == ["a", "1 and 2", "a, b and c"]


def test_a_noun_agrees_with_its_number() -> None:
    assert [counted(n, "run") for n in (0, 1, 2, 1200)] == ["0 runs", "1 run", "2 runs", "1,200 runs"]
    assert (counted(6, "process"), noun_for(1, "process")) == ("6 processes", "process")


def test_slices_are_those_of_settings_or_of_an_object() -> None:
    class Row:
        batch_slice, token_slice = 2, 16

    assert slices(Row()) == slices({"batch_slice": 2, "token_slice": 16}) == "2x16"


def test_slices_have_what_else_cuts_or_orders_tiles() -> None:
    cut = {"batch_slice": 4, "token_slice": 16}
    assert slices({**cut, "unit_slice": 64, "op_order": "diagonals"}) == "4x16, 64 units, by diagonals"
    assert slices({**cut, "variant": {"unit_slice": 1, "op_order": "layers"}}) == "4x16, 1 unit"
    assert slices({**cut, "ranks": 2, "parallel": "tensor"}) == "4x16, 2 ranks, tensor parallel"
    assert slices({**cut, "ranks": 2, "parallel": "hybrid"}) == "4x16, 2 ranks, hybrid parallel"
    assert slices({**cut, "ranks": 1, "parallel": "tensor"}) == "4x16"


def test_a_table_of_threads_is_named_as_it_is_written() -> None:
    table = {"recur*": 1, "fc[3]": 2}
    assert value_name("op_threads", table) == "op threads recur*=1,fc[3]=2"
    assert value_name("op_threads", None) == "op threads default"
    assert settings({"threads": 2, "op_threads": table}) == "op threads recur*=1,fc[3]=2, 2 threads"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (2.5, "2.5 s"), (0.0134, "13.4 ms"), (7e-6, "7 us"), (0.0, "0 us")]
)
def test_a_time_has_a_suitable_unit(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_no_other_module_writes_them_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in OURS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "wording.py" or folder != "gpt2core"
        for line in path.read_text().splitlines()
        if BY_HAND.search(line)
    ]
    assert found == []


def test_no_script_writes_plurals_by_hand() -> None:
    scripts = sorted((ROOT / "server/ui").rglob("*.js"))
    assert len(scripts) > 30
    assert [path.name for path in scripts if BY_HAND_IN_SCRIPTS.search(path.read_text())] == []
