import collections
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt2core.spec.config import NAMES, wrong
from gpt2core.step import slicing
from taskloom.analysis.comparison import decide
from taskloom.analysis.estimators import anytime
from taskloom.contract.bodies import MOST_ERRORS
from taskloom.contract.experiments import ExperimentRequest
from taskloom.server.errors import ExclusionTooLarge, ExpansionTooLarge, InvalidRequest
from taskloom.server.queue.experiments import primary
from taskloom.server.queue.experiments.expansion import expand, order
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.workers.capacity import Capacity
from tests.support.present import present


def expanded(body, max_runs=10_000, capacity=Capacity(), memory=run_memory_bytes):  # noqa: B008
    return expand(ExperimentRequest.model_validate(body), max_runs, memory, capacity)


def refused(body, **more):
    with pytest.raises(InvalidRequest) as caught:
        expanded(body, **more)
    return {error["pointer"]: error for error in caught.value.fields["errors"]}


def asking(a, b):
    return {"axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2]}, "primary": {"a": a, "b": b}}


def test_the_sides_of_a_question_are_variants():
    """Settings that do not vary may be named too, and a model by its alias."""
    a = {"scheduler": "fork-join", "threads": 2, "model": "tiny"}
    request = ExperimentRequest.model_validate(asking(a, {"scheduler": "task", "threads": 1, "lr": 1e-4}))
    variants, _ = expand(request, 100, run_memory_bytes, Capacity())
    found = primary.sides(present(request.primary), [(variant.values, variant.spec) for variant in variants])
    assert found == ({"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 1})


def test_axes_are_combined_and_repeated():
    variants, runs = expanded(
        {"axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2, 3]}, "repetitions": 4, "base": {"batch": 8}}
    )
    assert len(variants) == 6
    assert len(runs) == 24
    assert {v.config.batch for v in variants} == {8}
    assert variants[0].values == {"scheduler": "fork-join", "threads": 1}


def test_no_axes_are_one_variant():
    variants, runs = expanded({"base": {"threads": 2}})
    assert ([dict(v.values) for v in variants], len(runs)) == ([{}], 1)


def test_automatic_slices_are_those_of_the_widest_team():
    base = {"batch": 4, "seq": 64}
    variants, _ = expanded({"axes": {"threads": [1, 2, 4]}, "base": base})
    assert {slicing.sizes(v.config) for v in variants} == {(1, 64)}
    assert [v.values for v in variants] == [{"threads": threads} for threads in (1, 2, 4)]
    variants, _ = expanded({"axes": {"threads": [1, 2]}, "base": base})
    assert {(v.config.batch_slice, v.config.token_slice) for v in variants} == {(None, None)}
    variants, _ = expanded({"axes": {"threads": [1, 4]}, "base": {**base, "batch_slice": 4}})
    assert {slicing.sizes(v.config) for v in variants} == {(4, 16)}


def test_zipped_settings_vary_together():
    variants, _ = expanded(
        {"axes": {"threads": [1, 2]}, "zip": [{"batch_slice": [1, 2], "token_slice": [16, 64]}], "base": {"batch": 4}}
    )
    slices = {(v.config.threads, v.config.batch_slice, v.config.token_slice) for v in variants}
    assert slices == {(1, 1, 16), (1, 2, 64), (2, 1, 16), (2, 2, 64)}


def test_excluded_combinations_are_left_out_by_all_their_values():
    variants, _ = expanded(
        {
            "axes": {"scheduler": ["serial", "task"], "threads": [1, 2]},
            "exclude": [{"scheduler": "serial", "threads": 2}],
        }
    )
    assert {(v.config.scheduler, v.config.threads) for v in variants} == {("serial", 1), ("task", 1), ("task", 2)}


def test_exclusions_see_the_base_and_the_defaults():
    found = refused({"axes": {"threads": [1]}, "exclude": [{"model": "tiny", "steps": 12}]})
    assert "/exclude" in found


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**63 - 1))
def test_interleaved_order_is_a_block_for_each_repetition(variants, repetitions, seed):
    request = ExperimentRequest(repetitions=repetitions, seed=seed)
    runs = order(request, variants)
    assert [run.position for run in runs] == list(range(variants * repetitions))
    for block in range(repetitions):
        part = runs[block * variants : (block + 1) * variants]
        assert {run.block for run in part} == {block}
        assert {run.repetition for run in part} == {block + 1}
        assert sorted(run.variant for run in part) == list(range(variants))
    assert runs == order(request, variants)


def test_the_seed_decides_the_order():
    orders = {tuple(run.variant for run in order(ExperimentRequest(repetitions=3, seed=s), 6)) for s in range(20)}
    assert len(orders) == 20
    firsts = collections.Counter(order(ExperimentRequest(seed=s), 3)[0].variant for s in range(300))
    assert min(firsts.values()) > 60


@pytest.mark.parametrize("variants", [2, 3, 7])
def test_of_any_two_variants_each_runs_first_in_half_of_the_blocks(variants):
    for seed in range(5):
        runs = order(ExperimentRequest(repetitions=8, seed=seed), variants)
        turns = [[run.variant for run in runs[i : i + variants]] for i in range(0, len(runs), variants)]
        for one, other in itertools.combinations(range(variants), 2):
            firsts = [turn.index(one) < turn.index(other) for turn in turns]
            assert [sum(firsts[:blocks]) for blocks in (2, 4, 6, 8)] == [1, 2, 3, 4]


@pytest.mark.parametrize("blocks", [8, 12, 20])
def test_a_run_that_is_slower_because_it_is_first_is_no_difference(blocks):
    """The first run of a block takes 3 % longer, with 1 % noise. Eight blocks that are only shuffled with the default
    seed begin with the first variant seven times."""
    rng, called = np.random.default_rng(1), 0
    for _ in range(200):
        times = rng.normal(1, 0.01, (blocks, 2))
        for run in order(ExperimentRequest(repetitions=blocks), 2)[::2]:
            times[run.block, run.variant] += 0.03
        a, b = times.T.tolist()
        called += decide(a, b, True, noise_floor=1e-9).verdict in ("faster", "slower")
        looks = (anytime(np.log(times[:n, 0] / times[:n, 1])) for n in range(7, blocks + 1))
        called += any(present(look.p_value) < 0.05 for look in looks)
    assert called <= 10


def test_sequential_order_repeats_each_variant_before_the_next_and_pairs_nothing():
    runs = order(ExperimentRequest(repetitions=2, order="sequential"), 2)
    assert [(r.variant, r.repetition) for r in runs] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert len({r.block for r in runs}) == 4


@pytest.mark.parametrize(
    ("body", "pointer", "accepted"),
    [
        ({"axes": {"scheduler": ["task", "openmp"]}}, "/axes/scheduler/1", "serial, fork-join, task"),
        ({"axes": {"threads": [1, 0]}}, "/axes/threads/1", "1 to 4096"),
        ({"axes": {"threads": [1, True]}}, "/axes/threads/1", "an integer"),
        ({"axes": {"threads": []}}, "/axes/threads", "at least one"),
        ({"axes": {"threads": [1, 1]}}, "/axes/threads", "without repeats"),
        ({"axes": {"cheese": [1]}}, "/axes/cheese", "no such setting"),
        ({"axes": {"a/b~": [1]}}, "/axes/a~1b~0", "no such setting"),
        ({"axes": {"threads": [1]}, "zip": [{"threads": [1]}]}, "/zip/0/threads", "one place only"),
        ({"zip": [{"threads": [1, 2], "batch": [1]}]}, "/zip/0", "same number"),
        ({"zip": [{}]}, "/zip/0", "same number"),
        ({"zip": [{"threads": [1, 2], "seq": [8, 999]}]}, "/zip/0/seq/1", "context"),
        ({"exclude": [{"cheese": 1}]}, "/exclude/0/cheese", "no such setting"),
        ({"exclude": [{}]}, "/exclude/0", "at least one setting"),
        ({"base": {"seq": 129}}, "/base/seq", "context (128)"),
        ({"base": {"batch": 2}, "axes": {"batch_slice": [1, 3]}}, "/axes/batch_slice/1", "batch (2)"),
        ({"base": {"token_slice": 65}}, "/base/token_slice", "seq (64)"),
        ({"base": {"model": {"channels": 10, "heads": 3}}}, "/base/model/channels", "multiple of heads (3)"),
        ({"axes": {"model": ["tiny", {"colour": 1}]}}, "/axes/model/1/colour", "no such setting"),
        ({"base": {"model": {"network": "lstm", "heads": 2}}}, "/base/model/heads", "no such setting of lstm"),
        ({"base": {"model": {"network": "lstm", "hidden": 0}}}, "/base/model/hidden", "from 1 to 65536"),
        ({"base": {"model": {"network": "lstm", "tied": True, "hidden": 9}}}, "/base/model/embedding", "hidden (9)"),
        ({"base": {"model": {"network": "gru"}}}, "/base/model/network", "one of gpt2, lstm"),
        ({"axes": {"model": ["lstm-tiny", "lstm-huge"]}}, "/axes/model/1", "lstm-tiny, lstm-medium"),
        ({"base": {"scheduler": "serial"}, "axes": {"threads": [1, 2]}}, "/axes/threads/1", "1 with scheduler serial"),
        ({"base": {"fusion": "all"}, "axes": {"grad_clip": [0, 1]}}, "/base/fusion", "none or rows: grad_accum"),
        ({"base": {"grad_clip": -1}}, "/base/grad_clip", "a number of 0 or more and below 1000000"),
        ({"base": {"threads": 2, "cores": [0]}}, "/base/threads", "cores given (1)"),
        ({"base": {"threads": 3}, "requires": {"cores": 2}}, "/base/threads", "requires.cores = 2"),
        ({"base": {"cores": [0, 1]}, "requires": {"cores": 1}}, "/base/cores", "requires.cores = 1"),
        ({"base": {"data": "../secrets"}}, "/base/data", "no path"),
        ({"base": {"checkpoint": "/etc/passwd"}}, "/base/checkpoint", "no path"),
        ({"axes": {"runtime": ["libgomp", "/tmp/libomp.so"]}}, "/axes/runtime/1", "no path"),
        ({"base": {"save": "x"}}, "/base/save", "writes no file"),
        ({"base": {"trace": "x"}}, "/base/trace", "writes no file"),
        ({"base": {"batch": 4, "ranks": 3}}, "/base/ranks", "a divisor of batch (4)"),
        ({"base": {"batch": 4, "ranks": 2, "threads": 2}, "requires": {"cores": 3}}, "/base/threads",
         "requires.cores = 3) / ranks (2)"),
        ({"base": {"batch": 4, "ranks": 2, "cores": [0]}}, "/base/ranks", "number of cores given (1)"),
        ({"axes": {"ranks": [2, 4]}, "base": {"batch": 4}, "requires": {"nodes": 4}}, "/axes/ranks/0",
         "a multiple of the required nodes (requires.nodes = 4)"),
        ({"requires": {"nodes": 2}}, "/base/ranks", "a multiple of the required nodes (requires.nodes = 2)"),
        ({"base": {"batch": 4, "ranks": 2, "cores": [0, 1]}, "requires": {"nodes": 2}}, "/base/cores",
         "none with requires.nodes = 2"),
        ({"base": {"batch": 4, "ranks": 2, "allow_oversubscription": True}, "requires": {"nodes": 2}},
         "/base/allow_oversubscription", "false with requires.nodes = 2"),
        ({"base": {"batch": 4, "ranks": 4, "threads": 2}, "requires": {"cores": 3, "nodes": 2}}, "/base/threads",
         "requires.cores = 3) / ranks (4)"),
        ({"requires": {"labels": {"nodes": "2"}}}, "/requires/labels/nodes", "it is requires.nodes"),
        ({"requires": {"memory_bytes": 1000}}, "/base/model", "requires.memory_bytes = 1000"),
        ({"base": {"batch": 1 << 20, "batch_slice": 1}}, "/base/batch_slice", "65536 pieces"),
        (asking({"scheduler": "task"}, {"scheduler": "fork-join", "threads": 2}), "/primary/a", "these are of 2"),
        (asking({"scheduler": "serial"}, {"scheduler": "task", "threads": 2}), "/primary/a", "of 0. Variants differ in "
         "scheduler (fork-join, task), threads (1, 2)"),
        (asking({"cheese": 1}, {"scheduler": "task", "threads": 2}), "/primary/a/cheese", "no such setting"),
        (asking({"scheduler": "task", "threads": True}, {"scheduler": "task", "threads": 2}), "/primary/a", "of 0"),
        (asking({"scheduler": "task", "threads": 2}, {"threads": 2, "scheduler": "task"}), "/primary/b", "another"),
        ({"axes": {"batch": [1, 2]}, "primary": {"a": {"batch": 1}, "b": {"batch": 2}}}, "/primary/b", "in batch"),
    ],
)
def test_what_cannot_run_is_refused_with_a_pointer(body, pointer, accepted):
    found = refused(body)
    assert pointer in found, found
    assert accepted in found[pointer]["accepted"]


def test_every_variants_errors_are_named_once():
    found = refused({"axes": {"threads": [0, -1], "scheduler": ["task", "fork-join"], "batch": [0, 4]}})
    # The first wrong setting of each combination is reported.
    assert set(found) == {"/axes/batch/0", "/axes/threads/0", "/axes/threads/1"}


@pytest.mark.parametrize(
    ("body", "capacity", "pointer"),
    [
        ({"base": {"threads": 3}}, Capacity(cores=2), "/base/threads"),
        ({"base": {"cores": [0, 1, 2]}}, Capacity(cores=2), "/base/cores"),
        ({"requires": {"cores": 3}}, Capacity(cores=2), "/requires/cores"),
        ({"base": {"model": "gpt2-1.5b"}}, Capacity(cores=2, memory_bytes=8 << 30), "/base/model"),
        ({"requires": {"memory_bytes": 9 << 30}}, Capacity(memory_bytes=8 << 30), "/requires/memory_bytes"),
        (
            {"axes": {"scheduler": ["task", "omp-task"]}, "base": {"runtime": "libomp"}},
            Capacity(runtimes=frozenset({"runtime-auto", "runtime-libgomp"})),
            "/base/runtime",
        ),
        ({"base": {"batch": 4, "ranks": 2}}, Capacity(cores=2, mpi=False), "/base/ranks"),
        ({"base": {"batch": 6, "ranks": 3, "threads": 2}}, Capacity(cores=5, mpi=True), "/base/threads"),
        (
            {"base": {"batch": 4, "ranks": 4, "threads": 1}, "requires": {"nodes": 2}},
            Capacity(nodes=frozenset({"1", "4"})),
            "/requires/nodes",
        ),
        ({"base": {"batch": 4, "ranks": 4, "threads": 2}, "requires": {"nodes": 2}}, Capacity(cores=3), "/base/threads")
    ],
)
def test_what_no_known_node_has_is_refused_and_without_nodes_it_is_not(body, capacity, pointer):
    assert pointer in refused(body, capacity=capacity)
    assert expanded(body)


def test_a_run_on_several_nodes_needs_cores_and_memory_for_its_ranks_on_one():
    body = {"base": {"batch": 4, "ranks": 4, "threads": 2}, "requires": {"nodes": 2}}
    (on_two,), _ = expanded(body, capacity=Capacity(cores=4, mpi=False, nodes=frozenset({"2"})))
    (on_one,), _ = expanded({"base": body["base"]})
    assert (on_one.cores_needed(None), on_two.cores_needed(None)) == (8, 4)
    assert on_one.memory_bytes == 2 * on_two.memory_bytes


def test_oversubscription_on_purpose_needs_one_core():
    variants, _ = expanded({"base": {"threads": 8, "allow_oversubscription": True}}, capacity=Capacity(cores=2))
    assert variants[0].cores_needed(None) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"axes": {"seed": list(range(11))}},
        {"axes": {"seed": list(range(4)), "batch": [1, 2, 3]}},
        {"axes": {"seed": [1, 2]}, "repetitions": 6},
        {"zip": [{"seed": list(range(11))}], "exclude": [{"seed": 1}]},
    ],
)
def test_too_many_runs_are_refused(body):
    with pytest.raises(ExpansionTooLarge) as caught:
        expanded(body, max_runs=10)
    assert caught.value.fields["runs"] > caught.value.fields["max_runs"] == 10


