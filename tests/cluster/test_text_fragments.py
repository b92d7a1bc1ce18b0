"""The fragments of a text hold what the reader of whole files reads, wherever they are cut."""

import bz2
import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.batch.job import Job
from svc_async.cluster import planning
from svc_async.cluster.fragments import open_fragment
from svc_async.cluster.plan import SourcePlan
from svc_async.cluster.planning import plan_source
from svc_async.errors import UnusableFile
from svc_async.sources.detect import open_source
from tests.support.errors import at, has
from tests.support.files import Write, read_rows
from tests.support.plans import describe

EXAMPLES = pytest.mark.parametrize("examples", [8, pytest.param(300, marks=pytest.mark.long)])
Sizes = tuple[int, int]
SIZES = st.tuples(st.integers(1, 60), st.integers(1, 40))
"""Bytes of a fragment, and of what is read at a time."""
CELLS = st.one_of(
    st.text("ab,;\"'\r\n é", max_size=6),
    st.sampled_from(["a@b.de", "", "n/a", 'x"y', "sep=;", "\u2028", "12345"]),
)


BLANKS = ['"a,b" , "c"', ' "a\nb"  ,x', ' "a""" ,"b"', 'x, " ,y" ', ' " ""x"" ,y" ,', '"" ,x', '"a," ,x']
"""Rows with blanks around quotes."""


