import csv
import io
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from svc_async import InvalidArgument, UnusableFile
from svc_async.errors import Hint
from svc_async.sources.csv_source import CsvSource
from svc_async.sources.detect import list_columns
from svc_async.sources.file_source import count_lines
from tests.support.errors import at, find_place, has
from tests.support.files import Write, read_rows


def test_rows_are_in_the_order_of_the_header(write: Write) -> None:
    source = CsvSource(write("phone_number,email\n+4930,a@b.c\n,d@e.f\n"))
    assert source.columns == ("phone_number", "email")
    assert source.rows().columns == ("phone_number", "email")
    assert read_rows(source) == [("+4930", "a@b.c"), ("", "d@e.f")]


def test_rows_can_be_read_again(write: Write) -> None:
    source = CsvSource(write("email\na@b.c\n"))
    assert read_rows(source) == read_rows(source) == [("a@b.c",)]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("email", "email"),
        (" E-Mail ", "email"),
        ("E-mail address", "email"),
        ("Phone", "phone_number"),
        ("PHONE NUMBER", "phone_number"),
        ("Handle", "handle"),
        ("svc-id", "svc_id"),
        ("Device ID", "device_id"),
        ("partner_user_id", "partner_user_id"),
    ],
)
def test_common_names_are_recognised_in_any_case(write: Write, name: str, key: str) -> None:
    assert CsvSource(write(f"{name}\nx\n")).columns == (key,)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected_from_the_header(write: Write, delimiter: str) -> None:
    content = delimiter.join(["email", "phone"]) + "\n" + delimiter.join(["a@b.c", '"+1,2;3|4\t5"']) + "\n"
    assert read_rows(CsvSource(write(content))) == [("a@b.c", "+1,2;3|4\t5")]


def test_a_mapping_names_and_ignores_columns(write: Write) -> None:
    path = write("Kundenmail,Notes,Phone\na@b.c,secret,+1\n")
    source = CsvSource(path, mapping={"kundenmail": "email", "notes": "-"})

    assert source.columns == ("email", "phone_number")
    assert source.ignored == ("Notes",)
    assert read_rows(source) == [("a@b.c", "+1")]


def test_a_star_ignores_all_unrecognised_columns(write: Write) -> None:
    source = CsvSource(write("id,email,,name\n1,a@b.c,x,y\n"), mapping={"*": "-"})
    assert source.ignored == ("id", "", "name")
    assert read_rows(source) == [("a@b.c",)]


def test_a_mapping_takes_precedence_over_a_common_name(write: Write) -> None:
    assert CsvSource(write("email,phone\na,b\n"), mapping={"email": "-"}).columns == ("phone_number",)


