import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.streams.line_splitter import LineSplitter, Overlong

LONG = 50


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted(place % (len(data) + 1) for place in cuts)
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def lines_of(chunks: list[bytes], longest: int = LONG) -> tuple[list[bytes | Overlong], int]:
    splitter = LineSplitter(longest)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines, splitter.finish()


DATA = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"{}", "é€😀".encode(), b"x" * 30])).map(b"".join)


@given(DATA, st.lists(st.integers(min_value=0)))
def test_any_chunking_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    assert lines_of(cut(data, cuts)) == lines_of([data])


@given(DATA)
def test_lines_are_what_stands_between_line_feeds(data: bytes) -> None:
    *whole, tail = data.split(b"\n")
    expected = [Overlong(len(piece)) if len(piece) > LONG else piece.removesuffix(b"\r") for piece in whole]
    assert lines_of([data]) == (expected, len(tail))


@pytest.mark.parametrize(("size", "chunk"), [(500_000, 1), (5_000_000, 1_000), (5_000_000, 5_000_000)])
def test_a_large_line_costs_its_length_however_it_comes(size: int, chunk: int) -> None:
    text = "é" * (size // 2)
    data = text.encode()
    splitter = LineSplitter(8 * 2**20)
    for place in range(0, size, chunk):  # copying the line for every chunk would take longer than a test may
        assert not splitter.feed(data[place : place + chunk])
    assert splitter.feed(b"\r") == []
    (line,) = splitter.feed(b"\n")
    assert isinstance(line, bytes)
    assert line.decode() == text


def test_a_line_that_is_too_long_is_let_go_of_and_the_next_one_is_read() -> None:
    splitter = LineSplitter(4)
    assert splitter.feed(b"1234") == []
    assert splitter.feed(b"5" * 1000) == []
    assert len(splitter._rest) == 0
    assert splitter.feed(b"67\nok\n") == [Overlong(1006), b"ok"]


def test_the_longest_line_is_kept() -> None:
    assert LineSplitter(4).feed(b"1234\n12345\n") == [b"1234", Overlong(5)]


def test_what_the_end_cuts_off_is_dropped_and_its_size_known() -> None:
    splitter = LineSplitter(LONG)
    assert splitter.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert splitter.finish() == 4
    assert splitter.feed(b"new\n") == [b"new"]


def test_only_a_carriage_return_before_the_line_feed_belongs_to_the_end() -> None:
    assert LineSplitter(LONG).feed(b"a\rb\r\r\n\r\n") == [b"a\rb\r", b""]
