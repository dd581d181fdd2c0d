"""What bounds kernels: the FLOP of register tiles, and the shares that are shown."""

from __future__ import annotations

import json

import pytest

from bench import kernels
from gpt2core.compile.lanes import LANES
from gpt2core.gemm.blocking import blocking
from gpt2core.gemm.operands import COLUMNS_FROM, WHOLE, WORDS_TO

ROWS, PANEL = blocking().most_rows, blocking().panel


def test_register_tiles_of_a_whole_product_have_its_flop_and_whole_vectors():
    assert kernels.tiles_flop(WHOLE, 0, 2 * ROWS, 2 * PANEL, 10) == 2 * 2 * ROWS * 2 * PANEL * 10
    assert kernels.tiles_flop(WHOLE, 0, 1, 1, 10) == 2 * LANES * 10


@pytest.mark.parametrize("kind", [COLUMNS_FROM, WORDS_TO])
def test_register_tiles_have_more_than_a_triangle_leaves_and_less_than_all(kind):
    assert 64 * 64 * 65 < kernels.tiles_flop(kind, 0, 64, 64, 64) < 1.4 * 64 * 64 * 65


def test_measured(tmp_path, capsys):
    """Attention's tiles have more FLOP than its roof."""
    kernels.main(["--rounds", "1", "--out", str(tmp_path / "kernels")])
    report = json.loads((tmp_path / "kernels.json").read_text())
    assert len(report["rows"]) == 1 + 6 + 4
    assert all(row["of_roof"] > 0 for row in report["rows"])
    assert [row["of_tiles"] > row["of_roof"] for row in report["rows"] if row["of_tiles"]] == 4 * [True]
    assert "| attention, backward: T256 |" in capsys.readouterr().out


def test_no_rounds_are_refused(capsys):
    with pytest.raises(SystemExit):
        kernels.main(["--rounds", "0"])
    assert "--rounds 0: at least 1" in capsys.readouterr().err
