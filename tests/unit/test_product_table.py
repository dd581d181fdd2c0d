"""The table of products has those that are worth timing, names the library of each, and is one per node."""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import measuring, table
from gpt2core.gemm.libraries import Library
from gpt2core.gemm.measuring import Choice
from gpt2core.gemm.multiply import product_of_floats, time_product
from gpt2core.gemm.table import Products
from gpt2core.node import pages
from gpt2core.spec.errors import MachineError
from gpt2core.step.ops import Product
from taskloom import diagnosis
from tests.support.patience import DEADLINE_S
from tests.support.processors import WITH_MKL

WIDE, TALL = Product(0, 1, 32, 3200, 64), Product(1, 0, 768, 96, 128)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    return tmp_path


def two() -> list[Library]:
    return [gemm.blas("mkl"), gemm.blas("openblas")]


def load(name: str, wanted: list[Product], tell: Callable[[dict[str, Any]], None]) -> Products:
    return table.choose(gemm.load(name), wanted, tell)


def silent(_: dict[str, Any]) -> None:
    pass


def test_a_library_by_name_computes_all_at_once():
    found = load("openblas", [WIDE], silent)
    assert (found.name, found.version) == ("openblas", gemm.blas("openblas").version)
    assert found.operand(WIDE) == (product_of_floats.address, gemm.blas("openblas").address, 0, 0)


def test_small_products_are_not_worth_a_choice(cache):
    assert table.LEAST_FLOP > 2 * 8 * 8 * 8
    found = load("auto", [Product(0, 1, 8, 8, 8)], silent)
    assert found.name == "own"
    assert not list(cache.iterdir())


def test_what_was_measured_is_kept_and_completed():
    events: list[dict[str, Any]] = []
    first = load("auto", [WIDE], events.append)
    again = load("auto", [WIDE, TALL], events.append)
    assert [event["product"] for event in events] == [str(WIDE), str(TALL)]
    assert first.version == again.version  # the table's id is part of it
    assert again.choices[WIDE] == first.choices[WIDE]
    assert set(again.choices) == {WIDE, TALL}
    assert load("auto", [WIDE, TALL], events.append).choices == again.choices
    assert len(events) == 2


def test_a_product_with_a_packed_operand_is_measured_as_such():
    packed = Product(0, 1, 4, 2048, 512, packed=1)
    assert str(packed) == "4x2048x512 nt packed"
    found = load("auto", [packed, dataclasses.replace(packed, packed=0)], silent)
    assert set(found.choices) == {packed, dataclasses.replace(packed, packed=0)}
    assert load("auto", [packed], silent).choices == found.choices  # as the file has them


@WITH_MKL
def test_products_with_a_packed_operand_are_measured_one_after_another(monkeypatch):
    """A recurrence reads its weights at each time. The first products, which bring them into a cache, decide nothing.
    """
    called: list[str] = []

    def elapsed(name: str) -> int:
        called.append(name)
        in_a_row = len(list(itertools.takewhile(lambda other: other == name, reversed(called))))
        return {"own": 9 if in_a_row < 3 else 4, "mkl": 5}[name]

    monkeypatch.setattr(measuring, "time_packed", lambda *_: elapsed("own"))
    monkeypatch.setattr(measuring, "time_product", lambda *_: elapsed("mkl"))
    packed = Product(0, 1, 4, 512, 512, packed=1)
    assert measuring.measure(packed, [gemm.blas("mkl"), gemm.ours()]) == Choice("own")


@WITH_MKL
@pytest.mark.parametrize(("later", "chosen"), [(4, "own"), (9, "mkl")])
def test_what_only_the_first_rounds_say_is_not_kept(monkeypatch, later: int, chosen: str):
    """Something disturbs the first library's few turns of a large product."""
    measured = {"own": 0, "mkl": 0}

    def elapsed(name: str, early: int, later: int) -> int:
        measured[name] += 1
        return early if measured[name] <= measuring.FEW_ROUNDS else later

    monkeypatch.setattr(measuring, "time_packed", lambda *_: elapsed("own", 9, later))
    monkeypatch.setattr(measuring, "time_product", lambda *_: elapsed("mkl", 5, 5))
    large = Product(0, 1, 512, 512, 512, packed=1)
    monkeypatch.setattr(measuring, "ROUNDS_FLOP", 1)
    monkeypatch.setattr(measuring, "IN_A_ROW", 1)
    assert measuring.measure(large, [gemm.ours(), gemm.blas("mkl")]) == Choice(chosen)


