"""Whatever takes the hashes, they are the same."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.users.identifiers import HASH_LIBRARY, hash_lines, hash_lines_one_by_one

pytest.importorskip("stringzilla", "5.1")


def test_stringzilla_is_used_where_it_is_installed() -> None:
    assert HASH_LIBRARY.startswith("stringzilla 5.")


@pytest.mark.usefixtures("examples")
@given(st.lists(st.text(max_size=200) | st.integers(0, 300).map("x".__mul__), max_size=40))
def test_both_libraries_return_the_same_digests(texts: list[str]) -> None:
    lines = [text.replace("\n", "") for text in texts]
    joined = "".join(f"{line}\n" for line in lines)
    expected = b"".join(sha256(line.encode()).digest() for line in lines)

    assert hash_lines(joined) == hash_lines_one_by_one(joined) == expected


@pytest.mark.parametrize("hash_", [hash_lines, hash_lines_one_by_one])
def test_a_line_that_is_not_valid_unicode_has_no_digest(hash_: type) -> None:
    with pytest.raises(UnicodeEncodeError):
        hash_("a\n\ud800\n")
