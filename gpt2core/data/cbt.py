"""Cloze records from the text of the Children's Book Test: `python -m gpt2core.data.cbt TEXT FOLDER` writes the token
files that `cloze:FOLDER` reads, and words.txt.

A record of the text has 21 numbered lines: 20 sentences, and a query with the word XXXXX, a tab, the answer, two tabs,
and candidates that | separates. Words are separated by spaces; empty lines are between records.

    1 The old fox looked at the crow .
    ...
    21 It was XXXXX who had the cheese .<tab>crow<tab><tab>fox|crow|wolf

The document is all words of the 20 sentences. Candidates are checked and not kept: a reader chooses among all words of
the document. Tokens are numbered by how often their word occurs: 3 is the most frequent one, on line 1 of words.txt.
Token 2 stands for every word beyond the vocabulary.

Source: Hill et al. 2016, "The Goldilocks Principle", https://arxiv.org/abs/1511.02301.
"""

from __future__ import annotations

import argparse
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.data.cloze import ANSWER, DOCUMENT, QUERY
from gpt2core.data.sources import write_tokens
from gpt2core.node.files import open_regular, replacing, unreadable
from gpt2core.spec.data import END, MISSING
from gpt2core.spec.errors import CoreError, FileError
from gpt2core.spec.wording import counted

SENTENCES = 20
GAP = "XXXXX"  # the missing word of a query
OTHER, FIRST = MISSING + 1, MISSING + 2  # the token of words beyond the vocabulary, and that of the most frequent word
LEAST_VOCAB, MOST_VOCAB = FIRST + 1, 1 << 16  # tokens are uint16
WORDS = "words.txt"
SHOWN = 40  # characters of a line in a message


class BadLine(FileError):
    """A line of a text has another form than its place in a record."""

    slug = "bad-line"

    def __init__(self, path: object, number: int, reason: str) -> None:
        super().__init__(path, f"line {number}: {reason}")


class NoRecords(FileError):
    """A text has no record that a reader can learn."""

    slug = "no-records"


class Record(NamedTuple):
    """The words of a document and of a query, in which GAP is the missing one, and the answer."""

    document: list[str]
    query: list[str]
    answer: str


@dataclass(frozen=True)
class Converted:
    """What a folder has: records, the longest document and query, tokens of the vocabulary. without: records that are
    left out, since their answer is no word of their document; longer: since they have more words than allowed."""

    records: int
    document: int
    query: int
    vocab: int
    without: int
    longer: int


def records(path: str | Path) -> Iterator[Record]:
    """The records of a text. Raises UnreadableFile, BadLine."""
    with open_regular(path) as (stream, _):
        place, document, number = 1, list[str](), 0
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise BadLine(path, number, f"is no UTF-8 ({error.reason})") from None
            if not line.strip() and place == 1:
                continue
            begin, _, text = line.partition(" ")
            if begin != str(place):
                raise BadLine(path, number, f"begins with {begin[:SHOWN]!r}; expected {place}, a record's next line")
            if place <= SENTENCES:
                document += text.split()
                place += 1
                continue
            yield Record(document, *_query(path, number, text))
            place, document = 1, []
        if place > 1:
            raise BadLine(path, number, f"the text ends after line {place - 1} of a record; expected {SENTENCES + 1}")


def _query(path: str | Path, number: int, text: str) -> tuple[list[str], str]:
    """The words of a query and the answer. Raises BadLine."""
    parts = text.split("\t")
    if len(parts) != 4:
        expected = "expected 3: query, tab, answer, tab, tab, candidates"
        raise BadLine(path, number, f"{counted(len(parts) - 1, 'tab')}; {expected}")
    query, answer, candidates = parts[0].split(), parts[1].strip(), [each.strip() for each in parts[3].split("|")]
    if (gaps := query.count(GAP)) != 1:
        raise BadLine(path, number, f"the query has the word {GAP} {counted(gaps, 'time')}; expected once")
    if len(answer.split()) != 1:
        raise BadLine(path, number, f"the answer is {answer[:SHOWN]!r}; expected one word")
    if answer not in candidates:
        raise BadLine(path, number, f"the answer {answer[:SHOWN]!r} is none of the candidates, which | separates")
    return query, answer


