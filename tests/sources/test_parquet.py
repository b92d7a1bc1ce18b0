import base64
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.parquet import encryption

from svc_async import InvalidArgument, UnusableFile
from svc_async.errors import Hint
from svc_async.sources.blocks.files import SpooledInput
from svc_async.sources.detect import open_feed, open_source
from svc_async.sources.file_source import TableSource
from svc_async.sources.parquet import ParquetSource
from tests.support.errors import find_place, has
from tests.support.files import Write, iter_rows, limit_memory, read_rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "customers.parquet"


def write_table(path: Path, columns: dict[str, Any], **settings: Any) -> Path:
    parquet.write_table(pa.table(columns), path, **settings)
    return path


def test_columns_are_recognised_and_values_are_strings_integers_or_lists(path: Path) -> None:
    columns = {
        "E-Mail": pa.array(["a@b.c", None]).dictionary_encode(),
        "svc id": pa.array([12, None]),
        "phone": pa.array([["+1", "+2"], None]),
        "notes": [1.5, 2.5],
    }
    source: TableSource = ParquetSource(write_table(path, columns), mapping={"notes": "-"})

    assert source.columns == ("email", "svc_id", "phone_number")
    assert source.ignored == ("notes",)
    assert read_rows(source) == read_rows(source) == [("a@b.c", "12", ["+1", "+2"]), (None, None, None)]
    assert source.bytes_read == source.size == 2
    assert source.exhausted
    assert source.find_line(0) is None


def encrypt(path: Path, **keys: Any) -> Path:
    """Write two columns, of which some, or the metadata too, are encrypted as by pyarrow, Spark and others."""

    class Keys(encryption.KmsClient):  # type: ignore[misc]  # the library has no types
        def wrap_key(self, key: bytes, _master: str) -> bytes:
            return base64.b64encode(key)

    settings = encryption.EncryptionConfiguration(footer_key="footer", **keys)
    factory = encryption.CryptoFactory(lambda _: Keys())
    table = pa.table({"email": ["a@b.c", "d@e.f"], "phone": ["+4930123456", None]})
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    with parquet.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return path


def test_an_encrypted_column_is_refused_if_it_is_read(path: Path) -> None:
    encrypt(path, column_keys={"column": ["phone"]}, plaintext_footer=True)
    with pytest.raises(UnusableFile) as caught:
        ParquetSource(path)
    assert "encrypted" in caught.value.problem
    assert "'phone'" in caught.value.problem
    source = ParquetSource(path, mapping={"phone": "-"})
    assert read_rows(source) == [("a@b.c",), ("d@e.f",)]


def test_a_file_that_is_encrypted_as_a_whole_is_named_as_such(path: Path) -> None:
    encrypt(path, column_keys={"column": ["phone"]})
    for open_ in (ParquetSource, open_source, open_feed):
        with pytest.raises(UnusableFile) as caught:
            open_(path)
        assert "encrypted" in caught.value.problem


def test_positions_continue_over_row_groups(path: Path) -> None:
    emails = [f"user{number}@example.org" for number in range(30_000)]
    source = ParquetSource(write_table(path, {"email": emails}, row_group_size=7_000))

    assert [row[0] for row in read_rows(source)] == emails


def test_a_file_without_rows_has_none(path: Path) -> None:
    source = ParquetSource(write_table(path, {"email": pa.array([], pa.string())}))
    assert read_rows(source) == []
    assert source.size == 1


def test_a_stream_can_be_parquet(path: Path) -> None:
    with write_table(path, {"email": ["a@b.c"]}).open("rb") as stream:
        spooled = SpooledInput(stream)

    source = ParquetSource(spooled)
    assert read_rows(source) == [("a@b.c",)]
    source.close()


