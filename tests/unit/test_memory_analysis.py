import pytest

from taskloom.analysis.memory import memory


def sizes_at(batch, seq):
    return {"weights": 1000, "activations": 10 * batch * seq, "temporary": 7 * seq}


def test_split_growth_and_what_of_the_peak_is_explained():
    measured = [{**sizes_at(4, 8), "peak_rss": 2000}, {**sizes_at(4, 8), "peak_rss": 1800}]
    resident = [{"interpreter": 500, "arenas": 1376, "run": 24}, {"interpreter": 1, "arenas": 2}]
    found = memory(measured, resident, [0, 0], 4, 8, 32, sizes_at)
    assert found.exact
    assert found.measured_bytes == {"weights": 1000, "activations": 320, "temporary": 56}
    assert (found.peak_rss_bytes, found.arenas_share) == (2000, pytest.approx(1376 / 2000))
    assert (found.resident_bytes, found.explained) == (resident[0], pytest.approx(1900 / 2000))
    assert found.per_sequence_bytes == {"weights": 0, "activations": 80, "temporary": 0}
    assert found.per_token_bytes == {"weights": 0, "activations": 40, "temporary": 7}
    assert [(s.batch, s.total_bytes) for s in found.with_batch][:2] == [(4, 1376), (8, 1696)]
    assert [s.seq for s in found.with_seq] == [8, 16, 32]


def test_arenas_that_are_not_what_the_formula_says_are_marked():
    assert not memory([{**sizes_at(4, 8), "weights": 1001}], [{}], [None], 4, 8, 8, sizes_at).exact
    silent = memory([sizes_at(4, 8)], [{}], [None], 4, 8, 8, sizes_at)
    assert (silent.peak_rss_bytes, silent.arenas_share, silent.explained) == (None, None, None)
    assert silent.per_token_bytes == {}
    assert memory([{**sizes_at(4, 8), "peak_rss": 2000}], [{}], [None], 4, 8, 8, sizes_at).explained is None


def test_sizes_of_a_run_that_has_one_batch_and_one_length_do_not_grow():
    found = memory([sizes_at(1, 1)], [{}], [0], 1, 1, 1, sizes_at, most_batch=1)
    assert (found.per_sequence_bytes, found.per_token_bytes) == ({}, {})
    assert [(each.batch, each.seq) for each in (*found.with_batch, *found.with_seq)] == [(1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("compiled", "shown", "says", "runs"),
    [
        ((31, 0, 0), 1800, False, 1),
        ((31, None, 0), 1700, False, 1),
        ((31, None, None), 1800, None, 1),
        ((31, 7, 40), 3000, True, 3),
        ((None, None, None), 3000, None, 0),
    ],
)
def test_a_peak_that_contains_the_compiler_stands_beside_no_other(compiled, shown, says, runs):
    """The compiler takes more memory than a small run."""
    peaks = [3000, 1800, 1700]
    measured = [{**sizes_at(4, 8), "peak_rss": peak} for peak in peaks]
    resident = [{"run": peak} for peak in peaks]
    found = memory(measured, resident, compiled, 4, 8, 8, sizes_at)
    assert (found.peak_rss_bytes, found.peak_compiled, found.compiled_runs) == (shown, says, runs)
    assert found.resident_bytes == {"run": shown}


def test_no_run_has_no_memory():
    with pytest.raises(ValueError):
        memory([], [], [], 1, 1, 1, sizes_at)