def test_a_byte_order_mark_is_not_part_of_the_header(write: Write) -> None:
    assert read_rows(CsvSource(write(b"\xef\xbb\xbfemail\r\na@b.c\r\n"))) == [("a@b.c",)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_is_accepted_and_none_at_the_end(write: Write, end: str) -> None:
    assert read_rows(CsvSource(write(end.join(["email,phone", "a,1", "b,2"])))) == [("a", "1"), ("b", "2")]


def test_missing_cells_are_absent(write: Write) -> None:
    assert read_rows(CsvSource(write("email,phone,handle\na\nb,2\nc,3,x\n"))) == [
        ("a", "", ""),
        ("b", "2", ""),
        ("c", "3", "x"),
    ]


def test_a_row_with_more_cells_than_the_header_fails_alone(write: Write) -> None:
    source = CsvSource(write("email,notes\na,1\nb,2,3\nc,4\n"), mapping={"notes": "-"})
    assert read_rows(source) == [("a",), (), ("c",)]


def test_blank_lines_are_skipped(write: Write) -> None:
    assert read_rows(CsvSource(write("email,phone\n\na,1\n\n\nb,2\n\n"))) == [("a", "1"), ("b", "2")]


def test_a_file_of_a_header_only_has_no_rows(write: Write) -> None:
    assert read_rows(CsvSource(write("email"))) == []


def test_a_block_may_end_anywhere(write: Write) -> None:
    content = '\ufeffemail,handle\r\n"ü@b.c",x\r\n"two\r\nlines",y\r\n\r\n"a ""q""",€\r\n'
    path = write(content)
    expected = read_rows(CsvSource(path))
    assert expected == [("ü@b.c", "x"), ("two\r\nlines", "y"), ('a "q"', "€")]

    for size in range(3, len(content.encode())):
        source = CsvSource(path, block_size=size)
        assert read_rows(source) == expected
        assert [source.find_line(position) for position in range(3)] == [2, 3, 6]


PIECES = ("a", "bc", "ü", "", ",", ",", "\n", "\n", "\r\n", "\r", '"', '"d,\ne"')


@pytest.mark.usefixtures("examples")
@example(2, "aaaa,bbbbbb\na\nb\nc,d\n", 12)
@given(st.integers(1, 3), st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.integers(3, 30))
def test_blocks_that_are_split_have_the_rows_of_the_parser(write: Write, width: int, text: str, size: int) -> None:
    content = ",".join(["email", "phone", "handle"][:width]) + "\n" + text
    try:
        parsed = list(csv.reader(io.StringIO(content, newline=""), strict=True))[1:]
    except csv.Error:
        parsed = None
    source = CsvSource(write(content), block_size=size)
    if parsed is None:
        with pytest.raises(UnusableFile):
            read_rows(source)
        return
    expected = [(*row, *[""] * (width - len(row))) if len(row) <= width else () for row in parsed if row]
    assert read_rows(source) == expected

    starts = itertools.accumulate(map(count_lines, parsed), initial=2)
    lines = [line for line, row in zip(starts, parsed, strict=False) if row]
    assert [source.find_line(position) for position in range(len(lines))] == lines


def test_progress_is_reported_in_bytes(write: Write) -> None:
    content = "email\n" + "someone@example.com\n" * 20_000
    source = CsvSource(write(content))
    rows = source.rows().rows
    assert isinstance(rows, Iterable)
    assert source.bytes_read < source.size == len(content)
    seen = [source.bytes_read for _ in rows]
    assert seen == sorted(seen)
    assert len(set(seen)) > 4
    assert source.bytes_read == source.size
    assert source.exhausted


def test_a_source_is_not_exhausted_before_its_last_row(write: Write) -> None:
    source = CsvSource(write("email\na\nb\n"))
    rows = source.rows().rows
    assert isinstance(rows, Iterable)
    walk = iter(rows)
    assert next(walk) == ("a",)
    assert not source.exhausted
    assert list(walk) == [("b",)]
    assert source.exhausted


def test_lines_are_found_across_blank_lines_and_cells_of_several_lines(write: Write) -> None:
    path = write('email,phone\na,1\n\nb,"2\n2"\nc,3\n"d\r\nd\rd",4\ne,5')
    source = CsvSource(path)
    read_rows(source)

    assert [source.find_line(position) for position in range(5)] == [2, 4, 6, 7, 10]


def test_a_header_of_several_lines_shifts_the_rows(write: Write) -> None:
    source = CsvSource(write('email,"pho\nne"\na,1\n'), mapping={"pho ne": "phone_number"})
    read_rows(source)

    assert source.find_line(0) == 3


CELLS = st.text(st.sampled_from('ab ,;"\n\r'), max_size=6)


@pytest.mark.usefixtures("examples")
@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=12), blanks=st.lists(st.booleans(), max_size=12))
def test_a_written_file_is_read_back_with_its_lines(
    write: Write, rows: list[tuple[str, str]], blanks: list[bool]
) -> None:
    path = write("")
    lines: list[int] = []

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["email", "handle"])
        line = 2
        for row, blank in itertools.zip_longest(rows, blanks[: len(rows)]):
            if blank:
                file.write("\n")
                line += 1
            lines.append(line)
            writer.writerow(row)
            line += 1 + sum(len(re.findall(r"\r\n|\r|\n", cell)) for cell in row)

    source = CsvSource(path, slice_size=3)

    assert read_rows(source) == rows
    assert [source.find_line(position) for position in range(len(rows))] == lines