def test_the_number_of_runs_is_refused_before_their_settings_are_built():
    with pytest.raises(ExpansionTooLarge) as caught:
        expanded({"axes": {"seed": list(range(200)), "batch": [1, 2, 3]}, "repetitions": 100}, memory=pytest.fail)
    assert caught.value.fields == {"runs": 60_000, "max_runs": 10_000}


def test_huge_products_are_refused_without_being_built():
    axes = {name: list(range(1, 1001)) for name in ("seed", "batch", "seq", "steps", "threads", "warmup")}
    with pytest.raises(ExpansionTooLarge):
        expanded({"axes": axes})


def test_the_shape_leaves_out_what_does_not_change_a_steps_duration():
    def shape(**base):
        return expanded({"base": base})[0][0].shape

    assert shape(seed=1, steps=5, lr=0.1) == shape(seed=2, steps=50)
    assert shape(threads=1) != shape(threads=2)
    assert shape(model="tiny") != shape(model="gpt2-124m")


def test_memory_grows_with_the_batch():
    small, large = (expanded({"base": {"batch": batch}})[0][0].memory_bytes for batch in (1, 64))
    assert 0 < small < large


def test_exclusions_are_looked_up_and_not_gone_through():
    seeds = list(range(1000))
    exclude = [{"seed": seed, "lr": 1e-4} for seed in range(10_000) if seed != 7]
    variants, _ = expanded({"axes": {"seed": seeds}, "exclude": exclude})
    assert [variant.values for variant in variants] == [{"seed": 7}]


