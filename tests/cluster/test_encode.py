"""What shards hold together is what one process encodes, row for row."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from svc_async.batch.job import Job
from svc_async.batch.settings import Reading
from svc_async.cluster.encode import encode_fragment
from svc_async.cluster.parts import RowPlace, ShardRows
from svc_async.cluster.plan import SourcePlan
from svc_async.cluster.planning import plan_source
from svc_async.sources.detect import open_source
from svc_async.sources.product_attributes import UnparsedRow
from svc_async.sources.source import ReplayableRows
from svc_async.users.encoding import EncodedUsers, MemberEncoder
from tests.support.files import Write
from tests.support.plans import describe

Found = tuple[int, str]
"""The row of a user, and the user as it is sent, or the rule that it breaks."""


def encode_plan(plan: SourcePlan, shards: int) -> Sequence[ShardRows]:
    """Do in this process what a cluster does; fragments arrive in any order."""
    encoded = [encode_fragment(fragment, job=plan.job, shards=shards) for fragment in plan.fragments]
    random.Random(1).shuffle(encoded)
    return [ShardRows.read([pieces[shard] for pieces in encoded], plan) for shard in range(shards)]


def list_slice(users: EncodedUsers) -> Iterator[tuple[int, str]]:
    """Yield the index in its slice of each row, and what becomes of it."""
    written = users.users.to_text(users.template).list_users()
    template = users.template
    yield from zip(users.indexes, [f"{template.before}{user}{template.after}" for user in written], strict=True)
    yield from [(index, f"{users.attributes.get(index)}: {rule}") for index, rule in users.invalid.items()]


def list_shard(shard: ShardRows) -> Sequence[Found]:
    found, first = [], 0
    for users in shard.members.slices:
        found += [(shard.locate(first + index).row, user) for index, user in list_slice(users)]
        first += users.rows
    assert first == len(shard)
    return found


def encode_whole(job: Job) -> Sequence[Found]:
    found = []
    with closing(open_source(job.file.path, mapping=job.file.mapping)) as source:
        encoder = MemberEncoder(**attrs.asdict(job.reading)).for_rows(source.columns)
        rows, first = source.rows().rows, 0
        assert isinstance(rows, ReplayableRows)
        for part in rows.once().slices(512):
            for index, user in list_slice(encoder.encode(part)):
                found.append((source.find_line(first + index) or first + index + 1, user))
            first += len(part)
    return found


EMAILS = st.sampled_from(["a@b.de", "b@b.de", "c@b.de", "A@B.de ", "nobody", "", '"two\nlines"', "0" * 64])
HANDLES = st.sampled_from(["a", "b", "", "not a handle"])


@pytest.mark.parametrize("examples", [8, pytest.param(300, marks=pytest.mark.long)])
def test_shards_of_a_file_are_the_whole_file(write: Write, examples: int) -> None:
    @hypothesis_settings(max_examples=examples)
    @given(
        st.lists(st.tuples(EMAILS, HANDLES), max_size=40),
        st.sampled_from(["email,handle", "email,x", "partner_user_id,handle"]),
        st.integers(1, 5),
        st.sampled_from([Reading(), Reading(bad_identifiers="drop")]),
    )
    def check(rows: list[tuple[str, str]], header: str, shards: int, encode: Reading) -> None:
        path = write("\n".join([header, *map(",".join, rows)]))
        job = describe(path, reading=encode, mapping={"*": "-"})
        plan = plan_source(job, fragment_size=60, block_size=30)
        by_shard = list(map(list_shard, encode_plan(plan, shards)))
        assert sorted(found for each in by_shard for found in each) == sorted(encode_whole(job))
        users = [{user for _, user in each if user.startswith("{")} for each in by_shard]
        assert sum(map(len, users)) == len(set().union(*users))  # equal users are in one shard
        for each in by_shard:
            lines = [line for line, user in each if user.startswith("{")]
            assert lines == sorted(lines)

    check()


def test_shards_are_of_about_the_same_size_and_use_all_lanes(write: Write) -> None:
    path = write("email\n" + "".join(f"user{number}@example.com\n" for number in range(20_000)))
    shards = encode_plan(plan_source(describe(path)), 10)
    assert all(1_800 < len(shard) < 2_200 for shard in shards)
    first = {users.users.list_first_bytes()[0] for users in shards[3].members.slices}
    lanes = {byte % 64 for users in shards[3].members.slices for byte in users.users.list_first_bytes()}
    assert first
    assert lanes == set(range(64))


def test_rows_of_parquet_are_named_by_their_number(tmp_path: Path) -> None:
    emails = [f"user{number}@example.com" if number % 7 else "nobody" for number in range(100)]
    path = tmp_path / "customers.parquet"
    pq.write_table(pa.table({"email": emails}), path, row_group_size=30)
    plan = plan_source(describe(path))
    found = sorted(found for shard in encode_plan(plan, 3) for found in list_shard(shard))
    assert found == sorted(encode_whole(plan.job))
    assert [row for row, user in found if "must be" in user] == list(range(1, 101, 7))


def test_place_names_the_file(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("email\na@b.de\nnobody\n")
    (shard,) = encode_plan(plan_source(describe(tmp_path)), 1)
    places = [shard.locate(position) for position in range(len(shard))]
    assert sorted(places, key=str) == [
        RowPlace(str(tmp_path / name), row) for name in ("a.csv", "b.csv") for row in (2, 3)
    ]


def test_fragment_that_cannot_be_parsed_fails_by_itself(write: Write) -> None:
    lines = [f'{{"email": "user{number}@example.com"}}' for number in range(12_000)]
    lines[8_000] = "{"
    path = write("\n".join(lines), "customers.jsonl")
    plan = plan_source(describe(path), fragment_size=100_000, block_size=10_000)
    found = [found for shard in encode_plan(plan, 3) for found in list_shard(shard)]
    (line, reason) = next((line, user) for line, user in found if "None" in user)
    bad = next(each for each in reversed(plan.fragments) if each.before < 8_001)
    assert line == bad.before + 1
    assert reason == (
        f"None: {path} from line {line:,} is left out: the file is not JSON on line 8001; write one object on each line"
    )
    lost = range(bad.before, plan.fragments[bad.number + 1].before)
    assert sorted(line for line, _ in found) == sorted({*range(1, 12_001)} - {each + 1 for each in lost} | {line})


def test_users_with_several_values_keep_their_order(write: Write) -> None:
    values = ['"a@b.de"', '["a@b.de", "b@b.de"]', '"A@b.de"', '["a@b.de", "c@b.de"]']
    path = write("\n".join(f'{{"email": {value}}}' for value in values * 20), "customers.jsonl")
    plan = plan_source(describe(path), fragment_size=100, block_size=50)
    shards = [list_shard(shard) for shard in encode_plan(plan, 4)]
    (lines,) = [[line for line, _ in each] for each in shards if each]
    assert lines == list(range(1, 81))


def test_products_meet_by_id_and_stay_as_they_are(write: Write) -> None:
    feed = "id,title,availability\n" + "".join(f"{number % 7},Title {number},in_stock\n" for number in range(50))
    plan = plan_source(describe(write(feed + "1,2,3,4\n"), "catalog"), fragment_size=200, block_size=50)
    shards = encode_plan(plan, 3)
    by_shard = [list(shard.products) for shard in shards]
    ids = [{row["id"] for row in rows if not isinstance(row, UnparsedRow)} for rows in by_shard]
    assert sum(map(len, ids)) == 7
    titles = sorted(row["title"] for rows in by_shard for row in rows if "title" in row)
    assert titles == sorted(f"Title {number}" for number in range(50))
    (unparsed,) = [row for rows in by_shard for row in rows if isinstance(row, UnparsedRow)]
    assert unparsed.reason == "must not have more cells than the header"
    for shard, rows in zip(shards, by_shard, strict=True):
        for position, row in enumerate(rows):
            line = shard.locate(position).row
            assert line == 52 if isinstance(row, UnparsedRow) else row["title"] == f"Title {line - 2}"
    assert [*shards[0].products] == by_shard[0]  # again


def test_keys_of_products_are_texts(write: Write) -> None:
    plan = plan_source(describe(write("product_key\nk1\nk2\n,\n"), "catalog", "remove"))
    (shard,) = encode_plan(plan, 1)
    assert [row for row in shard.products if isinstance(row, str)] == ["k1", "k2"]


def test_xml_feed_is_one_fragment(write: Write) -> None:
    items = "".join(f"<item><g:id>{number}</g:id></item>" for number in range(5))
    text = f'<rss xmlns:g="http://base.google.com/ns/1.0"><channel>{items}</channel></rss>'
    plan = plan_source(describe(write(text, "feed.xml"), "catalog"), fragment_size=1)
    assert len(plan.fragments) == 1
    (shard,) = encode_plan(plan, 1)
    assert [row["id"] for row in shard.products] == list("01234")
    assert [shard.locate(position).row for position in range(5)] == [1, 2, 3, 4, 5]


def test_empty_shard_has_no_rows() -> None:
    shard = ShardRows.read([b""], SourcePlan(describe("people.csv"), (), ()))
    assert len(shard) == 0
    assert [*shard.members.slices] == []


def test_nothing_of_a_user_is_in_the_clear(write: Write) -> None:
    plan = plan_source(describe(write("email\nsomeone@example.com\nnobody\n")))
    content = b"".join(encode_fragment(plan.fragments[0], job=plan.job, shards=2))
    assert b"someone" not in content
    assert b"nobody" not in content


def test_products_in_lines_and_row_groups_are_divided(write: Write, tmp_path: Path) -> None:
    lines = write("".join(f'{{"id": "{number}", "inventory": {number}}}\n' for number in range(50)), "feed.jsonl")
    table = tmp_path / "feed.parquet"
    pq.write_table(pa.table({"id": list(map(str, range(50))), "inventory": range(50)}), table, row_group_size=20)
    for path in (lines, table):
        plan = plan_source(describe(path, "catalog"), fragment_size=200, block_size=50)
        assert len(plan.fragments) > 2
        products = [product for shard in encode_plan(plan, 3) for product in shard.products]
        assert sorted(products, key=str) == sorted(
            ({"id": str(number), "inventory": number} for number in range(50)), key=str
        )
