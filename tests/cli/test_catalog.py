import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox
from tests.support.command import Call, Command
from tests.support.tiers import keep_short

HEADER = "id,title,description,availability,condition,price,link,image_link,brand,inventory\n"


def feed(*names: str, price: str = "9.90 EUR") -> str:
    shop = "https://shop.example.org"
    return HEADER + "".join(f"{name},T,D,in_stock,new,{price},{shop}/{name},{shop}/{name}.png,B,1\n" for name in names)


@pytest.fixture
async def catalog(sandbox: Sandbox) -> str:
    async with Session.sandbox(sandbox) as session:
        return (await session.product_catalogs.create(name="Shop")).id


async def list_keys(sandbox: Sandbox, catalog: str) -> dict[str, str | None]:
    async with Session.sandbox(sandbox) as session:
        return {product.id: product.product_key async for product in session.product_catalog(catalog).products.list()}


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_feed_becomes_a_catalog_and_goes_again(
    command: Command, sandbox: Sandbox, catalog: str, tmp_path: Path
) -> None:
    (tmp_path / "feed.csv").write_text(feed("a", "b") + feed("c", price="cheap").removeprefix(HEADER) + "d" + ",x" * 10)
    ended = await command("catalog", "upload", "feed.csv", "--catalog", catalog)
    assert ended.code == 5
    with (tmp_path / f"feed.csv.catalog-{catalog}.upload.failures.csv").open() as file:
        failures = [(row["position"], row["line"], row["field"]) for row in csv.DictReader(file)]
    assert sorted(failures) == [("2", "4", "price"), ("3", "5", "")]
    keys = await list_keys(sandbox, catalog)
    (tmp_path / "gone.csv").write_text(f"product_key,title\n{keys['a']},x\n")
    gone = await command("catalog", "delete", "gone.csv", "--catalog", catalog, "--json")
    assert gone.result["accepted"] == 1
    assert list(await list_keys(sandbox, catalog)) == ["b"]


def test_failures_for_other_reasons_than_those_that_are_printed_are_counted(call: Call, here: Path) -> None:
    prices = ("cheap", "-9 EUR", "9 eur", '"9,90 EUR"', "9 XYZ")
    rows = [feed(f"p{number}", price=price) for price in prices for number in range(2)]
    rows += [feed("x").replace("in_stock", "gone"), feed("y").replace(",new,", ",mint,")]
    (here / "feed.csv").write_text(HEADER + "".join(row.removeprefix(HEADER) for row in rows))
    ended = call("catalog", "upload", "feed.csv", "--sandbox")
    printed = [line.split(maxsplit=1) for line in ended.out.splitlines() if line.startswith("    ")]
    counts = {reason: int(number) for number, reason in printed if number.isdigit()}
    assert counts.pop("failed") == sum(counts.values()) == 12
    assert counts["for other reasons"] == 2
    (here / "feed.csv").write_text(HEADER + "".join(row.removeprefix(HEADER) for row in rows[:-1]))
    assert "for other reasons" not in call("catalog", "upload", "feed.csv", "--sandbox").out


def test_a_feed_may_be_in_json_lines(call: Call, here: Path) -> None:
    names, cells = HEADER.strip().split(","), feed("a").splitlines()[1].split(",")
    (here / "feed.jsonl").write_text(json.dumps(dict(zip(names, cells, strict=True))))

    ended = call("catalog", "upload", "feed.jsonl", "--sandbox", "--format", "jsonl", "--json")

    assert (ended.code, ended.result["accepted"]) == (0, 1)


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_sync_makes_the_catalog_equal_to_the_feed(
    command: Command, sandbox: Sandbox, catalog: str, tmp_path: Path
) -> None:
    sync = ("catalog", "sync", "feed.csv", "--catalog", catalog, "--max-removal-share", "0.5")
    (tmp_path / "feed.csv").write_text(feed("a", "b", "c"))
    assert (await command(*sync)).code == 0
    (tmp_path / "feed.csv").write_text(feed("b", "c", "d"))
    dry = (await command(*sync, "--dry-run", "--json")).result
    names = ("additions", "removals", "present", "least_requests", "invalid_rows")
    assert [dry[name] for name in names] == [1, 1, 3, 2, 0]
    ended = await command(*sync)
    assert ended.code == 0
    assert sorted(await list_keys(sandbox, catalog)) == ["b", "c", "d"]


