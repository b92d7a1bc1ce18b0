import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.streams.lines import LineSplitter, OverlongLine
from tests.support.files import limit_memory

LONG = 50


def cut_into_chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted(place % (len(data) + 1) for place in cuts)
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def split_lines(chunks: list[bytes], longest: int = LONG) -> tuple[list[bytes | OverlongLine], int]:
    splitter = LineSplitter(longest)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines, splitter.finish()


DATA = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"{}", "é€😀".encode(), b"x" * 30])).map(b"".join)


@pytest.mark.usefixtures("examples")
@given(DATA, st.lists(st.integers(min_value=0)))
def test_any_chunking_produces_the_same_lines(data: bytes, cuts: list[int]) -> None:
    assert split_lines(cut_into_chunks(data, cuts)) == split_lines([data])


@pytest.mark.usefixtures("examples")
@given(DATA)
def test_lines_are_what_is_between_line_feeds(data: bytes) -> None:
    *whole, tail = data.split(b"\n")
    expected = [OverlongLine(len(piece)) if len(piece) > LONG else piece.removesuffix(b"\r") for piece in whole]

    assert split_lines([data]) == (expected, len(tail))


@pytest.mark.parametrize(
    ("size", "chunk"),
    [
        pytest.param(500_000, 1, marks=pytest.mark.long),
        (5_000_000, 10_000),
        (5_000_000, 5_000_000),
    ],
)
def test_a_large_line_costs_linear_time_in_any_chunks(size: int, chunk: int) -> None:
    text = "é" * (size // 2)
    data = text.encode()
    splitter = LineSplitter(8 * 2**20)
    for place in range(0, size, chunk):  # copying the line for every chunk would take longer than a test may
        assert not splitter.feed(data[place : place + chunk])
    assert splitter.feed(b"\r") == []
    (line,) = splitter.feed(b"\n")
    assert isinstance(line, bytes)
    assert line.decode() == text


def test_an_overlong_line_is_discarded_and_the_next_one_is_read() -> None:
    splitter = LineSplitter(4)
    assert splitter.feed(b"1234") == []

    with limit_memory(megabytes=1):
        for _ in range(1_000):
            assert splitter.feed(b"5" * 10_000) == []

    assert splitter.feed(b"67\nok\n") == [OverlongLine(10_000_006), b"ok"]


def test_the_longest_line_is_kept() -> None:
    assert LineSplitter(4).feed(b"1234\n12345\n") == [b"1234", OverlongLine(5)]


def test_an_incomplete_last_line_is_discarded_and_its_size_returned() -> None:
    splitter = LineSplitter(LONG)
    assert splitter.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert splitter.finish() == 4
    assert splitter.feed(b"new\n") == [b"new"]


def test_only_a_carriage_return_before_the_line_feed_belongs_to_the_end() -> None:
    assert LineSplitter(LONG).feed(b"a\rb\r\r\n\r\n") == [b"a\rb\r", b""]
