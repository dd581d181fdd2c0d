import pytest

from taskloom.server import paging
from taskloom.server.errors import BadCursor, PageTooLarge


@pytest.mark.parametrize("last", [1, 10**17, "worker-é"])
def test_a_cursor_comes_back(last):
    assert paging.decode(paging.encode(last)) == str(last)


def test_no_cursor_is_the_first_page():
    assert paging.decode_id(None) is None


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "YWZ0ZXI6", paging.encode("abc"), paging.encode(2**31), "é", "²"])
def test_what_was_not_given_out_is_refused(cursor):
    with pytest.raises(BadCursor):
        paging.decode_id(cursor)


def test_pages_have_a_limit():
    paging.check_limit(5, 5)
    with pytest.raises(PageTooLarge):
        paging.check_limit(6, 5)
