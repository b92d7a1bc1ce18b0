"""Members and products given as the path of a file."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.packing.batch import Limits
from svc_async.batch.settings import JobSizes
from svc_async.errors import BatchError, Hint, InvalidArgument, UnusableFile
from svc_async.lists.audience_users import AudienceUsers
from svc_async.lists.do_not_reach_users import DoNotReachUsers
from svc_async.sandbox import Sandbox
from svc_async.session import Session
from svc_async.wire.outcome import api_error
from tests.support.errors import has
from tests.support.fake_catalog import FakeCatalog, product
from tests.support.fake_service import FakeService

IDS = [str(number) for number in range(1, 31)]
Write = Callable[[Path], object]


def write_csv(path: Path) -> None:
    path.write_text("\n".join(["partner_user_id", *IDS]) + "\n", encoding="utf-8")


def write_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress("\n".join(["partner_user_id", *IDS]).encode()))


def write_json_lines(path: Path) -> None:
    path.write_text("".join(json.dumps({"partner_user_id": each}) + "\n" for each in IDS), encoding="utf-8")


def write_parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"partner_user_id": IDS}), path)


def write_products(path: Path) -> None:
    rows = [product(number) for number in range(30)]
    path.write_text("\n".join("\t".join(row) for row in [[*rows[0]], *([*row.values()] for row in rows)]) + "\n")


def sent_ids(service: FakeService) -> list[str]:
    return [user["partner_user_id"][0] for user in service.users]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "customers"


@pytest.mark.parametrize("write", [write_csv, write_gzip, write_json_lines, write_parquet])
async def test_members_may_be_a_file_of_any_format(
    users: AudienceUsers, service: FakeService, path: Path, write: Write
) -> None:
    write(path)

    report = await users.upload(path)

    assert (report.accepted, sorted(sent_ids(service))) == (30, sorted(IDS))


async def test_a_file_may_be_given_as_text_or_as_a_url(users: AudienceUsers, service: FakeService, path: Path) -> None:
    path = path.with_name("my customers")
    write_csv(path)

    assert (await users.upload(str(path))).accepted == 30
    assert (await users.upload(path.as_uri())).accepted == 30
    assert sent_ids(service) == 2 * sent_ids(service)[:30]


async def test_members_of_a_file_can_be_removed_and_streamed(
    users: AudienceUsers, service: FakeService, path: Path
) -> None:
    write_csv(path)

    assert (await users.remove(path)).accepted == 30
    assert {operation["operation_type"] for operation in service.operations} == {"Delete"}

    stream = users.stream(path)
    assert sum([receipt.accepted async for receipt in stream]) == stream.report.accepted == 30


@pytest.mark.rule("DNR-03")
async def test_a_file_for_a_do_not_reach_list_has_only_its_identifiers(service: FakeService, path: Path) -> None:
    users = DoNotReachUsers(service.pipeline, "a1", "l1")
    path.write_text("email,handle\na@b.de,a\n", encoding="utf-8")

    with pytest.raises(UnusableFile, check=has(path=str(path), hint=Hint.MAP_OR_IGNORE)):
        await users.upload(path)


async def test_the_last_row_may_be_invalid_and_is_counted_in_the_file(
    users: AudienceUsers, service: FakeService, path: Path
) -> None:
    path.write_text("email\na@b.de\nnobody\n", encoding="utf-8")

    report = await users.upload(path)

    assert (report.accepted, [failure.position for failure in report.failures]) == (1, [1])
    assert len(service.bodies) == 1


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("email,notes\na@b.de,x\n", Hint.MAP_OR_IGNORE),
        ("email\nmüller@b.de\n", Hint.NAME_THE_ENCODING),
        ("a@b.de\n", Hint.NAME_THE_COLUMNS),
    ],
    ids=["unknown column", "encoding", "no header"],
)
async def test_an_error_names_the_argument_that_helps(
    users: AudienceUsers, path: Path, content: str, hint: Hint
) -> None:
    path.write_text(content, encoding="cp1252")

    with pytest.raises(UnusableFile) as caught:
        await users.upload(path)

    assert (caught.value.path, caught.value.hint) == (str(path), hint)


@pytest.mark.parametrize("make", ["missing", "empty", "folder", "broken"])
async def test_an_unusable_file_is_refused_before_anything_is_sent(
    users: AudienceUsers, service: FakeService, path: Path, make: str
) -> None:
    if make == "empty":
        path.touch()
    elif make == "folder":
        path.mkdir()
    elif make == "broken":
        path.write_bytes(b"email\n" + b"a@b.de\n" * 5_000 + b"\xff\n")

    with pytest.raises(UnusableFile):
        await users.upload(path)
    with pytest.raises(UnusableFile):
        await anext(users.stream(path))

    assert service.bodies == []


@pytest.mark.parametrize("scheme", ["https", "http", "s3", "ftp"])
async def test_a_url_is_not_fetched(users: AudienceUsers, service: FakeService, scheme: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await users.upload(f"{scheme}://host.example/customers.csv?token=secret")

    assert (caught.value.parameter, caught.value.hint) == ("members", Hint.DOWNLOAD_IT)
    assert "secret" not in str(caught.value)
    assert service.bodies == []


@pytest.mark.parametrize("text", ["ada@example.org", "ada@example.org" * 100, "ada@"])
async def test_a_text_that_may_be_an_address_is_quoted_nowhere(
    users: AudienceUsers, sandbox: Sandbox, text: str
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="members")) as of_members:
        await users.upload(text)
    async with Session.sandbox(sandbox) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="products")) as of_products:
            await session.product_catalog("c").products.upsert(text)
    assert not [error for error in (of_members.value, of_products.value) if text in str(error)]


@pytest.mark.parametrize(
    "suffix", ["csv", "tsv", "txt", "json", "jsonl", "ndjson", "parquet", "xml", "gz", "bz2", "xz", "zst", "CSV"]
)
async def test_a_text_with_an_at_sign_and_the_suffix_of_a_file_is_one(users: AudienceUsers, suffix: str) -> None:
    with pytest.raises(UnusableFile, check=has(path=f"customers@home.{suffix}")):
        await users.upload(f"customers@home.{suffix}")


async def test_a_file_whose_name_has_an_at_sign_is_read(
    users: AudienceUsers, service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(Path("customers@home"))
    await users.upload("customers@home")
    assert sorted(sent_ids(service), key=int) == IDS
    with pytest.raises(UnusableFile, check=has(path="customers@home.csv")):
        await users.upload("customers@home.csv")


async def test_standard_input_is_not_read_unasked(users: AudienceUsers) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="members")):
        await users.upload("-")


@pytest.mark.parametrize("members", [b"customers.csv", {"email": "a@b.de"}, 5])
async def test_other_values_that_cannot_be_iterated_over_are_refused(users: AudienceUsers, members: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="members")):
        await users.upload(members)


class LazyTable:
    """What has its rows only when it is told to, as a LazyFrame of polars does."""

    def collect(self) -> list[dict[str, str]]:
        raise AssertionError("it is collected by its owner")


def generate_rows() -> Iterator[dict[str, str]]:
    yield {"email": "a@b.de"}


async def generate_rows_later() -> AsyncIterator[dict[str, str]]:
    yield {"email": "a@b.de"}


@pytest.mark.parametrize(
    ("rows", "advice"),
    [
        (generate_rows, "call it first"),
        (generate_rows_later, "call it first"),
        (LazyTable(), "collect it first"),
        (asyncio.Future, "call it first"),
        ({"email": "a@b.de"}, "put a single one into a list"),
    ],
)
async def test_what_has_no_rows_yet_says_how_to_get_them(users: AudienceUsers, rows: Any, advice: str) -> None:
    products = FakeCatalog().products()
    calls: dict[str, Any] = {"members": users.upload, "products": products.upsert, "product_keys": products.delete}
    for parameter, call in calls.items():
        with pytest.raises(InvalidArgument, match=f"; {advice}$", check=has(parameter=parameter)):
            await call(rows)


async def test_a_coroutine_is_awaited_first(users: AudienceUsers) -> None:
    async def fetch() -> list[dict[str, str]]:
        return []

    rows: Any = fetch()
    with pytest.raises(InvalidArgument, check=has(parameter="members")):
        await users.upload(rows)
    assert await rows == []


async def test_an_open_file_is_passed_by_its_path(users: AudienceUsers, path: Path) -> None:
    write_csv(path)
    for mode in ("r", "rb"):
        with path.open(mode) as file:
            rows: Any = file
            with pytest.raises(InvalidArgument, check=has(parameter="members")):
                await users.upload(rows)
            with pytest.raises(InvalidArgument, check=has(parameter="products")):
                await FakeCatalog().products().upsert(rows)


async def test_the_lines_of_an_open_file_may_be_product_keys(path: Path) -> None:
    shop = FakeCatalog()
    path.write_text("1\n2")
    with path.open() as file:
        assert (await shop.products().delete(line.strip() for line in file)).read == 2
    with path.open() as file:
        assert (await shop.products().delete(file)).read == 2


async def test_a_job_of_a_file_resumes_from_its_journal_without_a_spool(
    service: FakeService, path: Path, tmp_path: Path
) -> None:
    write_csv(path)
    journal = tmp_path / "job.journal"
    users = AudienceUsers(service.pipeline, "a1", "c1", limits=Limits(operations=2), sizes=JobSizes(slice_rows=4))
    service.script[3] = api_error(status=403)
    with pytest.raises(BatchError):
        await users.upload(path, journal=journal, concurrency=1, users_per_operation=3)
    assert not JournalRecord.read(journal).spool_begun

    report = await users.upload(path, journal=journal, users_per_operation=3)

    assert (report.read, report.accepted, report.pending) == (30, 30, 0)
    assert sorted(sent_ids(service)) == sorted(IDS)


async def test_products_may_be_the_feed_of_a_merchant(path: Path) -> None:
    shop = FakeCatalog()
    write_products(path)

    assert (await shop.products().upsert(path)).accepted == 30
    stream = shop.products().stream(str(path))
    assert sum([receipt.accepted async for receipt in stream]) == 30
    assert len(shop.held) == 30


async def test_a_missing_feed_is_refused(path: Path) -> None:
    with pytest.raises(UnusableFile, check=has(path=str(path))):
        await FakeCatalog().products().upsert(path)


async def test_a_path_is_no_list_of_product_keys(path: Path) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="product_keys")):
        await FakeCatalog().products().delete(str(path))


async def test_the_sandbox_holds_what_the_file_lists(sandbox: Sandbox, path: Path) -> None:
    path.write_text("".join(f'{{"email": "user{number}@example.org"}}\n' for number in range(40)), encoding="utf-8")

    async with Session.sandbox(sandbox) as session:
        audience = session.account(sandbox.account_id).custom_audience(sandbox.audience_id)
        before = len(sandbox.audience(sandbox.audience_id).users)
        report = await audience.users.upload(path)

    assert report.accepted == 40
    assert len(sandbox.audience(sandbox.audience_id).users) == before + 40
