"""The parts of a sync state that need no file: how rows are spread over pages, and which of them are sent when."""

import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from svc_async.sync.pages.page import count_pages, find_page
from svc_async.sync.pages.planned import Selection


@pytest.mark.parametrize(
    ("rows", "pages"),
    [(0, 1), (12_288, 1), (12_289, 2), (24_577, 4), (2_048 * 12_288 + 1, 4_096), (10**9, 4_096)],
)
def test_pages_double_with_the_rows_up_to_a_bound(rows: int, pages: int) -> None:
    assert count_pages(rows) == pages
    assert {find_page(number.to_bytes(16, "little"), pages) for number in range(pages + 1)} == {*range(pages)}


def test_rows_are_numbered_by_stage_then_by_position() -> None:
    rng, rows = random.Random(5), 10_000
    selection = Selection()
    selection.extend_to(rows)
    sent = rng.sample(range(rows), 6_000)
    selection.add(sent[:4_500], "now")
    selection.add(sent[4_500:], "later")
    numbered = [*sorted(sent[:4_500]), *sorted(sent[4_500:])]

    assert (selection.count("now"), selection.count("later")) == (4_500, 1_500)
    for number in (0, 1, 4_498, 4_499, 4_500, 4_501, 5_999, *rng.sample(range(6_000), 100)):
        assert selection.find_position(number) == numbered[number]
    outcomes = rng.randbytes(6_000)
    spread = selection.spread(outcomes)
    assert bytes(map(spread.__getitem__, numbered)) == outcomes
    assert sum(spread) == sum(outcomes)


@pytest.mark.parametrize(
    "rows", [1, 63, 64, 65, *(pytest.param(rows, marks=pytest.mark.long) for rows in (4_096, 20_000))]
)
@pytest.mark.parametrize("weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (98, 1, 1), (1, 1, 1), (0, 9, 1)])
def test_each_number_leads_to_the_position_that_a_plain_loop_finds(rows: int, weights: Sequence[int]) -> None:
    codes = random.Random(rows).choices(range(3), weights, k=rows)
    selection = Selection()
    selection.extend_to(rows)
    selection.add([position for position, code in enumerate(codes) if code == 1], "now")
    selection.add([position for position, code in enumerate(codes) if code == 2], "later")
    expected = [position for stage in (1, 2) for position, code in enumerate(codes) if code == stage]
    assert [selection.find_position(number) for number in range(len(expected))] == expected


class CountedCodes(bytearray):
    """Counts the bytes that are looked at."""

    looked_at = 0

    def count(self, code: Any, start: Any = 0, end: Any = sys.maxsize) -> int:
        self.looked_at += len(range(len(self))[start:end])
        return super().count(code, start, end)

    def index(self, code: Any, start: Any = 0, end: Any = sys.maxsize) -> int:
        found = super().index(code, start, end)
        self.looked_at += found + 1 - start
        return found

    def translate(self, *args: Any) -> bytearray:
        self.looked_at += len(self)
        return super().translate(*args)

    def __iter__(self) -> Iterator[int]:
        self.looked_at += len(self)
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.looked_at += len(found) if isinstance(key, slice) else 1
        return found


def test_a_row_is_found_by_a_look_at_few_others() -> None:
    rows, lookups = 50_000, 400
    codes = CountedCodes(random.Random(3).choices(range(3), (1, 5, 4), k=rows))
    selection = Selection(codes)
    for number in range(0, 100 * lookups, 100):
        selection.find_position(number)
    assert codes.looked_at < 2 * rows + 100 * lookups