@pytest.mark.long("runs five syncs in processes of their own")
async def test_a_dry_run_counts_the_products_that_cannot_be_sent(
    command: Command, catalog: str, tmp_path: Path
) -> None:
    sync = ("catalog", "sync", "feed.csv", "--catalog", catalog)
    (tmp_path / "feed.csv").write_text(feed("a", "b"))
    assert (await command(*sync)).code == 0
    rows = feed("a") + (feed("b", price="cheap") + feed("c", price="10.90 €")).replace(HEADER, "")
    (tmp_path / "feed.csv").write_text(rows)

    dry = await command(*sync, "--dry-run", "--json")

    counts = ("additions", "changes", "unchanged", "invalid_rows", "removals")
    assert [dry.result[name] for name in counts] == [0, 0, 1, 2, 0]
    assert dry.code == 5
    assert (await command(*sync, "--dry-run", "--max-failure-share", "0.7")).code == 0

    assert (await command(*sync)).code == 5


@pytest.mark.long("runs six syncs in processes of their own")
async def test_a_feed_that_cannot_be_sent_deletes_nothing(
    command: Command, sandbox: Sandbox, catalog: str, tmp_path: Path
) -> None:
    sync = ("catalog", "sync", "feed.csv", "--catalog", catalog)
    names = [f"p{number}" for number in range(10)]
    (tmp_path / "feed.csv").write_text(feed(*names))
    assert (await command(*sync)).code == 0
    (tmp_path / "feed.csv").write_text(feed(*names[1:], price="10.90 €"))

    dry, ended = await command(*sync, "--dry-run"), await command(*sync)
    dry_json, ended_json = await command(*sync, "--dry-run", "--json"), await command(*sync, "--json")

    assert (dry.code, ended.code) == (2, 2)
    assert dry_json.error == ended_json.error
    assert dry_json.result["invalid_rows"] == 9
    assert dry_json.error["parameter"] == "--max-removal-share"
    assert len(await list_keys(sandbox, catalog)) == 10
    forced = await command(*sync, "--max-removal-share", "1")
    assert forced.code == 5
    assert sorted(await list_keys(sandbox, catalog)) == names[1:]


@pytest.mark.long("runs three syncs in processes of their own")
async def test_products_stay_while_rows_of_the_feed_have_no_id(
    command: Command, sandbox: Sandbox, catalog: str, tmp_path: Path
) -> None:
    sync = ("catalog", "sync", "feed.csv", "--catalog", catalog, "--max-removal-share", "1")
    (tmp_path / "feed.csv").write_text(feed("a", "b"))
    assert (await command(*sync)).code == 0
    without_id = feed("b").removeprefix(HEADER).removeprefix("b")
    (tmp_path / "feed.csv").write_text(feed("a") + without_id)

    ended = await command(*sync, "--json")

    assert (ended.code, ended.result["kept"]) == (5, 1)
    assert sorted(await list_keys(sandbox, catalog)) == ["a", "b"]
    (tmp_path / "feed.csv").write_text(feed("a"))
    assert (await command(*sync)).code == 0
    assert list(await list_keys(sandbox, catalog)) == ["a"]


@pytest.mark.parametrize(
    ("name", "content"),
    keep_short(
        1,
        [
            ("feed.csv", "sku,title\n1,T\n"),
            ("feed.jsonl", '{"sku": "1", "title": "T"}\n'),
            ("feed.xml", "<rss><channel><item><g:sku>1</g:sku><title>T</title></item></channel></rss>"),
        ],
    ),
)
def test_a_feed_without_ids_is_refused_before_anything_is_sent(call: Call, here: Path, name: str, content: str) -> None:
    (here / name).write_text(content)
    ended = call("catalog", "upload", name, "--sandbox", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "file")
    assert "'sku'" in ended.error["message"]
    assert not list(here.glob("*.failures.csv"))


def write_feed(name: str, columns: Mapping[str, str]) -> str:
    """Return a feed with one product, in the format of the name."""
    if name.endswith(".csv"):
        return "\n".join(map(",".join, zip(*columns.items(), strict=True)))
    if name.endswith(".jsonl"):
        return json.dumps(columns)
    elements = "".join(f"<g:{column}>{value}</g:{column}>" for column, value in columns.items())
    return f"<rss><channel><item>{elements}</item></channel></rss>"


FORMATS = ["feed.csv", "feed.jsonl", "feed.xml"]
PRODUCT = dict(zip(HEADER.strip().split(","), feed("a").splitlines()[1].split(","), strict=True))