def refuse(path: Path, mapping: Mapping[str, str] | None = None) -> UnusableFile:
    """Return the error with which a file is refused."""
    with pytest.raises(UnusableFile, check=has(parameter="file", path=str(path))) as caught:
        CsvSource(path, mapping=mapping)
    return caught.value


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere.csv")


def test_a_folder(tmp_path: Path) -> None:
    refuse(tmp_path)


def test_a_device_that_cannot_be_read_twice() -> None:
    assert "regular file" in refuse(Path("/dev/null")).problem  # it is empty, too


def test_a_file_that_may_not_be_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("email\n")

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)

    refuse(path)


def test_an_empty_file(write: Write) -> None:
    refuse(write(""))


@pytest.mark.parametrize("content", ["\n", " \r\nemail\n", ",,,\n", b"\xef\xbb\xbf\n"])
def test_a_blank_first_line(write: Write, content: str | bytes) -> None:
    error = refuse(write(content))
    assert (find_place(error, "line"), error.hint) == (1, None)


@pytest.mark.parametrize("first", ["ann@example.com,x", f"{'a1' * 32}", "Ann,+49 170 1234567", "email,ann@example.com"])
def test_a_first_line_of_data_is_not_a_header_and_is_not_quoted(write: Write, first: str) -> None:
    path = write(f"{first}\n")

    error = refuse(path)

    assert error.hint is Hint.NAME_THE_COLUMNS
    # The name of a folder may hold any number.
    assert not any(part in str(error).removeprefix(f"file {path} ") for part in ("ann@", "Ann", "170", "a1a1"))


def test_a_file_without_a_recognised_column_is_refused_without_quoting_it(write: Write) -> None:
    error = refuse(write("Ann,Smith\nBob,Jones\n"))
    assert error.hint is Hint.MAP_A_COLUMN
    assert "Ann" not in str(error)


def test_unknown_columns_are_listed_with_what_to_do(write: Write) -> None:
    error = refuse(write("email,First name,,Notes\na@b.c,,x\n"))
    assert error.hint is Hint.MAP_OR_IGNORE
    assert "'First name', '(column 3, without a name)', 'Notes'" in str(error)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        pytest.param("email,phone,,\na,1,,\nb,,\n", [("a", "1"), ("b", "")], id="at the end"),
        pytest.param(',email, ,"",phone\n,a, ,"",1\n\n,b\n', [("a", "1"), ("b", "")], id="between"),
        pytest.param("email,\n" + "a,\n" * 9_000, [("a",)] * 9_000, id="many rows"),
        pytest.param("email,\na,,\n", [()], id="a row that is too long"),
        pytest.param("email,\n", [], id="no rows"),
    ],
)
def test_columns_without_a_name_and_without_values_are_left_out(
    write: Write, content: str, rows: list[tuple[str, ...]]
) -> None:
    source = CsvSource(write(content))
    assert read_rows(source) == read_rows(source) == rows
    assert source.bytes_read == source.size


@pytest.mark.parametrize(
    "content", ["email,\na,\nb,x\n", ",email\n0,a\n", "email,,,\na,x\n", "email,\n" + "a,\n" * 9_000 + "a,x"]
)
def test_a_column_without_a_name_that_has_values_is_unknown(write: Write, content: str) -> None:
    path = write(content)
    assert refuse(path).hint is Hint.MAP_OR_IGNORE
    assert read_rows(CsvSource(path, mapping={"*": "-"}))[-1] == ("b" if "b" in content else "a",)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
