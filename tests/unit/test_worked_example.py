"""The worked example of the methodology shows what today's analysis finds in the stored samples."""

from __future__ import annotations

import gzip
import json

from bench.worked_example import PAGE, PICTURE, SOURCE, picture, render


def test_the_page_and_its_picture_are_made_from_the_samples() -> None:
    document = json.loads(gzip.decompress(SOURCE.read_bytes()))
    assert render(PAGE.read_text(), document) == PAGE.read_text()
    assert picture(document) == PICTURE.read_text()