@pytest.mark.long("each case runs six jobs on sandboxes of their own")
@pytest.mark.parametrize("name", FORMATS)
def test_columns_and_elements_that_are_not_sent_are_named_once(call: Call, here: Path, name: str) -> None:
    (here / name).write_text(write_feed(name, {**PRODUCT, "shipping": "DE", "tax": "1"}))
    for command in ("upload", "sync"):
        ended = call("catalog", command, name, "--sandbox")
        assert ended.code == 0
        assert ended.err.count("'shipping', 'tax'") == 1
    as_json = call("catalog", "upload", name, "--sandbox", "--json")
    assert (as_json.result["unused_columns"], as_json.err) == (["shipping", "tax"], "")
    plan = call("catalog", "sync", name, "--sandbox", "--json", "--dry-run")
    assert plan.result["unused_columns"] == ["shipping", "tax"]
    mapped = call("catalog", "upload", name, "--sandbox", "--map", "tax=-")
    assert ("'shipping'" in mapped.err, "'tax'" in mapped.err) == (True, False)
    assert "'shipping'" not in call("catalog", "upload", name, "--sandbox", "--map", "*=-").err


def test_names_that_are_not_sent_are_bounded_and_do_not_reach_the_terminal_as_they_are(call: Call, here: Path) -> None:
    names = ["x\u202e" + "y" * 100, *(f"c{number}" for number in range(200))]
    (here / "feed.csv").write_text(write_feed("feed.csv", {**PRODUCT, **dict.fromkeys(names, "1")}), encoding="utf-8")
    noted = call("catalog", "upload", "feed.csv", "--sandbox").err
    assert "\u202e" not in noted
    assert "'c8' and 191 more" in noted
    listed = call("catalog", "upload", "feed.csv", "--sandbox", "--json").result["unused_columns"]
    assert (len(listed), len(listed[0])) == (100, 60)


@pytest.mark.parametrize("name", keep_short(1, [(name,) for name in FORMATS]))
def test_a_column_or_element_that_is_most_likely_misspelt_is_refused_with_its_name(
    call: Call, here: Path, name: str
) -> None:
    misspelt = {"titel" if column == "title" else column: value for column, value in PRODUCT.items()}
    (here / name).write_text(write_feed(name, misspelt))
    ended = call("catalog", "upload", name, "--sandbox", "--json")
    assert (ended.code, ended.error["hint"]) == (2, "MAP_OR_IGNORE")
    assert "'titel'" in ended.error["message"]
    assert call("catalog", "upload", name, "--sandbox", "--map", "titel=title").code == 0
    assert call("catalog", "upload", name, "--sandbox", "--map", "titel=-").code == 5


def test_the_list_of_failures_names_the_product_and_its_line(call: Call, here: Path) -> None:
    (here / "feed.xml").write_text("<rss><channel>\n<item>\n<g:id>=a\u202e</g:id></item>\n<item/></channel></rss>")
    ended = call("catalog", "upload", "feed.xml", "--sandbox", "--json")
    written = (here / "feed.xml.catalog-sandbox.upload.failures.csv").read_text(encoding="utf-8")
    listed = [*csv.DictReader(written.splitlines())]
    assert [(row["line"], row["id"]) for row in listed] == [("2", "'=a\\u202e"), ("4", "")]
    assert [(each["line"], each.get("id")) for each in ended.result["failures"]] == [(2, "=a\u202e"), (4, None)]


@pytest.mark.long("runs three commands in processes of their own")
async def test_a_product_that_the_service_refuses_is_listed_with_its_id(
    command: Command, catalog: str, tmp_path: Path
) -> None:
    rows = [feed(name).splitlines()[1] for name in ("a", "b", "c")]
    sales = zip(rows, ["", "5.00 USD", "4.00 USD"], strict=True)
    (tmp_path / "feed.csv").write_text(
        "\n".join([f"{HEADER.strip()},sale_price", *(f"{row},{sale}" for row, sale in sales)])
    )
    target = ("catalog", "upload", "feed.csv", "--catalog", catalog, "--failures-file", "failed.csv")

    ended = await command(*target, "--journal", "job.journal", "--json")

    assert [(each["line"], each["id"]) for each in ended.result["failures"]] == [(3, "b"), (4, "c")]
    listed = [*csv.DictReader((tmp_path / "failed.csv").read_text().splitlines())]
    assert [(row["id"], row["reason"]) for row in listed] == [
        ("b", "must be in the currency of price"),
        ("c", "must be in the currency of price"),
    ]
    report = await command("job", "report", "job.journal")
    assert [each["id"] for each in report.result["failures"]] == ["b", "c"]
    (tmp_path / "failed.csv").unlink()
    assert (await command(*target, "--journal", "job.journal")).code == 5
    assert [*csv.DictReader((tmp_path / "failed.csv").read_text().splitlines())] == listed


