"""Texts of the Children's Book Test become the cloze records that a reader trains on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpt2core.data import cbt, cloze
from gpt2core.data.cbt import BadLine, NoRecords, convert, records
from gpt2core.data.sources import map_tokens
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import UnreadableFile
from gpt2core.spec.models import model_from

WORDS = ("fox", "crow", "wolf")
MODEL = {"network": "reader", "embedding": 6, "hidden": 5, "vocab": 24, "query": 5}


def lines(number: int, query: str = "", said: str = "said") -> list[str]:
    """A record: 20 sentences about one of WORDS, and a query whose answer it is."""
    answer = WORDS[number % len(WORDS)]
    query = query or f"then XXXXX left\t{answer}\t\t{'|'.join(WORDS)}"
    return [*(f"{i} the {answer} {said} s{i % 4}" for i in range(1, cbt.SENTENCES + 1)), f"21 {query}", ""]


def write(path: Path, *parts: list[str]) -> Path:
    path.write_text("\n".join(line for part in parts for line in part) + "\n", encoding="utf-8")
    return path


def test_records_are_read_and_a_reader_trains_on_them(tmp_path: Path) -> None:
    text, folder = write(tmp_path / "text", lines(0), lines(1), lines(2)), tmp_path / "records"
    (first, *_) = records(text)
    assert first.document[:8] == ["the", "fox", "said", "s1", "the", "fox", "said", "s2"]
    assert (first.query, first.answer) == (["then", "XXXXX", "left"], "fox")
    made = convert(text, folder)
    assert made == cbt.Converted(3, 80, 3, 14, 0, 0)
    words = (folder / "words.txt").read_text().split()
    assert words[:2] == ["the", "said"]  # 60 times each, and the first of them comes first
    config = TrainConfig(model_from(MODEL), 3, 80, data=f"cloze:{folder}")
    found = cloze.open_records(config)
    tokens = {word: token for token, word in enumerate(words, cbt.FIRST)}
    assert found.answers.tolist() == [tokens[word] for word in WORDS]
    assert found.queries[0].tolist() == [tokens["then"], 1, tokens["left"], 0, 0]
    assert found.documents[2, :4].tolist() == [tokens[word] for word in ("the", "wolf", "said", "s1")]


def test_words_beyond_the_vocabulary_share_a_token(tmp_path: Path) -> None:
    made = convert(write(tmp_path / "text", lines(0)), tmp_path, vocab=5)
    assert made.vocab == 5
    assert (tmp_path / "words.txt").read_text() == "fox\nthe\n"  # the answer counts too
    assert map_tokens(tmp_path / cloze.DOCUMENT)[:5].tolist() == [4, 3, 2, 2, 4]
    assert map_tokens(tmp_path / cloze.QUERY).tolist() == [2, 1, 2, 0]


def test_another_text_takes_the_words_of_the_first(tmp_path: Path) -> None:
    convert(write(tmp_path / "first", lines(0), lines(1)), tmp_path / "train")
    second = write(tmp_path / "second", lines(1, said="cried"))
    words = tmp_path / "train" / "words.txt"
    convert(second, tmp_path / "valid", known=words)
    assert (tmp_path / "valid" / "words.txt").read_text() == words.read_text()
    mine, its = (map_tokens(tmp_path / name / cloze.DOCUMENT) for name in ("valid", "train"))
    assert mine[:3].tolist() == [3, its[82], cbt.OTHER]
    assert np.count_nonzero(mine == cbt.OTHER) == cbt.SENTENCES  # cried


def test_records_that_a_reader_cannot_learn_are_left_out_and_counted(tmp_path: Path) -> None:
    elsewhere = lines(0, "XXXXX left\tbear\t\tbear|fox")
    longer = lines(1, f"XXXXX {'very ' * 9}late\tcrow\t\tcrow|fox")
    text = write(tmp_path / "text", elsewhere, longer, lines(2))
    assert convert(text, tmp_path, most=(None, 10)) == cbt.Converted(1, 80, 3, 12, 1, 1)
    assert convert(text, tmp_path, most=(80, 11)).records == 2
    with pytest.raises(NoRecords, match="3 records, none of which can be used"):
        convert(text, tmp_path, most=(79, None))


@pytest.mark.parametrize(
    ("number", "line", "reason"),
    [
        (3, "4 out of order", r"line 3: begins with '4'; expected 3, a record's next line"),
        (2, "", r"line 2: begins with ''; expected 2"),
        (21, "21 XXXXX left", "line 21: 0 tabs; expected 3: query, tab, answer"),
        (21, "21 he left\tfox\t\tfox|crow", "line 21: the query has the word XXXXX 0 times; expected once"),
        (21, "21 XXXXX XXXXX\tfox\t\tfox|crow", "line 21: the query has the word XXXXX 2 times"),
        (21, "21 XXXXX left\t\t\tfox|crow", "line 21: the answer is ''; expected one word"),
        (21, "21 XXXXX left\tfox\t\twolf|crow", "line 21: the answer 'fox' is none of the candidates"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, number: int, line: str, reason: str) -> None:
    wrong = lines(0)
    wrong[number - 1] = line
    path = write(tmp_path / "text", wrong)
    with pytest.raises(BadLine, match=reason) as raised:
        convert(path, tmp_path / "records")
    assert str(raised.value).startswith(f"{path}: line ")
    assert not (tmp_path / "records").exists()


def test_a_text_that_ends_early_or_is_no_text_is_refused(tmp_path: Path) -> None:
    cut = write(tmp_path / "cut", lines(0), lines(1)[:5])
    with pytest.raises(BadLine, match="line 27: the text ends after line 5 of a record; expected 21"):
        list(records(cut))
    (tmp_path / "bytes").write_bytes(b"1 \xff\n")
    with pytest.raises(BadLine, match="line 1: is no UTF-8"):
        list(records(tmp_path / "bytes"))
    with pytest.raises(UnreadableFile):
        list(records(tmp_path / "none"))


def test_the_command_says_what_it_wrote_and_what_is_wrong(tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gpt2core.data.cbt", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    text, folder = write(tmp_path / "text", lines(0), lines(1, "XXXXX\tbear\t\tbear|fox")), tmp_path / "records"
    done = run(text, folder)
    assert (done.returncode, done.stderr) == (0, "")
    for said in ("1 record, documents of at most 80 words", f"data cloze:{folder}, seq 80", "Left out: 1 record whose"):
        assert said in done.stdout
    refused = run(tmp_path / "none", folder)
    assert (refused.returncode, refused.stderr) == (2, f"error: {tmp_path / 'none'}: No such file or directory\n")
    assert "--vocab 3: expected 4 to 65536" in run(text, folder, "--vocab", 3).stderr
