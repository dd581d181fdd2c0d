"""Cloze records: a document, a query with a missing word, and the answer, which is a word of the document. They are
generated, or a folder with three token files, document.bin, query.bin and answer.bin.

Each file is an llm.c token file. Token 0 ends a document or a query, token 1 is the missing word of a query, all others
are words. Record i is document i, query i and token i of the answers, which have no ends. In memory documents are
padded to `seq` positions with 0, and queries to the model's `query`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.data import pairs
from gpt2core.data.pairs import FIRST_WORD, BadSequence
from gpt2core.data.sources import SYNTHETIC_STREAM
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import CLOZE, END, MISSING, form_of
from gpt2core.spec.errors import CountMismatch, FileError, TokenOutOfRange

DOCUMENT, QUERY, ANSWER = FILES = ("document.bin", "query.bin", "answer.bin")


class Records(NamedTuple):
    """Padded records: documents (R, T), queries (R, Q) and answers (R,) uint16; lengths of both (R, 2) int32."""

    documents: NDArray[np.uint16]
    queries: NDArray[np.uint16]
    answers: NDArray[np.uint16]
    lengths: NDArray[np.int32]


class NotEnoughRecords(FileError):
    """The data has fewer records than one batch needs."""

    slug = "not-enough-records"


class AnswerNotInDocument(FileError):
    """The answer of a record is no word of its document."""

    slug = "answer-not-in-document"


def open_records(config: TrainConfig) -> Records:
    """The run's records, at least a batch of them. Raises what `open_folder` raises, NotEnoughRecords."""
    form, path = form_of(config.data)
    found: Records = form.opener(CLOZE)(config, path)
    if len(found.lengths) < config.batch:
        raise NotEnoughRecords(config.data, f"{len(found.lengths)} records; a batch needs {config.batch}")
    for array in found:
        array.flags.writeable = False
    return found


def open_synthetic(config: TrainConfig, _path: str = "") -> Records:
    """Draw as many records as all steps use, at most SYNTHETIC_PAIRS (65,536), which are then used again.

    A document has half of `seq` to `seq` words. Its query is a copy of some of its words in a row, one of which is the
    answer and is missing. Words are drawn as synthetic tokens are: zipf or uniform. A longer run begins with the
    records of a shorter one.
    """
    T, Q = config.seq, config.model.query  # type: ignore[attr-defined]
    needed = config.batch * config.grad_accum * config.steps
    count = max(config.batch, min(needed, pairs.SYNTHETIC_PAIRS))
    rng, of_places = (np.random.Generator(np.random.PCG64([config.seed, SYNTHETIC_STREAM, i])) for i in range(2))
    drawn, places = pairs.draw_words(config, rng, (count, T)), of_places.random((count, 4))
    records = Records(
        np.full((count, T), END, np.uint16), np.full((count, Q), END, np.uint16), np.empty(count, np.uint16),
        np.empty((count, 2), np.int32),
    )  # fmt: skip
    for i, (of_length, of_words, of_start, of_missing) in enumerate(places):
        least = max(1, T // 2)
        length = least + int(of_length * (T + 1 - least))
        most = min(Q, length)
        least = max(1, most // 2)
        words = least + int(of_words * (most + 1 - least))
        start, missing = int(of_start * (length + 1 - words)), int(of_missing * words)
        records.documents[i, :length] = drawn[i, :length]
        records.queries[i, :words] = drawn[i, start : start + words]
        records.queries[i, missing] = MISSING
        records.answers[i] = drawn[i, start + missing]
        records.lengths[i] = length, words
    return records


def open_folder(config: TrainConfig, path: str) -> Records:
    """The records of a folder.

    Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile, CountMismatch, NotEnoughTokens, TokenOutOfRange,
    BadSequence, SequenceTooLong, AnswerNotInDocument.
    """
    T, Q = config.seq, config.model.query  # type: ignore[attr-defined]
    (document, document_tokens, document_ends), (query, query_tokens, query_ends) = (
        (file, tokens, pairs.ends_of(file, tokens))
        for file, tokens in (pairs.open_tokens_of(config, path, name) for name in (DOCUMENT, QUERY))
    )
    answer, answers = pairs.open_tokens_of(config, path, ANSWER)
    for file, count, what in ((query, len(query_ends), "queries"), (answer, len(answers), "answers")):
        if count != len(document_ends):
            raise CountMismatch(file, f"{count} {what}; {document} has {len(document_ends)} documents")
    for file, tokens, least in ((document, document_tokens, MISSING), (answer, answers, END)):
        low = np.flatnonzero((tokens < FIRST_WORD) & (tokens >= least))
        if len(low):
            raise TokenOutOfRange(file, f"token {tokens[low[0]]} at index {low[0]}; words are from {FIRST_WORD} on")
    queries, of_queries = pairs.pad(query, query_tokens, query_ends, Q, Q, f"the model's query {Q}")
    missing = (queries == MISSING).sum(1)
    if (missing != 1).any():
        at = int(np.argmax(missing != 1))
        raise BadSequence(query, f"sequence {at} has {missing[at]} missing words (token {MISSING}); expected 1")
    documents, of_documents = pairs.pad(document, document_tokens, document_ends, T, T, f"seq {T}")
    found = (documents == answers[:, None]).any(1)
    if not found.all():
        at = int(np.argmin(found))
        raise AnswerNotInDocument(answer, f"answer {at} is token {answers[at]}, which document {at} does not contain")
    lengths = np.stack([of_documents, of_queries], axis=1).astype(np.int32)
    return Records(documents, queries, np.array(answers), lengths)


def checksums(data: str) -> dict[str, str]:
    """SHA-256 of each file of a folder of records, none of generated ones. Raises UnreadableFile."""
    return pairs.checksums(data, FILES)