@pytest.mark.parametrize(
    ("columns", "named", "hint"),
    [
        pytest.param({"email": [1.5]}, "'email'", None, id="float"),
        pytest.param({"email": [b"a"]}, "'email'", None, id="bytes"),
        pytest.param({"email": [{"a": "b"}]}, "'email'", None, id="struct"),
        pytest.param({"email": pa.array([[["a@b.c"]]])}, "'email'", None, id="lists of lists"),
        pytest.param({"email": ["a"], "name": ["b"]}, "'name'", Hint.MAP_OR_IGNORE, id="unknown"),
        pytest.param({"name": ["b"]}, "", Hint.MAP_A_COLUMN, id="none known"),
    ],
)
def test_an_unusable_column_is_named(path: Path, columns: dict[str, Any], named: str, hint: Hint | None) -> None:
    with pytest.raises(UnusableFile, check=has(hint=hint)) as caught:
        ParquetSource(write_table(path, columns))
    assert named in str(caught.value)


@pytest.fixture
def damaged(path: Path) -> Path:
    emails = [f"user{number}@example.org" for number in range(50_000)]
    write_table(path, {"email": emails}, row_group_size=10_000, use_dictionary=False)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20_000] = b"\xff" * 20_000
    path.write_bytes(bytes(content))
    return path


async def test_a_damaged_file_is_found_before_anything_is_sent(damaged: Path) -> None:
    with pytest.raises(UnusableFile) as caught:
        await ParquetSource(damaged).check()
    assert "example" not in str(caught.value)


@pytest.mark.parametrize("cut", [4, 100, -4])
def test_a_truncated_file_is_refused(path: Path, cut: int) -> None:
    content = write_table(path, {"email": ["a@b.c"]}).read_bytes()
    path.write_bytes(content[:cut])
    with pytest.raises(UnusableFile):
        ParquetSource(path)


async def test_a_fingerprint_is_of_the_content_and_its_meaning(path: Path) -> None:
    write_table(path, {"email": ["a@b.c"], "phone": ["1"]})
    plain, mapped = ParquetSource(path), ParquetSource(path, mapping={"phone": "-"})

    assert await plain.fingerprint() == await ParquetSource(path).fingerprint() != await mapped.fingerprint()


def test_the_extra_is_named_if_it_is_missing(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("svc_async.sources.blocks.arrow.import_module", missing)
    with pytest.raises(InvalidArgument, match="svc-async\\[feeds\\]"):
        ParquetSource(write(b"PAR1"))


@pytest.mark.long("a file that is large beside the memory")
def test_a_row_group_of_any_size_is_read_in_parts(path: Path) -> None:
    emails = [f"user{number}@example.org" for number in range(400_000)]
    source = ParquetSource(
        write_table(path, {"email": emails}, row_group_size=len(emails), use_dictionary=False, compression="none")
    )
    before = pa.total_allocated_bytes()

    with limit_memory(4):
        most = max(pa.total_allocated_bytes() for _ in iter_rows(source)) - before

    assert most < path.stat().st_size / 4


TEXTS = pa.array([b"a@b.c", None, b"\xff\xfesecret", b"x"], pa.binary()).view(pa.string())
INVALID_TEXTS: Mapping[str, tuple[Any, Collection[int]]] = {
    "text": (TEXTS, {3}),
    "large text": (TEXTS.cast(pa.large_binary()).view(pa.large_string()), {3}),
    "dictionary": (pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 2]), TEXTS.drop_null()), {0, 3}),
    "list": (pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 4]), TEXTS), {3}),
}
"""Arrays, and the row with the invalid text; from Arrow 20 on, a dictionary is refused as a whole, after row 0."""


@pytest.mark.parametrize("kind", INVALID_TEXTS)
async def test_text_that_is_not_utf_8_is_refused_with_its_row(path: Path, kind: str) -> None:
    texts, rows = INVALID_TEXTS[kind]
    source = ParquetSource(write_table(path, {"email": texts}))
    with pytest.raises(UnusableFile, check=lambda error: find_place(error, "row") in rows) as caught:
        await source.check()

    assert caught.value.__cause__ is None
    assert not isinstance(caught.value.__context__, UnicodeError)  # it holds the text
    assert "secret" not in repr(caught.value)


def test_a_name_that_is_not_utf_8_is_damage(path: Path) -> None:
    write_table(path, {"email": ["a@b.c"], "zzzzzz": ["x"]})
    path.write_bytes(path.read_bytes().replace(b"zzzzzz", b"\xff\xfe\xfdzzz"))
    with pytest.raises(UnusableFile) as caught:
        ParquetSource(path)
    assert "zzz" not in caught.value.problem