def test_more_comparisons_than_are_made_are_refused_before_any_is():
    some = [dict.fromkeys(names, "x") for names in itertools.combinations(NAMES, 2)]
    with pytest.raises(ExclusionTooLarge) as caught:
        expanded({"axes": {"seed": list(range(5000))}, "exclude": some})
    assert caught.value.fields["combinations"] == 5000


def test_so_many_shapes_are_refused_and_so_many_seeds_are_not():
    """Memory is planned for each shape, so their number is limited. Seeds do not change the shape."""
    axes = {"batch": list(range(1, 52)), "seq": list(range(1, 101))}
    with pytest.raises(ExpansionTooLarge, match="5000") as refusal:
        expanded({"base": {"model": "tiny"}, "axes": axes})
    assert refusal.value.fields == {"max_shapes": 5000}
    assert len(expanded({"axes": {"seed": list(range(5001))}})[0]) == 5001


def test_blocks_of_a_huge_model_are_counted_and_not_listed(monkeypatch):
    """A model may have 200,000 blocks, and a submission 5,000 shapes of it."""
    monkeypatch.setattr(slicing, "cut_rows", lambda *_: pytest.fail("every block is listed"))
    model = {"layers": 1, "heads": 1, "channels": 1 << 16, "vocab": 1 << 16, "context": 1 << 20}
    variants, _ = expanded({"base": {"model": model, "seq": 16}, "axes": {"grad_clip": [0.5, 1.0]}})
    assert [variant.memory_bytes > 1 << 40 for variant in variants] == [True, True]


