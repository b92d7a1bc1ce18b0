"""The failures of a shard, packed into blocks."""

import pytest

from svc_async.batch.report import Failure
from svc_async.cluster.failures import FailureBlocks, read_block


def make_failures(count: int) -> list[Failure]:
    return [Failure(number, f"bad {number}", "NO", attribute="email", file="a.csv") for number in range(count)]


@pytest.mark.parametrize(
    ("count", "blocks"),
    [
        (0, 0),
        (1, 1),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((10_000, 1), (10_001, 2), (25_000, 3))),
    ],
)
def test_every_failure_is_in_a_block_of_ten_thousand(count: int, blocks: int) -> None:
    failures, packed = make_failures(count), FailureBlocks()
    for failure in failures:
        packed.add(failure)

    found = packed.pack()
    assert (packed.count, len(found)) == (count, blocks)
    assert [failure for block in found for failure in read_block(block)] == failures


@pytest.mark.parametrize("block", [b"", b"no block"])
def test_what_is_no_block_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says, the job is damaged
        list(read_block(block))