def quote(cell: str) -> str:
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if any(each in cell for each in ',;"\r\n') else cell


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """CSV, with what the parser allows: cells of several lines, stray quotes, blank lines, short and long rows."""
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    rows = draw(st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=12))
    lines = [",".join(map(quote, row)) for row in rows]
    lines += draw(st.lists(st.sampled_from(["", 'a "stray" quote,b', '5",6"', "a@b.de,1,2,3", *BLANKS]), max_size=3))
    header = draw(st.sampled_from(["email,handle", '"email","the\nother"', "email", "sep=,\nemail,x"]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return (mark + end.join([header, *draw(st.permutations(lines))]) + draw(st.sampled_from(["", end]))).encode()


def read_whole(job: Job) -> list[tuple[int | None, tuple[Any, ...]]]:
    source = open_source(job.file.path, mapping=job.file.mapping, encoding=job.file.encoding, header=job.file.header)
    with closing(source):
        rows = read_rows(source)
        return [(source.find_line(position), row) for position, row in enumerate(rows)]


def read_fragments(plan: SourcePlan) -> Iterator[tuple[int | None, tuple[Any, ...]]]:
    for fragment in plan.fragments:
        with open_fragment(fragment, plan.job) as source:
            rows = read_rows(source)
            yield from [(source.find_line(position), row) for position, row in enumerate(rows)]


def read_in_parts(job: Job, sizes: Sizes) -> Sequence[Any]:
    return list(read_fragments(plan_source(job, fragment_size=sizes[0], block_size=sizes[1])))


@EXAMPLES
@pytest.mark.parametrize(
    "reading",
    [
        pytest.param({"mapping": {"*": "-"}}, id="with a header"),
        pytest.param({"header": ("email", "handle")}, id="without a header"),
    ],
)
def test_fragments_of_csv_are_the_whole_file(write: Write, reading: Mapping[str, Any], examples: int) -> None:
    @settings(max_examples=examples)
    @given(tables(), SIZES)
    def check(text: bytes, sizes: Sizes) -> None:
        job = describe(write(text), **reading)
        try:
            whole = read_whole(job)
        except UnusableFile:
            with pytest.raises(UnusableFile):
                read_in_parts(job, sizes)
        else:
            assert read_in_parts(job, sizes) == whole

    check()


@EXAMPLES
def test_fragments_of_json_lines_are_the_whole_file(write: Write, examples: int) -> None:
    @settings(max_examples=examples)
    @given(
        st.lists(
            st.sampled_from(['{"email": "a@b.de"}', '{"handle": ["é", "x"], "email": 1}', "", "  ", "{}"]), min_size=1
        ),
        st.sampled_from(["\n", "\r\n"]),
        st.sampled_from(["", "\ufeff"]),
        SIZES,
    )
    def check(lines: list[str], end: str, mark: str, sizes: Sizes) -> None:
        job = describe(write(mark + end.join(['{"email": "a@b.de"}', *lines]), "customers.jsonl"))
        assert read_in_parts(job, sizes) == read_whole(job)

    check()


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_text_is_divided_too(write: Write, compress: Any) -> None:
    text = "email\n" + "".join(f"user{number}@example.com\n" for number in range(1_000))
    path = write(compress(text.encode()), "customers.csv.gz")
    plan = plan_source(describe(path), fragment_size=5_000, block_size=1_000)
    assert len(plan.fragments) > 3
    assert list(read_fragments(plan)) == read_whole(plan.job)


@pytest.mark.parametrize("encoding", ["cp1252", "iso8859-15", "koi8-r", "utf-16", "utf-16-le", "shift_jis"])
def test_text_in_other_encodings_is_whole_or_divided(write: Write, encoding: str) -> None:
    text = "email,handle\n" + "".join(f"user{number}@example.com,x\n" for number in range(100))
    path = write(text.encode(encoding))
    job = describe(path, encoding=None if encoding.startswith("utf") else encoding)
    plan = plan_source(job, fragment_size=500, block_size=100)
    assert (len(plan.fragments) > 1) is (encoding in {"cp1252", "iso8859-15", "koi8-r"})
    assert list(read_fragments(plan)) == read_whole(plan.job)


def test_mistake_is_named_by_its_line_in_the_file(write: Write) -> None:
    lines = ["email", *(f"user{number}@example.com" for number in range(9_000))]
    lines[8_000] = "caf\xe9@example.com"
    path = write("\n".join(lines).encode("latin-1"))
    plan = plan_source(describe(path), fragment_size=1_000, block_size=500)
    with pytest.raises(UnusableFile, check=at(line=8001)):
        list(read_fragments(plan))


@pytest.mark.parametrize("row", ['"a@b.de"x', '"a@b.de" x', '"" ,x', '"a@b.de'])
def test_quotes_that_do_not_match_are_found_before_anything_is_read(write: Write, row: str) -> None:
    lines = ["email", *(f"user{number}@example.com" for number in range(100))]
    lines[40] = row
    path = write("\n".join(lines))
    with closing(open_source(path)) as source, pytest.raises(UnusableFile, check=at(line=41)) as expected:
        read_rows(source)
    for block_size in (10, 1_000_000):
        with pytest.raises(UnusableFile, check=has(problem=expected.value.problem)):
            plan_source(describe(path), fragment_size=100, block_size=block_size)


@pytest.mark.parametrize(
    ("longest", "block_size"), [(100, 1), pytest.param(planning._LONGEST, 1_048_576, marks=pytest.mark.long)]
)
def test_row_without_an_end_is_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch, longest: int, block_size: int
) -> None:
    monkeypatch.setattr(planning, "_LONGEST", longest)

    def plan(size: int) -> SourcePlan:
        path = write(f'email\na@b.de\n"{"x" * (size - 2)}"\n')
        return plan_source(describe(path), block_size=block_size)

    assert plan(longest).fragments
    with pytest.raises(UnusableFile, check=at(line=3)):
        plan(longest + block_size)


LINES = {
    "customers.csv": ("email\na@b.de\n", None),
    "customers.jsonl": ('{"email": "a@b.de"}\n' * 2, 3),
}
"""How a file begins, and the number of a line after that which is too long, if it is told."""


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("longest", [100, pytest.param(planning._LONGEST, marks=pytest.mark.long)])
def test_line_without_an_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch, name: str, longest: int) -> None:
    start, line = LINES[name]
    monkeypatch.setattr(planning, "_LONGEST", longest)

    def plan(size: int) -> SourcePlan:
        return plan_source(describe(write(start + "x" * size, name)), block_size=max(1, longest // 16))

    assert plan(longest).fragments
    with pytest.raises(UnusableFile, check=at(line=line)):
        plan(longest + max(1, longest // 16))


def test_file_may_be_shorter_than_a_byte_order_mark(write: Write) -> None:
    job = describe(write("1\n"), header=("svc_id",))
    assert read_in_parts(job, (100, 1)) == read_whole(job) == [(1, ("1",))]


def test_header_alone_has_no_fragment(write: Write) -> None:
    assert plan_source(describe(write("email"))).fragments == ()
