"""Damaged files of every format are read or refused: with a documented error that holds no value."""

import asyncio
import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from svc_async.errors import Hint, InvalidArgument, UnusableFile
from svc_async.sources.detect import list_columns, open_feed, open_source
from svc_async.users.encoding import MemberEncoder
from tests.support.files import Write, read_rows
from tests.support.properties import FEWER

SECRET = "zqsecretqz"


def write_parquet(**options: object) -> bytes:
    columns = {
        "email": [f"{SECRET}{number}@example.org" for number in range(20)],
        "phone": pa.array([[SECRET, "+4930123456"], None] * 10),
        "svc_id": list(range(20)),
    }
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer, row_group_size=8, **options)
    return buffer.getvalue()


CSV = f'sep=;\r\nE-Mail;Telefon\r\n{SECRET}@example.org;+4930123456\r\n"{SECRET}\n";x\r\n'
JSON_LINES = f'{{"email": "{SECRET}@example.org", "phone": ["+4930123456", null, 5]}}\n{{"email": {{"{SECRET}": 1}}}}\n'
FEED = (
    f'<?xml version="1.0"?><feed xmlns:g="u"><entry><g:id>{SECRET}</g:id><title>&#65;{SECRET}</title>'
    f'<link href="{SECRET}"/></entry></feed>'
)
FILES = {
    "csv": CSV.encode(),
    "csv in utf-16": CSV.encode("utf-16"),
    "json lines": JSON_LINES.encode(),
    "parquet": write_parquet(),
    "parquet of version 2": write_parquet(data_page_version="2.0", compression="gzip"),
    "parquet without dictionaries": write_parquet(use_dictionary=False, compression="none"),
    "feed": FEED.encode(),
    "gzip": gzip.compress(CSV.encode()),
    "bzip2": bz2.compress(JSON_LINES.encode()),
    "xz": lzma.compress(FEED.encode()),
    "zstandard": pa.compress(CSV.encode(), codec="zstd", asbytes=True),
}
PIECES = [
    b"",
    b'"',
    b"\n",
    b"\0",
    b"[" * 300,
    b"{",
    b"<",
    b"&#0;",
    b",",
    b"9" * 500,
    b"\xff\xff\xff\x7f",
    b"\xed\xa0\x80",
]
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES) | st.binary(max_size=6)), max_size=4
)


def edit(content: bytes, edits: Sequence[tuple[float, int, bytes]]) -> bytes:
    for place, width, piece in edits:
        at = int(place * len(content))
        content = content[:at] + piece + content[at + width :]
    return content


async def read_users(path: str) -> None:
    list_columns(path)
    with closing(open_source(path, mapping={"*": "-"})) as source:
        await source.check()
        await source.fingerprint()
        encoded = MemberEncoder(bad_identifiers="drop").for_rows(source.columns).encode(read_rows(source))
        assert SECRET not in "".join(encoded.invalid.values())
        for index in encoded.invalid:
            source.find_line(index)


async def read_products(path: str) -> None:
    with closing(open_feed(path)) as feed:
        await feed.check()
        for _ in feed.products():
            pass


@pytest.mark.parametrize("read", [read_users, pytest.param(read_products, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FILES)
@FEWER
@pytest.mark.usefixtures("examples")
@given(edits=EDITS)
def test_a_damaged_file_is_read_or_refused(
    write: Write,
    name: str,
    read: Callable[[str], Coroutine[None, None, None]],
    edits: Sequence[tuple[float, int, bytes]],
) -> None:
    path = write(edit(FILES[name], edits), "file")
    try:
        asyncio.run(read(str(path)))
    except (UnusableFile, InvalidArgument) as error:
        problem = error
    else:
        return
    assert problem.__suppress_context__ or problem.__context__ is None
    quotes_names = problem.hint in {Hint.MAP_OR_IGNORE, Hint.MAP_A_COLUMN}
    assert quotes_names or SECRET not in repr(problem)
