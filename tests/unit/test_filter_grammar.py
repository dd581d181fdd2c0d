"""The grammar of filters: what is parsed to what, and what is said of the rest."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloom.server.read.lists.grammar import (
    MOST_PARENTHESES,
    Comparison,
    Either,
    Every,
    Not,
    Unparsed,
    Value,
    comparisons,
    parse,
)


def of(name, operator, *texts):
    return Comparison(name, operator, tuple(Value(text) for text in texts))


A, B, C = of("a", "=", "1"), of("b", "<", "2.5"), of("c", "~", "x")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a=1", A),
        ("a == 1", A),
        (" a\n=\t1 ", A),
        ("a=1 and b<2.5", Every((A, B))),
        ("a=1 AND b<2.5 or c ~ x", Either((Every((A, B)), C))),
        ("a=1 and (b<2.5 or c~x)", Every((A, Either((B, C))))),
        ("not a=1 and b<2.5", Every((Not(A), B))),
        ("not not a=1", A),
        ("not (a=1 or not b<2.5)", Not(Either((A, Not(B))))),
        ("scheduler in (task, fork-join)", of("scheduler", "in", "task", "fork-join")),
        ("at >= 2026-11-22T10:00:00+01:00", of("at", ">=", "2026-11-22T10:00:00+01:00")),
        ("lr=1e-4", of("lr", "=", "1e-4")),
        ("a=-1", of("a", "=", "-1")),
        ("op_threads={\"qkv\":2,\"fc\":1}", of("op_threads", "=", '{"qkv":2,"fc":1}')),
        ("cores=[0, 1]", of("cores", "=", "[0, 1]")),
        ("data=cifar10:a/b.bin", of("data", "=", "cifar10:a/b.bin")),
        ('name = "a \\"b\\" (c)"', Comparison("name", "=", (Value('a "b" (c)', quoted=True),))),
        ("android = orange", of("android", "=", "orange")),
        ("name = 'a \"b\" (c)'", Comparison("name", "=", (Value('a "b" (c)', quoted=True),))),
        ("name in ('a b', c)", Comparison("name", "in", (Value("a b", quoted=True), Value("c")))),
        ("name = 'tis", of("name", "=", "'tis")),
        ("name = 'tis-o'clock", of("name", "=", "'tis-o'clock")),
    ],
)  # fmt: skip
def test_what_is_parsed(text, tree):
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a name"),
        ("threads", "one of = != < <= > >= ~ in at the end"),
        ("threads 2", "one of = != < <= > >= ~ in before '2'"),
        ("threads =", "a value at the end"),
        ("threads = and", "a value before 'and'"),
        ("threads = 2 scheduler = task", "and or or before 'scheduler = task'"),
        ("threads = 2 and", "a name, not or ( at the end"),
        ("(threads = 2", ") at the end"),
        ("threads in 2", "( before '2'"),
        ("threads in (2", ") at the end"),
        ("threads = 2)", "and or or before ')'"),
        ('name = "a', "a value before"),
        ("a = " + "9" * 2000, "at most 2000 characters"),
        ("(" * 21 + "a=1" + ")" * 21, "20 pairs of parentheses"),
    ],
)
def test_what_is_not_parsed_is_explained_at_its_place(text, said):
    with pytest.raises(Unparsed, match=r"^.+$") as refused:
        parse(text)
    assert said in str(refused.value)


def test_the_deepest_accepted_expression_is_parsed():
    tree = parse("(" * MOST_PARENTHESES + "not " * 101 + "a=1" + ")" * MOST_PARENTHESES)
    assert tree == Not(A)
    assert list(comparisons(tree)) == [A]


@given(st.text(st.sampled_from('ab12 ()=!<>~,"[]{}\\.-'), max_size=60))
def test_any_text_is_parsed_or_explained(text):
    for each in (text, text.replace("a", " and ").replace("b", "or in not ")):
        with contextlib.suppress(Unparsed):
            assert list(comparisons(parse(each)))
