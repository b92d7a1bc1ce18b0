"""Texts that stand for no value, in each format."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from svc_async import InvalidArgument
from svc_async.sources.detect import open_feed, open_source
from tests.support.errors import has
from tests.support.files import Write, read_rows

EMPTY = ["n/a", "NULL", "-"]


def write_parquet(path: Path) -> Path:
    columns = {"email": ["a@b.de", " N/A "], "phone_number": pa.array([["+1", "-"], None])}
    parquet.write_table(pa.table(columns), path)
    return path


async def test_users_have_no_value_there(write: Write, tmp_path: Path) -> None:
    table = open_source(write("email,handle\nn/a,NULL\n-,b\nN/A ,n/a,\n null\n"), empty=EMPTY)
    assert read_rows(table) == [("", ""), ("", "b"), (), ("", "")]
    objects = open_source(write('{"email":"null","svc_id":["1","-"],"handle":null}\n{"svc_id":5}'), empty=EMPTY)
    assert [tuple(filter(None, row)) for row in read_rows(objects)] == [(["1"],), (5,)]
    batches = open_source(write_parquet(tmp_path / "users"), empty=EMPTY)
    assert read_rows(batches) == [("a@b.de", ["+1"]), ("", None)]


def test_products_have_no_value_there(write: Write) -> None:
    (product,) = open_feed(write("id,brand,title\n1,N/A,T\n"), empty=EMPTY).products()
    assert product == {"id": "1", "brand": "", "title": "T"}
    xml = "<feed><entry><id>1</id><g:brand> null </g:brand><title>T</title></entry></feed>"
    assert list(open_feed(write(xml), empty=EMPTY).products()) == [{"id": "1", "brand": "", "title": "T"}]


@pytest.mark.parametrize("content", ["email\na@b.de\n", '{"email":"a@b.de"}\n'])
async def test_a_fingerprint_knows_what_is_empty(write: Write, content: str) -> None:
    path = write(content)
    plain = await open_source(path).fingerprint()
    assert await open_source(path, empty=["-", "NULL"]).fingerprint() != plain
    assert (
        await open_source(path, empty=["null", " - "]).fingerprint()
        == await open_source(path, empty=["-", "NULL"]).fingerprint()
    )


def test_one_text_is_not_a_list_of_its_letters(write: Write) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="empty")):
        open_source(write("email\n"), empty="n/a")
