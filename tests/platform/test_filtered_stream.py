"""Rules: what is sent, and which were not created."""

from typing import Any

import pytest

from svc_async import BadRequest, BearerToken, InvalidArgument
from svc_async.platform.filtered_stream import RefusedRule, Rule, StreamRule
from svc_async.session import Session
from tests.support.errors import has
from tests.support.scripted_server import Answer, ScriptedServer

ALL = "/2/tweets/search/stream/rules"
SENT = "2026-06-10T12:00:00.000Z"


def make_session(service: ScriptedServer, **settings: Any) -> Session:
    return service.session(BearerToken("mine"), **settings)


def build_changes(*data: dict[str, str], errors: list[dict[str, Any]] | None = None, **summary: int) -> Answer:
    body: dict[str, Any] = {"meta": {"sent": SENT, "summary": summary}}
    return Answer({**body, **({"data": data} if data else {}), **({"errors": errors} if errors else {})})


@pytest.mark.rule("FS-01", "VER-01")
async def test_rules_are_added(service: ScriptedServer) -> None:
    service.on(
        "POST", ALL, build_changes({"id": "1", "value": "cat", "tag": "pets"}, {"id": "2", "value": "dog"}, created=2)
    )

    async with make_session(service) as session:
        added = await session.filtered_stream.rules.add([Rule("cat", tag="pets"), "dog"])

    (seen,) = service.requests

    assert (seen.json, seen.query) == ({"add": [{"value": "cat", "tag": "pets"}, {"value": "dog"}]}, {})
    assert seen.authorization == "Bearer mine"
    assert added.created == (StreamRule(id="1", value="cat", tag="pets"), StreamRule(id="2", value="dog"))
    assert (added.not_created, added.summary.created) == ((), 2)
    assert added.sent is not None


@pytest.mark.parametrize(("dry_run", "query"), [(True, {"dry_run": "true"}), (False, {"dry_run": "false"})])
async def test_rules_are_tried(service: ScriptedServer, *, dry_run: bool, query: dict[str, str]) -> None:
    service.on("POST", ALL, build_changes(valid=1))

    async with make_session(service) as session:
        await session.filtered_stream.rules.add([{"value": "cat"}], dry_run=dry_run)
        await session.filtered_stream.rules.delete(["1"], dry_run=dry_run)

    assert [seen.query for seen in service.requests] == [query, query]


async def test_rules_that_were_not_created_are_named_by_position_and_reason(service: ScriptedServer) -> None:
    errors = [
        {"value": "dog", "id": "5", "title": "DuplicateRule", "type": "about:blank"},
        {"value": "(", "title": "InvalidRule", "detail": "unbalanced"},
    ]
    service.on("POST", ALL, build_changes({"id": "1", "value": "cat"}, errors=errors, created=1, not_created=3))

    async with make_session(service) as session:
        added = await session.filtered_stream.rules.add(["dog", "cat", "cat", "("])

    assert added.not_created == (
        RefusedRule(position=0, code="DuplicateRule", message="DuplicateRule"),
        RefusedRule(position=2),
        RefusedRule(position=3, code="InvalidRule", message="unbalanced"),
    )


async def test_no_rule_created_is_an_answer_not_an_error(service: ScriptedServer) -> None:
    service.on("POST", ALL, build_changes(errors=[{"value": "dog", "title": "DuplicateRule"}], not_created=1))

    async with make_session(service) as session:
        added = await session.filtered_stream.rules.add(["dog"])

    assert [refused.code for refused in added.not_created] == ["DuplicateRule"]


async def test_a_call_that_is_refused_as_a_whole_is_an_error(service: ScriptedServer) -> None:
    body = {"title": "Invalid Request", "detail": "One or more rules are invalid.", "type": "about:blank"}
    service.on("POST", ALL, Answer({**body, "errors": [{"value": "(", "title": "InvalidRule"}]}, 400))

    async with make_session(service) as session:
        with pytest.raises(BadRequest) as caught:
            await session.filtered_stream.rules.add(["("])

    assert caught.value.has_code("InvalidRule")
    assert caught.value.has_code("Invalid Request")


@pytest.mark.rule("FS-02")
async def test_a_rule_has_up_to_2048_characters(service: ScriptedServer) -> None:
    service.on("POST", ALL, build_changes({"id": "1", "value": "x" * 2048}))

    async with make_session(service) as session:
        await session.filtered_stream.rules.add(["x" * 2048])
        with pytest.raises(InvalidArgument, check=has(parameter="rules[1].value")) as caught:
            await session.filtered_stream.rules.add(["a", Rule("x" * 2049)])
        assert "xx" not in str(caught.value)
        with pytest.raises(InvalidArgument, check=has(parameter="rules[0].value")):
            await session.filtered_stream.rules.add([{"tag": "no value"}])
        with pytest.raises(InvalidArgument, check=has(parameter="rules")):
            await session.filtered_stream.rules.add([])
        with pytest.raises(InvalidArgument, check=has(parameter="rules")):
            await session.filtered_stream.rules.add("cat")

    assert len(service.requests) == 1

    async with make_session(service, validate=False) as session:
        await session.filtered_stream.rules.add(["x" * 2049])


@pytest.mark.rule("FS-05")
@pytest.mark.parametrize("operator", ["min-likes", "min-replies", "min-reposts"])
async def test_operators_that_returned_are_sent(service: ScriptedServer, operator: str) -> None:
    service.on("POST", ALL, build_changes({"id": "1", "value": f"cat {operator}:5"}))

    async with make_session(service) as session:
        await session.filtered_stream.rules.add([f"cat {operator}:5"])

    assert service.requests[0].json["add"][0]["value"] == f"cat {operator}:5"


@pytest.mark.rule("FS-01")
async def test_rules_are_listed(service: ScriptedServer) -> None:
    page = {"data": [{"id": "1", "value": "cat", "tag": "pets"}], "meta": {"sent": SENT, "next_token": "b"}}
    service.on("GET", ALL, Answer(page), Answer({"meta": {"sent": SENT}}))

    async with make_session(service) as session:
        assert await session.filtered_stream.rules.list().collect() == [StreamRule(id="1", value="cat", tag="pets")]


@pytest.mark.rule("FS-01")
async def test_rules_are_deleted_and_those_that_were_not_are_named(service: ScriptedServer) -> None:
    errors: list[dict[str, Any]] = [
        {"parameters": {"ids": ["2"]}, "message": "Rule does not exist"},
        {"value": "3", "title": "NotFound"},
    ]
    service.on("POST", ALL, build_changes(errors=errors, deleted=1, not_deleted=2))

    async with make_session(service) as session:
        deleted = await session.filtered_stream.rules.delete(["1", "2", "3"])
        with pytest.raises(InvalidArgument, check=has(parameter="ids")):
            await session.filtered_stream.rules.delete([])
        with pytest.raises(InvalidArgument, check=has(parameter="ids")):
            await session.filtered_stream.rules.delete("1")

    assert service.requests[0].json == {"delete": {"ids": ["1", "2", "3"]}}
    assert deleted.not_deleted == (
        RefusedRule(position=1, message="Rule does not exist"),
        RefusedRule(position=2, code="NotFound", message="NotFound"),
    )
    assert (deleted.summary.deleted, deleted.summary.not_deleted, deleted.summary.created) == (1, 2, None)
