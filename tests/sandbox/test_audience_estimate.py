import json
from typing import Any

import pytest

from tests.support.raw_client import RawClient

KEYWORD = {"targeting_type": "BROAD_KEYWORD", "targeting_value": "books"}
COUNTRY = {"targeting_type": "LOCATION", "targeting_value": "8d3c8ff8a0dc4be5"}


async def estimate(raw: RawClient, body: Any, **headers: str) -> Any:
    sent = {"Content-Type": "application/json", **headers}
    return await raw("POST", f"{raw.account}/audience_estimate", data=json.dumps(body).encode(), headers=sent)


@pytest.mark.rule("EST-01", "EST-01b")
async def test_criteria_give_a_size(raw: RawClient) -> None:
    got = await estimate(raw, {"targeting_criteria": [KEYWORD, COUNTRY]})
    assert got.json.keys() == {"request", "data"}
    size = got.data["audience_size"]
    assert 0 <= size["min"] <= size["max"]
    assert (got.rule, got.basis) == ("ASM-16", "public")
    same = await estimate(raw, {"targeting_criteria": [KEYWORD, COUNTRY], "operator_type": "EQ"})
    assert same.data == got.data
    negated = await estimate(raw, {"targeting_criteria": [KEYWORD, COUNTRY], "operator_type": "NE"})
    assert negated.data != got.data


@pytest.mark.rule("EST-01")
async def test_criteria_are_an_array_of_objects(raw: RawClient, subtests: pytest.Subtests) -> None:
    wrong: list[Any] = [{}, "BROAD_KEYWORD", None, 7, ["BROAD_KEYWORD"], [{}], [{"targeting_type": 7}]]
    for criteria in wrong:
        with subtests.test(criteria=criteria):
            got = await estimate(raw, {"targeting_criteria": criteria})
            assert (got.status, got.rule) == (400, "EST-01")
            assert got.codes[0][1].startswith("targeting_criteria")


@pytest.mark.rule("EST-01")
async def test_criteria_are_required(raw: RawClient) -> None:
    assert (await estimate(raw, {})).codes == [("MISSING_PARAMETER", "targeting_criteria")]
    assert (await estimate(raw, [KEYWORD])).status == 400
    assert (await estimate(raw, {"targeting_criteria": [KEYWORD], "name": "x"})).codes == [
        ("INVALID_PARAMETER", "name")
    ]


@pytest.mark.rule("EST-01b")
async def test_the_operator_is_one_of_two(raw: RawClient, subtests: pytest.Subtests) -> None:
    for value in ["eq", "LT", "", 1, None]:
        with subtests.test(value=value):
            got = await estimate(raw, {"targeting_criteria": [KEYWORD], "operator_type": value})
            assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "operator_type")], "EST-01b")


@pytest.mark.rule("EST-01c")
async def test_one_criterion_must_be_primary(raw: RawClient) -> None:
    for criteria in ([], [COUNTRY]):
        got = await estimate(raw, {"targeting_criteria": criteria})
        assert (got.status, got.codes, got.rule) == (400, [("MISSING_PARAMETER", "targeting_criteria")], "EST-01c")


@pytest.mark.rule("EST-01", "GEN-16")
async def test_the_body_is_json_with_its_content_type(raw: RawClient) -> None:
    got = await estimate(raw, {"targeting_criteria": [KEYWORD]}, **{"Content-Type": "text/plain"})
    assert (got.status, got.rule) == (400, "GEN-16")