def convert(
    text: str | Path, folder: str | Path, *, vocab: int = MOST_VOCAB, known: str | Path | None = None,
    most: tuple[int | None, int | None] = (None, None),
) -> Converted:  # fmt: skip
    """Write the records of a text into a folder.

    vocab: its number of tokens; known: words.txt of another text, whose tokens words get. most: words of a document and
    of a query beyond which a record is left out. Raises UnreadableFile, BadLine, NoRecords.
    """
    numbers: dict[str, int] = {}  # words by their first occurrence, from FIRST on
    documents, queries, answers = array("I"), array("I"), array("I")
    left_out, longest = {"without": 0, "longer": 0}, [0, 0]

    def number(word: str) -> int:
        return numbers.setdefault(word, FIRST + len(numbers))

    for record in records(text):
        sizes = len(record.document), len(record.query)
        if record.answer not in record.document:
            left_out["without"] += 1
        elif any(limit is not None and size > limit for size, limit in zip(sizes, most, strict=True)):
            left_out["longer"] += 1
        else:
            documents.extend([*map(number, record.document), END])
            queries.extend([*(MISSING if word == GAP else number(word) for word in record.query), END])
            answers.append(number(record.answer))
            longest = [max(pair) for pair in zip(longest, sizes, strict=True)]
    if not answers:
        raise NoRecords(text, f"{counted(sum(left_out.values()), 'record')}, none of which can be used")
    tokens, words = _tokens(numbers, (documents, queries, answers), vocab, known)
    into = Path(folder)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unreadable(into, error) from error
    for name, found in ((DOCUMENT, documents), (QUERY, queries), (ANSWER, answers)):
        write_tokens(into / name, tokens[np.asarray(found)])
    with replacing(into / WORDS) as part:
        part.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return Converted(len(answers), longest[0], longest[1], FIRST + len(words), **left_out)


def _tokens(
    numbers: dict[str, int], found: Sequence[array[int]], vocab: int, known: str | Path | None
) -> tuple[NDArray[np.int64], list[str]]:
    """The token of each number, and the words of the vocabulary in the order of their tokens."""
    if known is None:
        counts = np.bincount(np.concatenate([np.asarray(each) for each in found]), minlength=FIRST + len(numbers))
        words = sorted(numbers, key=lambda word: (-counts[numbers[word]], numbers[word]))[: vocab - FIRST]
    else:
        with open_regular(known) as (stream, _):
            words = stream.read().decode(errors="replace").split("\n")[: vocab - FIRST]
        words = words[: words.index("")] if "" in words else words
    tokens = np.full(FIRST + len(numbers), OTHER)
    tokens[:OTHER] = END, MISSING
    for token, word in enumerate(words, FIRST):
        if word in numbers:
            tokens[numbers[word]] = token
    return tokens, words


def _report(made: Converted, folder: Path) -> str:
    """What was written, and how it is named."""
    sentences = [
        f"{folder}: {counted(made.records, 'record')}, documents of at most {counted(made.document, 'word')}, queries "
        f"of at most {counted(made.query, 'word')}, a vocabulary of {counted(made.vocab, 'token')}.",
        f"Use it with data cloze:{folder}, seq {made.document} or more, and a reader with query {made.query} and vocab "
        f"{made.vocab} or more.",
    ]
    if made.without:
        sentences.append(f"Left out: {counted(made.without, 'record')} whose answer is no word of the document.")
    if made.longer:
        sentences.append(f"Left out: {counted(made.longer, 'longer record')}.")
    return "\n".join(sentences)


def main() -> int:
    """Convert and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpt2core.data.cbt", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("text", type=Path, metavar="TEXT", help="text of the test, such as cbtest_NE_train.txt")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the token files")
    parser.add_argument("--vocab", type=int, default=MOST_VOCAB, help="tokens of the vocabulary (default: %(default)s)")
    parser.add_argument("--words", type=Path, metavar="FILE", help="words.txt of the text that a model is trained on")
    parser.add_argument("--most-words", type=int, metavar="N", help="leave out records with longer documents")
    parser.add_argument("--most-query", type=int, metavar="N", help="leave out records with longer queries")
    given = parser.parse_args()
    if not LEAST_VOCAB <= given.vocab <= MOST_VOCAB:
        parser.error(f"--vocab {given.vocab}: expected {LEAST_VOCAB} to {MOST_VOCAB}")
    limits = given.most_words, given.most_query
    try:
        made = convert(given.text, given.folder, vocab=given.vocab, known=given.words, most=limits)
    except CoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(_report(made, given.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
