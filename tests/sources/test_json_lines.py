import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async import InvalidArgument, Session, UnusableFile
from svc_async.errors import Hint
from svc_async.sandbox import Sandbox
from svc_async.sources.json_lines import JsonLinesSource
from tests.support.errors import Check, at, has
from tests.support.files import Write, count_rows, limit_memory, read_rows


def read_objects(source: JsonLinesSource) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in zip(source.columns, row, strict=True) if value is not None}
        for row in read_rows(source)
    ]


def test_each_line_is_a_row_and_may_lack_names(write: Write) -> None:
    source = JsonLinesSource(write('{"E-Mail": "a@b.c"}\n{"phone": ["+1", "+2"], "email": null}\n{"svc_id": 7}'))
    assert read_objects(source) == [{"email": "a@b.c"}, {"phone_number": ["+1", "+2"]}, {"svc_id": 7}]
    assert read_objects(source) == read_objects(source)
    assert source.exhausted
    assert source.bytes_read == source.size


@pytest.mark.parametrize(
    ("content", "is_read"),
    [
        pytest.param('{"email":\r"a"}\n{"email":"b"}\r\n\r{"email":"c"}', True, id="within an object"),
        pytest.param('{"email":"a"}\r{"email":"b"}\n', False, id="between two objects"),
    ],
)
def test_a_carriage_return_by_itself_ends_no_line_wherever_a_block_ends(
    write: Write, content: str, *, is_read: bool
) -> None:
    path = write(content)
    for size in range(4, len(content) + 2):
        if is_read:
            source = JsonLinesSource(path, block_size=size)
            assert read_objects(source) == [{"email": each} for each in "abc"]
            assert [source.find_line(position) for position in range(3)] == [1, 2, 3]
        else:
            with pytest.raises(UnusableFile, check=at(line=1)):
                JsonLinesSource(path, block_size=size)


def test_blank_lines_are_skipped_and_counted(write: Write) -> None:
    source = JsonLinesSource(write('\n{"email":"a"}\r\n  \n\n{"email":"b"}\n\n'))
    assert read_objects(source) == [{"email": "a"}, {"email": "b"}]
    assert [source.find_line(position) for position in range(2)] == [2, 5]


def test_names_are_mapped_and_ignored_wherever_they_first_occur(write: Write) -> None:
    path = write('{"Mail":"a"}\n' + '{"email":"x"}\n' * 9_000 + '{"Phone":"1","note":"n"}\n')
    source = JsonLinesSource(path, mapping={"mail": "-", "note": "-"})
    rows = read_objects(source)

    assert rows[0] == {}
    assert rows[-1] == {"phone_number": "1"}
    assert source.ignored == ("Mail", "note")


async def test_values_of_other_types_fail_alone(write: Write) -> None:
    path = write('{"email":"a@example.org"}\n{"email":{"x":1}}\n{"email":1.5}\n{"email":true}\n{}\n')

    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        report = await users.upload(JsonLinesSource(path).rows())

    assert report.accepted == 1
    assert [failure.position for failure in report.failures] == [1, 2, 3, 4]


BROKEN = [
    pytest.param('{"email":"ann"}\n{"email":"bob"\n', None, at(line=2), id="cut short"),
    pytest.param('{"email":"ann"}\n"bob"\n', None, at(line=2), id="text"),
    pytest.param('[{"email":"ann"},\n{"email":"bob"}]\n', None, at(line=1), id="array"),
    pytest.param('{"email":"ann"}\n{"email":\n"bob"}\n', None, at(line=2), id="over two lines"),
    pytest.param('\n{"email":"ann"} {"email":"bob"}\n', None, at(line=2), id="two on a line"),
    pytest.param('{"email":"ann"}\n{"email":"\\ud800"}\n', None, at(line=2), id="half a letter"),
    pytest.param('{"email":' + "[" * 9_999 + "]" * 9_999 + "}", None, at(line=1), id="deep"),
    pytest.param('{"email":"ann"}\n{"name":"bob"}\n', None, at(line=2), id="unknown"),
    pytest.param('{"bob@example.org":1}\n', None, at(line=1), id="data as names"),
    pytest.param('{"email":"ann"}\n', {"email": "mail"}, has(parameter="map"), id="mapping"),
    pytest.param('{"note":"ann"}\n', None, has(hint=Hint.MAP_A_COLUMN), id="nothing known"),
    pytest.param(b'{"email":"ann"}\n{"email":"b\xfcb"}', None, at(line=2), id="latin-1"),
    pytest.param(b'{"email":"ann"}\n\0', None, at(line=2), id="nul"),
    pytest.param("", None, at(line=None), id="empty"),
]


@pytest.mark.parametrize(("content", "mapping", "check"), BROKEN)
async def test_an_error_names_its_line_and_no_value(
    write: Write, content: str | bytes, mapping: Mapping[str, str] | None, check: Check
) -> None:
    path = write(content)
    with pytest.raises(InvalidArgument if mapping else UnusableFile, check=check) as caught:
        await JsonLinesSource(path, mapping=mapping).check()

    assert "ann" not in str(caught.value)
    assert "bob" not in str(caught.value)


VALUES = st.one_of(st.none(), st.text(max_size=5), st.integers(), st.lists(st.text(max_size=3), max_size=2))


@pytest.mark.usefixtures("examples")
@given(rows=st.lists(st.dictionaries(st.sampled_from(["email", "phone_number", "handle"]), VALUES), max_size=12))
def test_written_objects_are_read_back_with_their_lines(write: Write, rows: list[dict[str, Any]]) -> None:
    path = write("\n".join(["{}", *map(json.dumps, rows)]))
    expected = [{name: value for name, value in row.items() if value is not None} for row in rows]
    if any(not -(2**63) <= each < 2**64 for row in rows for each in row.values() if isinstance(each, int)):
        return
    try:
        source = JsonLinesSource(path, mapping={"handle": "handle"}, block_size=40)
    except InvalidArgument as error:
        assert error.parameter == "map"
        return

    assert read_objects(source)[1:] == expected
    assert [source.find_line(position) for position in range(len(rows) + 1)] == list(range(1, len(rows) + 2))


@pytest.mark.long("a file that is large beside the memory")
def test_memory_use_is_constant(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"

    with path.open("w") as file:
        for number in range(60_000):
            file.write(f'{{"email":"user{number}@example.org"}}\n')

    source = JsonLinesSource(path)
    rows = source.rows().rows

    with limit_memory(2):
        assert count_rows(rows) == 60_000