def test_settings_of_all_runs_together_are_bounded():
    cores = ",".join(map(str, range(4000)))
    with pytest.raises(ExpansionTooLarge, match="bytes"):
        expanded({"base": {"cores": cores}, "axes": {"seed": list(range(5000))}})


def test_what_calls_between_may_end_it():
    seen = []

    def between():
        seen.append(1)
        if len(seen) == 3:
            raise InterruptedError

    request = ExperimentRequest.model_validate({"axes": {"seed": list(range(200))}})
    with pytest.raises(InterruptedError):
        expand(request, 10_000, run_memory_bytes, Capacity(), between)
    assert len(seen) == 3


def test_many_refusals_end_it_early():
    assert len(refused({"axes": {"threads": list(range(-5000, 0)), "seed": [1, 2]}})) == MOST_ERRORS


@pytest.mark.parametrize(
    ("sizes", "fields"),
    [
        ({"layers": 0, "heads": 0, "channels": 10, "vocab": "a"}, ["layers", "heads", "vocab"]),
        ({"network": "lstm", "hidden": 0, "embedding": -3, "foo": 2}, ["hidden", "embedding", "foo"]),
        ({"network": "vgg", "width": -1, "hidden": 0}, ["width", "hidden"]),
        ({"channels": 10, "heads": 3}, ["channels"]),
    ],
)
def test_every_wrong_size_of_a_model_is_named(sizes, fields):
    assert [error.field.removeprefix("model.") for error in wrong("model", sizes)] == fields
