"""The share of the cores that other processes used."""

import pytest

from taskloom.analysis.processes import Process


@pytest.mark.parametrize("leave_out", [False, True])
def test_foreign_load_is_a_share_of_all_timed_steps(make_result, leave_out):
    """It was counted over the flagged steps too, whether or not they count."""
    result = make_result([9.0, *[1.0] * 10])
    result["flagged"] = [[], *[["foreign"]] * 5, *[[]] * 5]
    result["validity"] = {"foreign": {"foreign_s": 0.15, "cores": [0]}}
    process = Process(1, result, leave_out_flagged=leave_out)
    assert len(process.timed_s) == (5 if leave_out else 10)
    assert process.foreign_share == pytest.approx(0.015)
