"""The parts of a sync state that need no file: how rows are spread over pages, and which of them are sent when."""

import random

import pytest

from svc_async.batch.sync.pages.page import count_pages, find_page
from svc_async.batch.sync.pages.selection import Selection


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
