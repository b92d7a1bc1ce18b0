"""The fragments of a Parquet file hold what the reader of whole files reads."""

import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from svc_async.cluster import planning
from svc_async.cluster.files import StoredFile
from svc_async.cluster.fragments import open_fragment
from svc_async.cluster.plan import SourcePlan
from svc_async.cluster.planning import plan_source
from svc_async.errors import UnusableFile
from svc_async.sources.detect import open_source
from tests.support.errors import at
from tests.support.files import read_rows
from tests.support.object_store import Bucket
from tests.support.plans import describe

MAPPING = {"unused": "-"}


def write_table(columns: Mapping[str, Any], **options: Any) -> bytes:
    file = BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def make_table(rows: int, **options: Any) -> bytes:
    columns = {
        "email": [f"user{number}@example.com" for number in range(rows)],
        "unused": [random.randbytes(100).hex() for number in range(rows)],
        "handle": [["a", "b"] if number % 3 else [] for number in range(rows)],
    }
    return write_table(columns, **options)


def read_fragments(plan: SourcePlan) -> Iterator[tuple[Any, ...]]:
    for fragment in plan.fragments:
        with open_fragment(fragment, plan.job) as source:
            yield from read_rows(source)


def read_whole(path: Path) -> list[tuple[Any, ...]]:
    with closing(open_source(path, mapping=MAPPING)) as source:
        return read_rows(source)


@pytest.mark.parametrize("examples", [5, pytest.param(100, marks=pytest.mark.long)])
def test_fragments_of_row_groups_are_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    @hypothesis_settings(max_examples=examples)
    @given(st.integers(0, 60), st.integers(1, 25), st.integers(1, 12))
    def check(rows: int, group_size: int, fragment_rows: int) -> None:
        path = tmp_path / "customers.parquet"
        path.write_bytes(make_table(rows, row_group_size=group_size))
        monkeypatch.setattr(planning, "FRAGMENT_ROWS", fragment_rows)
        plan = plan_source(describe(path, mapping=MAPPING))
        assert all((each.end or 0) - each.start <= fragment_rows for each in plan.fragments)
        assert list(read_fragments(plan)) == read_whole(path)
        ends = [each.before + (each.end or 0) - each.start for each in plan.fragments]
        assert [each.before for each in plan.fragments] == [0, *ends][: len(ends)]

    check()


@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_only_the_columns_of_a_row_group_are_fetched(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    content = make_table(20_000, row_group_size=5_000, compression=compression, use_dictionary=["handle"])
    path = tmp_path / "customers.parquet"
    path.write_bytes(content)
    plan = plan_source(describe(bucket.write("customers.parquet", content), mapping=MAPPING))
    read, sizes = StoredFile.read, list[int]()

    def count(file: StoredFile, start: int, end: int) -> bytes:
        sizes.append(end - start)
        return read(file, start, end)

    monkeypatch.setattr(StoredFile, "read", count)
    assert len(plan.fragments) == 4
    assert list(read_fragments(plan)) == read_whole(path)
    assert 4 * 65_536 < sum(sizes) < 4 * 65_536 + len(content) / 4


def test_damage_is_named_by_the_row_of_the_file(bucket: Bucket) -> None:
    content = bytearray(make_table(2_000, row_group_size=1_000, compression="none", use_dictionary=False))
    offset = content.index(b"user1500@")
    content[offset] = 0xFF
    plan = plan_source(describe(bucket.write("customers.parquet", bytes(content)), mapping=MAPPING))
    with open_fragment(plan.fragments[0], plan.job) as source:
        assert len(read_rows(source)) == 1_000
    with (
        pytest.raises(UnusableFile, match="'email'", check=at(row=1501)),
        open_fragment(plan.fragments[1], plan.job) as source,
    ):
        read_rows(source)