async def test_blanks_around_a_quoted_cell_are_left_out_wherever_a_block_ends(write: Write, delimiter: str) -> None:
    lines = ['"email" , "handle"  ', '"a@b.c" ,x', ' "b@b.c","y" ', 'c@b.c ,  "z, ""z"""  ,,', '"d@b.c"  ']
    content = "\n".join(line.replace(",", delimiter) for line in lines)
    path = write(content.replace(delimiter * 2, ""))
    expected = [("a@b.c", "x"), ("b@b.c", "y"), ("c@b.c", f'z{delimiter} "z"'), ("d@b.c", "")]
    for size in range(4, len(content) + 2):
        source = CsvSource(path, block_size=size)
        await source.check()
        assert [tuple(map(str.strip, row)) for row in read_rows(source)] == expected
        assert [source.find_line(position) for position in range(4)] == [2, 3, 4, 5]


BLANKS = st.sampled_from(["", " ", "  "])


@pytest.mark.usefixtures("examples")
@example([(" ,x", "", " "), ('a"', "", " ")], 9)
@example([("", " ", " "), ('"', " ", " "), ('a,"', "", ""), (" ,b", "", "")], 9)
@given(
    st.lists(st.tuples(st.text(st.sampled_from('ab ,"\n'), max_size=6), BLANKS, BLANKS), max_size=9), st.integers(4, 30)
)
def test_quoted_cells_with_blanks_around_them_are_refused_or_what_they_say(
    write: Write, cells: list[tuple[str, str, str]], size: int
) -> None:
    doubled = [(cell.replace('"', '""'), before, after) for cell, before, after in cells]
    lines = [f'{before}"{cell}"{after},{before}"{cell}"{after}' for cell, before, after in doubled]
    try:
        rows = read_rows(CsvSource(write("\n".join(["email,handle", *lines])), block_size=size))
    except UnusableFile:
        assert any(after for _, _, after in cells)
    else:
        assert [tuple(map(str.strip, row)) for row in rows] == [(cell.strip(),) * 2 for cell, _, _ in cells]


def test_nothing_left_to_send(write: Write) -> None:
    assert refuse(write("email\n"), {"email": "-"}).hint is Hint.MAP_A_COLUMN
    assert refuse(write("Ann\n"), {"*": "-"}).hint is Hint.MAP_A_COLUMN


@pytest.mark.parametrize("key", ["mail", "", "*", "email "])
def test_a_mapping_to_an_unknown_key(write: Write, key: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="map")):
        CsvSource(write("email\n"), mapping={"email": key})


def test_a_star_cannot_be_mapped_to_a_key(write: Write) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="map")):
        CsvSource(write("email\n"), mapping={"*": "email"})


def test_a_mapping_of_a_column_that_the_file_does_not_have(write: Write) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="map")) as caught:
        CsvSource(write("email\n"), mapping={"Notiz": "-"})
    assert "'Notiz'" in str(caught.value)


def test_quotes_in_the_header_that_do_not_match(write: Write) -> None:
    assert find_place(refuse(write('"email,phone\n')), "line") == 1


BROKEN = [
    pytest.param(b"email\na@b.c\nm\xfcller@b.c\n", 3, id="latin-1"),
    pytest.param(b"email\na@b.c\n\xc3", 3, id="cut in a letter"),
    pytest.param(b"email\na@b.c\nb\0@b.c\n", 3, id="nul"),
    pytest.param("email\nü\0\n".encode("utf-16"), 2, id="nul in utf-16"),
    pytest.param("email\nü\n".encode("utf-16")[:-1], 2, id="utf-16 cut short"),
    pytest.param(b'email\na@b.c\n"b@b.c\nc@b.c\n', 3, id="open quote"),
    pytest.param(b'email\na\n"b\n' + b"c@b.c\n" * 30_000, 3, id="endless"),
    pytest.param(b'email\n"a"b\nc\n"', 2, id="quote within"),
    pytest.param(b"email,phone\n" + 40_000 * b'a@b.c,"1"\n' + b'"Ada" b@b.c,"2"\n', 40_002, id="deep"),
]


