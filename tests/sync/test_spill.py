"""The rows of a snapshot are found again by the page that they belong to."""

from hashlib import sha256
from pathlib import Path

import pytest

from svc_async.sync.entries import Entries
from svc_async.sync.pages.compare import RECORD_SIZE
from svc_async.sync.pages.page import find_page
from svc_async.sync.pages.spill import Spill


@pytest.mark.parametrize(("rows", "pages"), [(0, 1), (0, 8), (0, 256), (5_000_000, 64), (5_000_000, 512)])
def test_a_page_has_its_rows(tmp_path: Path, rows: int, pages: int) -> None:
    keys = [sha256(str(number).encode()).digest()[:16] for number in range(2_000)]
    with Spill(tmp_path, rows=rows) as spill:
        for first in range(0, 2_000, 500):
            part = keys[first : first + 500]
            ids = b"".join(key + bytes(8) for key in part)
            spill.add(Entries(positions=range(first, first + 500), ids=ids, kinds=bytes([2]) * 500, rests=bytes(8_000)))
        spill.flush()
        found = [spill.read(index, pages) for index in range(pages)]

    expected: list[list[bytes]] = [[] for _ in range(pages)]
    for key in sorted(keys):
        expected[find_page(key, pages)].append(key)
    for records, there in zip(found, expected, strict=True):
        assert sorted(records[start : start + 16] for start in range(0, len(records), RECORD_SIZE)) == there