def test_the_load_beside_which_a_choice_was_made_is_kept_and_shown(cache):
    assert diagnosis.products().found.startswith("none measured yet")
    load("auto", [WIDE], silent)
    (path,) = cache.glob("products-*.json")
    kept = json.loads(path.read_text())
    assert kept["choices"][0]["busy_cores"] >= 0.0
    kept["choices"][0]["busy_cores"] = 0.0
    path.write_text(json.dumps(kept))
    assert diagnosis.products().status == "ok"
    assert not load("auto", [WIDE], silent).doubt
    kept["choices"][0]["busy_cores"] = 1.5
    path.write_text(json.dumps(kept))
    completed = load("auto", [WIDE, TALL], silent)  # keeps the table's entries
    assert re.search(r"while other processes kept up to \d+\.\d cores busy", completed.doubt)
    assert json.loads(path.read_text())["choices"][0] == kept["choices"][0]
    found = diagnosis.products()
    assert (found.status, found.advice.endswith(f"rm {path}")) == ("warn", True)
    assert "while other processes kept up to" in found.found


def test_measuring_keeps_no_memory():
    """Otherwise a node's first run of a shape would report the memory of these matrices as its own."""
    wide = [Product(0, 1, 32, columns, 1024) for columns in (4096, 6144, 8192)]
    measuring.measure(wide[0], [gemm.ours()])
    resident = pages.Residency()
    for product in wide:
        measuring.measure(product, [gemm.ours()])
    resident.grew_by("kept")
    assert resident.pieces["kept"] < 4 << 20


def test_a_lost_table_gets_another_id(cache):
    first = load("auto", [WIDE], silent)
    for path in cache.glob("products-*.json"):
        path.unlink()
    assert load("auto", [WIDE], silent).version != first.version


def test_a_table_that_is_none_is_refused(cache):
    load("auto", [WIDE], silent)
    (table,) = cache.glob("products-*.json")
    table.write_text(json.dumps({"id": "x", "choices": [{"product": [1]}]}))
    with pytest.raises(MachineError, match="does not have what was stored"):
        load("auto", [WIDE], silent)


@WITH_MKL
def test_the_faster_library_is_taken_but_only_if_it_is_clearly_faster(monkeypatch):
    """The products are real; only the reported time is changed."""
    fast = two()[1].address
    real = time_product
    for share, wanted in ((0.5, "openblas"), (0.99, "mkl")):
        monkeypatch.setattr(
            measuring, "time_product", lambda by, *rest, s=share: real(by, *rest) * 0 + (s if by[1] == fast else 1)
        )
        assert measuring.measure(TALL, two()) == Choice(wanted)


@WITH_MKL
def test_pieces_are_tried_where_there_are_several():
    assert [str(c) for c in measuring.candidates(WIDE, two()[:1])] == ["mkl", "mkl/768", "mkl/1536"]
    assert [str(c) for c in measuring.candidates(TALL, two())] == ["mkl", "openblas"]
    assert [str(c) for c in measuring.candidates(WIDE, [gemm.ours()])] == ["own"]
    found = Products(two(), {WIDE: Choice("openblas", 768)}, "t")
    assert found.operand(WIDE) == (product_of_floats.address, two()[1].address, 768, 0)
    assert found.operand(dataclasses.replace(WIDE, m=1)) == (product_of_floats.address, two()[0].address, 0, 0)


def load_in_a_process(begin: float, answer) -> None:
    time.sleep(max(0.0, begin - time.time()))  # so that they run at the same time
    found = load("auto", [WIDE, TALL], silent)
    answer.put((found.version, sorted(map(str, found.choices.values()))))


def test_processes_that_start_together_share_one_table():
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    children = [context.Process(target=load_in_a_process, args=(time.time() + 0.2, answer)) for _ in range(3)]
    for child in children:
        child.start()
    found = [answer.get(timeout=DEADLINE_S) for _ in children]
    for child in children:
        child.join()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("piece", [64, 48, 1])
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_product_in_pieces_is_the_product(by, piece, trans_a, trans_b):
    rng = np.random.default_rng(1)
    m, n, k = 5, 64, 7
    a = rng.standard_normal((k, m) if trans_a else (m, k), dtype=np.float32)
    b = rng.standard_normal((n, k) if trans_b else (k, n), dtype=np.float32)
    c = np.full((m, n), np.nan, np.float32)
    time_product(by(piece), 0, 0, trans_a, trans_b, m, n, k, a, b, c, 0)
    np.testing.assert_allclose(c, (a.T if trans_a else a) @ (b.T if trans_b else b), rtol=1e-5, atol=1e-5)