@pytest.mark.parametrize(("content", "line"), BROKEN)
async def test_the_check_finds_what_would_stop_a_job(write: Write, content: bytes, line: int) -> None:
    path = write(content)
    with pytest.raises(UnusableFile, check=at(line=line)) as caught:
        await CsvSource(path).check()

    assert "b.c" not in str(caught.value)


@pytest.mark.parametrize(("content", "line"), BROKEN)
def test_an_error_midway_stops_the_rows(write: Write, content: bytes, line: int) -> None:
    path = write(content)
    with pytest.raises(UnusableFile, check=at(line=line)):
        read_rows(CsvSource(path))


def test_the_line_of_an_error_is_named_however_far_it_is(write: Write) -> None:
    path = write(b"email\n" + b"someone@example.com\n" * 20_000 + b"\xff\n")
    with pytest.raises(UnusableFile, check=at(line=20_002)):
        read_rows(CsvSource(path))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_line_of_an_error_is_named_wherever_a_block_ends(write: Write, mark: bytes) -> None:
    path = write(mark + "email\nü\n".encode() + b"\xc3\n\nx\n")
    for size in range(4, 20):
        with pytest.raises(UnusableFile, check=at(line=3)):
            read_rows(CsvSource(path, block_size=size))


def test_an_endless_line_is_refused_before_it_fills_the_memory(write: Write) -> None:
    path = write(b"email\n" + b"a" * 5_000_000)
    with pytest.raises(UnusableFile):
        read_rows(CsvSource(path))


async def test_a_good_file_passes_the_check(write: Write) -> None:
    await CsvSource(write('email,notes\n"a@b.c",5" pipe\nb@b.c,\n'), mapping={"notes": "-"}).check()


def test_closing_releases_a_file_that_was_not_read_to_its_end(write: Write) -> None:
    source = CsvSource(write(b"email\n" + b"someone@example.com\n" * 2_000))
    rows = source.rows().rows
    assert isinstance(rows, Iterable)
    left = iter(rows)
    next(left)
    source.close()
    assert len(list(left)) < 1_999
    assert not source.exhausted
    assert len(read_rows(source)) == 2_000


def test_of_many_columns_the_first_ten_are_quoted(write: Write) -> None:
    names = [f"column {number}" for number in range(2_001)]
    assert re.findall("'(.+?)'", refuse(write(",".join(["email", *names]))).problem) == names[:10]
    assert len(str(refuse(write(f"email,{'x' * 100_000}")))) < 600


def test_a_column_that_resembles_a_key_is_proposed(write: Write) -> None:
    assert "'Kunden-Mail' may be email" in refuse(write("Kunden-Mail;Handy privat;Ort\n")).problem
    assert "'emial' may be email" in refuse(write("emial,handle\n")).problem
    proposals = [column.proposal for column in list_columns(write("Kunden-Mail;Handy privat;Ort\n"))]
    assert proposals == ["email", "phone_number", None]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("E-Mail-Adresse;Telefon", ("email", "phone_number")),
        ("EMAIL ADDRESS,Mobile-Number", ("email", "phone_number")),
        ("e.mail,Téléphone", ("email", "phone_number")),
        ("Adresse e-mail\tNuméro de téléphone", ("email", "phone_number")),
        ("EmailAddress,PhoneNumber,SvcID", ("email", "phone_number", "svc_id")),
    ],
)
def test_common_names_are_recognised_in_any_spelling(write: Write, header: str, columns: tuple[str, ...]) -> None:
    assert CsvSource(write(f"{header}\n")).columns == columns


def test_a_mapping_may_use_a_common_name_of_a_key(write: Write) -> None:
    assert CsvSource(write("Rufnummer,Post\n"), mapping={"Rufnummer": "phone", "post": "E-Mail"}).columns == (
        "phone_number",
        "email",
    )