@pytest.mark.long("runs five syncs in processes of their own")
async def test_a_sync_sends_what_changed_and_tries_failed_products_again(
    command: Command, sandbox: Sandbox, catalog: str, tmp_path: Path
) -> None:
    def write(*sales: str) -> None:
        rows = zip(feed("a", "b", "c").splitlines()[1:], sales, strict=True)
        lines = [f"{HEADER.strip()},sale_price", *(f"{row},{sale}" for row, sale in rows)]
        (tmp_path / "feed.csv").write_text("\n".join(lines))

    async def sync() -> tuple[int, int]:
        result = (await command("catalog", "sync", "feed.csv", "--catalog", catalog, "--json")).result
        return result["accepted"], result["failed"]

    write("", "5.00 USD", "cheap")
    assert [await sync(), await sync()] == [(1, 2), (0, 2)]
    write("", "5.00 EUR", "cheap")
    assert await sync() == (1, 1)
    write("", "5.00 EUR", "4.00 EUR")
    assert [await sync(), await sync()] == [(1, 0), (0, 0)]
    assert sorted(await list_keys(sandbox, catalog)) == ["a", "b", "c"]


async def test_a_catalog_that_is_not_there_shows_before_anything_is_sent(command: Command, tmp_path: Path) -> None:
    (tmp_path / "feed.csv").write_text(feed("a"))
    ended = await command("catalog", "upload", "feed.csv", "--catalog", "nowhere", "--json")
    assert (ended.code, ended.result) == (1, None)
    assert ended.error["status"] in {403, 404}


def test_anybody_can_try_it_on_a_sandbox(call: Call, here: Path) -> None:
    (here / "feed.xml").write_text("<rss><channel><item><g:id>1</g:id></item></channel></rss>")
    ended = call("catalog", "upload", "feed.xml", "--sandbox", "--json")
    assert (ended.code, ended.result["failed"]) == (5, 1)
    assert "0,1,title,must be given" in (here / "feed.xml.catalog-sandbox.upload.failures.csv").read_text()


@pytest.mark.parametrize(
    ("content", "options", "parameter"),
    keep_short(
        2,
        [
            ("id\n1\n", (), "--catalog"),
            ("<!DOCTYPE rss><rss/>", ("--sandbox",), "file"),
            ("id\n1\n", ("--sandbox", "--map", "id=nonsense"), "--map"),
            ("id\n1\n", ("--sandbox", "--report", "x.txt"), "--report"),
        ],
    ),
)
def test_wrong_input_is_one_line_and_exit_2(
    call: Call, here: Path, content: str, options: tuple[str, ...], parameter: str
) -> None:
    (here / "feed").write_text(content)
    ended = call("catalog", "upload", "feed", *options, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, parameter)
    assert len(ended.err.splitlines()) == 1


@pytest.mark.long("runs five commands in processes of their own")
async def test_the_list_of_a_catalog_has_the_keys_that_a_deletion_takes(
    command: Command, catalog: str, tmp_path: Path
) -> None:
    rows = [f"{row},{group}" for row, group in zip(feed("a", "b", "c").splitlines()[1:], ["g", "g", ""], strict=True)]
    (tmp_path / "feed.csv").write_text("\n".join([f"{HEADER.strip()},item_group_id", *rows]))
    assert (await command("catalog", "upload", "feed.csv", "--catalog", catalog)).code == 0

    listed = await command("catalog", "list", "--catalog", catalog)
    assert [row["id"] for row in csv.DictReader(listed.out.splitlines())] == ["a", "b", "c"]
    as_json = await command("catalog", "list", "--catalog", catalog, "--json")
    keys = {product["id"]: product["product_key"] for product in as_json.result["products"]}
    assert listed.out == "".join(f"{','.join(row)}\n" for row in [("id", "product_key"), *keys.items()])

    (tmp_path / "keys.csv").write_text(listed.out)
    assert (await command("catalog", "delete", "keys.csv", "--catalog", catalog)).code == 0
    assert (await command("catalog", "list", "--catalog", catalog)).out == "id,product_key\n"


def test_a_file_without_keys_is_told_where_they_come_from(call: Call, here: Path) -> None:
    (here / "gone.csv").write_text("id\na\n")
    ended = call("catalog", "delete", "gone.csv", "--sandbox")
    assert ended.code == 2
    assert "at least one of product_key" in ended.err
    assert ended.err.endswith(
        "; `svc-async catalog list` prints the product_key of each id, and a sync deletes by id\n"
    )
    assert call("catalog", "list").err == "svc-async: --catalog must be given\n"
