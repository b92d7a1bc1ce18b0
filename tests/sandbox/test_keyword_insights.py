from typing import Any

import pytest

from tests.support.raw_client import RawClient

PATH = "/12/insights/keywords/search"
DAYS = {"granularity": "DAY", "keywords": "books", "start_time": "2026-06-01T00:00:00Z"}
WEEK = {**DAYS, "end_time": "2026-06-08T00:00:00Z"}


async def search(raw: RawClient, **query: str) -> Any:
    return await raw("GET", PATH, {**WEEK, **query})


@pytest.mark.rule("KW-05", "KW-06", "GEN-03")
async def test_the_answer_has_thirty_keywords_and_a_volume_for_each_period(raw: RawClient) -> None:
    got = await search(raw)
    assert got.json.keys() == {"request", "data"}
    assert got.data.keys() == {"related_keywords", "tweet_volume"}
    assert len(set(got.data["related_keywords"])) == 30
    assert [type(volume) for volume in got.data["tweet_volume"]] == [int] * 7
    hours = await search(raw, granularity="HOUR", end_time="2026-06-02T12:00:00Z")
    assert len(hours.data["tweet_volume"]) == 36


@pytest.mark.rule("KW-02", "KW-02b", "KW-06")
async def test_the_volume_is_of_the_keywords_only(raw: RawClient) -> None:
    books, ships = [(await search(raw, keywords=word)).data["tweet_volume"] for word in ("books", "ships")]
    both = (await search(raw, keywords="books,ships")).data["tweet_volume"]
    assert both == [one + other for one, other in zip(books, ships, strict=True)]
    assert (await search(raw, keywords="books,ships", negative_keywords="ships")).data["tweet_volume"] == books
    assert (await search(raw, negative_keywords="films,ships")).data["tweet_volume"] == books


@pytest.mark.rule("KW-01", "KW-02")
async def test_three_parameters_are_required(raw: RawClient) -> None:
    got = await raw("GET", PATH)
    assert got.codes == [("MISSING_PARAMETER", name) for name in ("granularity", "keywords", "start_time")]
    refused = await search(raw, granularity="WEEK")
    assert (refused.codes, refused.rule) == ([("INVALID_PARAMETER", "granularity")], "KW-01")
    for name in ("start_time", "end_time"):
        assert (await search(raw, **{name: "yesterday"})).codes == [("INVALID_PARAMETER", name)]


@pytest.mark.rule("KW-03", "LIM-08")
async def test_ten_keywords_of_both_kinds_are_the_most(raw: RawClient) -> None:
    six, five, four = (",".join(f"k{number}" for number in range(count)) for count in (6, 5, 4))
    assert (await search(raw, keywords=six, negative_keywords=four)).status == 200
    got = await search(raw, keywords=six, negative_keywords=five)
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "keywords")], "KW-03")
    assert (await search(raw, keywords=f"{six},{five}")).rule == "KW-03"


@pytest.mark.rule("KW-04")
async def test_seven_days_are_the_longest(raw: RawClient) -> None:
    got = await search(raw, end_time="2026-06-08T00:00:01Z")
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "end_time")], "KW-04")
    assert (await search(raw, end_time="2026-06-01T00:00:00Z")).status == 400


@pytest.mark.rule("KW-04", "KW-04b")
async def test_the_end_is_now_unless_given(raw: RawClient) -> None:
    early = await raw("GET", PATH, DAYS)
    assert (early.status, early.rule) == (400, "KW-04")
    got = await raw("GET", PATH, {**DAYS, "granularity": "HOUR", "start_time": "2026-06-10T02:00:00Z"})
    assert len(got.data["tweet_volume"]) == 10


@pytest.mark.rule("KW-07", "KW-07b")
async def test_results_are_of_one_country(raw: RawClient) -> None:
    usual, portugal = await search(raw), await search(raw, location="8d3c8ff8a0dc4be5")
    assert usual.data["tweet_volume"] != portugal.data["tweet_volume"]
    assert (await search(raw, location="96683cc9126741d1")).data == usual.data
    for other in ("5a2f0e1c9bd83471", "PT", "8d3c8ff8a0dc4be5,96683cc9126741d1"):
        refused = await search(raw, location=other)
        assert (refused.status, refused.codes, refused.rule) == (400, [("INVALID_PARAMETER", "location")], "KW-07")


async def test_it_has_a_limit_of_its_own(raw: RawClient) -> None:
    assert (await search(raw)).headers["x-rate-limit-limit"] == "500"
