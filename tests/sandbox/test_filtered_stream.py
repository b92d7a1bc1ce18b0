"""Rules of the filtered stream: how they are managed, and what they match."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.events.models import MatchedPost
from svc_async.events.parser import EventParser
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from svc_async.sandbox.push.rule_language import MalformedRule, Post, parse_rule
from tests.support.raw_client import open_raw_client
from tests.support.v2_client import RecordingReceiver, V2Client

RULES = "/2/tweets/search/stream/rules"
NOW = datetime(2026, 6, 10, tzinfo=UTC)
POST = {
    "text": "The Harbour opens at dawn: new #maps for @bruno, e-books too",
    "author_id": "7",
    "lang": "en",
    "public_metrics": {"like_count": 5, "reply_count": 2, "retweet_count": 1},
}


async def add_rules(v2: V2Client, *values: str, query: Any = ()) -> Any:
    return await v2("POST", RULES, query, json={"add": [{"value": value} for value in values]})


async def test_what_is_wrong_with_the_only_rule_is_said_once(v2: V2Client) -> None:
    got = await add_rules(v2, "(unclosed")
    assert (got.status, got.failure[0]) == (400, "InvalidRules")
    assert got.body.decode().count("the parenthesis at character 1 is not closed") == 1


@pytest.mark.rule("FS-01")
async def test_rules_are_added_listed_and_deleted(v2: V2Client) -> None:
    body = {"add": [{"value": "harbour", "tag": "h"}, {"value": "from:anna -maps"}]}
    got = await v2("POST", RULES, json=body)
    assert (got.status, got.rule) == (200, "FS-01")
    assert [{**rule, "id": ""} for rule in got.data] == [{"id": "", **rule} for rule in body["add"]]
    summary = {"created": 2, "not_created": 0, "valid": 2, "invalid": 0}
    assert got.json["meta"] == {"sent": "2026-06-10T12:00:00Z", "summary": summary}
    listed = await v2("GET", RULES)
    assert listed.json == {"data": got.data, "meta": {"sent": "2026-06-10T12:00:00Z", "result_count": 2}}
    first, second = (rule["id"] for rule in got.data)
    assert [rule["id"] for rule in (await v2("GET", RULES, {"ids": f"{second},9"})).data] == [second]
    page = await v2("GET", RULES, {"max_results": 1})
    rest = await v2("GET", RULES, {"pagination_token": page.json["meta"]["next_token"]})
    assert (page.data, rest.data) == (got.data[:1], got.data[1:])
    gone = await v2("POST", RULES, json={"delete": {"ids": [first, "9", first]}})
    assert gone.json["meta"]["summary"] == {"deleted": 1, "not_deleted": 1}
    assert [error["value"] for error in gone.json["errors"]] == ["9"]
    assert (await v2("GET", RULES)).data == got.data[1:]


@pytest.mark.rule("FS-01")
async def test_a_dry_run_changes_nothing(v2: V2Client) -> None:
    got = await add_rules(v2, "harbour", query={"dry_run": "true"})
    assert got.json["meta"]["summary"]["created"] == 1
    assert (await v2("GET", RULES)).data == []
    kept = await add_rules(v2, "harbour")
    await v2("POST", RULES, {"dry_run": "true"}, json={"delete": {"ids": [kept.data[0]["id"]]}})
    assert (await v2("GET", RULES)).data == kept.data


async def test_rules_that_cannot_be_added_are_reported_beside_those_that_can(v2: V2Client) -> None:
    await add_rules(v2, "harbour")
    got = await add_rules(v2, "harbour", "dawn", "dawn", "(dawn")
    assert [rule["value"] for rule in got.data] == ["dawn"]
    assert [(error["title"], error["detail"].split(":")[0]) for error in got.json["errors"]] == [
        ("DuplicateRule", "add[0]"),
        ("DuplicateRule", "add[2]"),
        ("InvalidRule", "add[3]"),
    ]
    assert got.json["meta"]["summary"] == {"created": 1, "not_created": 3, "valid": 3, "invalid": 1}


@pytest.mark.rule("FS-02", "LIM-10")
async def test_a_rule_has_up_to_2048_characters(v2: V2Client) -> None:
    longest = "ü" * 2048
    assert (await add_rules(v2, longest)).status == 200
    got = await add_rules(v2, f"{longest}x")
    assert (got.status, got.json["errors"][0]["title"]) == (400, "InvalidRule")


@pytest.mark.rule("FS-03", "LIM-10")
@pytest.mark.long("25,000 rules are added")
async def test_there_is_room_for_25000_rules(v2: V2Client) -> None:
    for start in range(0, 25_000, 5_000):
        got = await add_rules(v2, *(f"word{number}" for number in range(start, start + 5_000)))
        assert got.json["meta"]["summary"]["created"] == 5_000
    assert len((await v2("GET", RULES)).data) == 25_000
    more = await add_rules(v2, "one more")
    assert more.json["errors"][0]["title"] == "RulesCapExceeded"
    assert more.json["meta"]["summary"] == {"created": 0, "not_created": 1, "valid": 1, "invalid": 0}
    began = time.perf_counter()
    await v2.sandbox.trigger("post.create", payload={"text": "word24999"})
    assert time.perf_counter() - began < 10
    assert len(v2.sandbox.streams["filtered"].list_recorded(NOW, datetime(2027, 1, 1, tzinfo=UTC))) == 1


async def test_a_body_that_is_none_of_the_call_is_refused(v2: V2Client, subtests: pytest.Subtests) -> None:
    for body in [
        {},
        {"add": []},
        {"add": ["harbour"]},
        {"add": [{"tag": "x"}]},
        {"add": [{"value": ""}]},
        {"add": [{"value": 7}]},
        {"add": [{"value": "x", "tag": "t" * 201}]},
        {"add": [{"value": "x", "colour": "red"}]},
        {"add": {"value": "x"}},
        {"delete": {}},
        {"delete": {"ids": []}},
        {"delete": {"ids": "1"}},
        {"delete": ["1"]},
        {"add": [{"value": "x"}], "delete": {"ids": ["1"]}},
        {"change": []},
    ]:
        with subtests.test(body=body):
            got = await v2("POST", RULES, json=body)
            assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")


MATCHES = [
    ("harbour", True),
    ("HARBOUR", True),
    ("harbou", False),
    ("harbour dawn", True),
    ("harbour dusk", False),
    ("dusk OR dawn", True),
    ("dusk OR noon", False),
    ('"opens at dawn"', True),
    ('"at opens"', False),
    ("#maps", True),
    ("maps", False),
    ("@bruno", True),
    ("e-books", True),
    ("from:anna", True),
    ("from:@Anna", True),
    ("from:7", True),
    ("from:bruno", False),
    ("harbour -dusk", True),
    ("harbour -dawn", False),
    ('harbour -"opens at dawn"', False),
    ("harbour -(dusk OR dawn)", False),
    ("harbour -(dusk noon)", True),
    ("(dusk OR harbour) (dawn OR noon)", True),
    ("dusk OR harbour noon", False),
    ("harbour noon OR dawn", True),
    ("harbour -from:anna", False),
    ("lang:en harbour", True),
    ("lang:pt harbour", False),
    ("min_likes:5", True),
    ("min_likes:6", False),
    ("min-replies:2", True),
    ("min_reposts:2", False),
    ("harbour -min_likes:6", True),
]


@pytest.mark.parametrize(("rule", "expected"), MATCHES)
@pytest.mark.rule("FS-01", "FS-05")
def test_a_rule_matches_as_it_reads(rule: str, expected: bool) -> None:
    assert parse_rule(rule, NOW).matches(Post(POST, "anna", NOW)) is expected


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "  ",
        "OR",
        "harbour OR",
        "OR harbour",
        "harbour OR OR dawn",
        "(harbour",
        "harbour)",
        "()",
        "-",
        "--harbour",
        "-harbour",
        "-(harbour OR dawn)",
        '"harbour',
        '""',
        "!!!",
        "from:",
        "min_likes:many",
        "min_likes:-1",
        "colour:red",
        "(" * 1000 + "x" + ")" * 1000,
        "-" * 2000 + "x",
    ],
)
def test_a_rule_that_reads_as_nothing_is_malformed(rule: str) -> None:
    with pytest.raises(MalformedRule):
        parse_rule(rule, NOW)


_LEAVES = st.sampled_from(["harbour", "dawn", "dusk", '"at dawn"', "from:anna", "from:bruno", "min_likes:3"])
_RULES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from([" ", " OR "]), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("-"), inner),
    ),
    max_leaves=12,
)


def spell(rule: Any) -> str:
    """Write a rule with every parenthesis that it may have."""
    if isinstance(rule, str):
        return rule
    sign, inner = rule
    return f"-({spell(inner)})" if sign == "-" else f"({sign.join(map(spell, inner))})"


def decide(rule: Any, true: frozenset[str]) -> bool:
    """Decide a rule by the book."""
    if isinstance(rule, str):
        return rule in true
    sign, inner = rule
    if sign == "-":
        return not decide(inner, true)
    return (all if sign == " " else any)([decide(part, true) for part in inner])


@given(_RULES)
@pytest.mark.long("tries hundreds of examples")
def test_a_rule_is_decided_by_the_book(rule: Any) -> None:
    true = frozenset({"harbour", "dawn", '"at dawn"', "from:anna", "min_likes:3"})
    text = f"(harbour OR -harbour) {spell(rule)}"
    assert parse_rule(text, NOW).matches(Post(POST, "anna", NOW)) is decide(rule, true)


@given(st.text(alphabet='ab:()"- OR', max_size=30))
def test_any_text_is_a_rule_or_malformed(text: str) -> None:
    try:
        parse_rule(text, NOW).matches(Post(POST, "anna", NOW))
    except MalformedRule as error:
        assert str(error)


def test_what_a_post_has_not_is_not_found() -> None:
    for fields in (
        {},
        {"text": 7, "public_metrics": [], "referenced_posts": ["x"]},
        {"public_metrics": {"like_count": "x"}},
    ):
        post = Post(fields, "anna", NOW)
        assert not parse_rule("min_likes:1", NOW).matches(post)
        assert not parse_rule("harbour OR lang:en", NOW).matches(post)


@pytest.mark.rule("FS-05")
async def test_three_operators_were_gone_for_a_while(subtests: pytest.Subtests) -> None:
    for start, status in [
        ("2026-01-18T23:59:59Z", 200),
        ("2026-01-19T00:00:00Z", 400),
        ("2026-05-03T23:59:59Z", 400),
        ("2026-05-04T00:00:00Z", 200),
    ]:
        with subtests.test(start=start, status=status):
            async with Sandbox(clock=VirtualClock(start)) as sandbox, open_raw_client(sandbox) as raw:
                for operator in ("min_likes", "min_replies", "min_reposts", "min-likes"):
                    got = await add_rules(V2Client(raw), f"{operator}:{status}")
                    assert got.status == status
                    if status == 400:
                        assert got.json["errors"][0]["title"] == "InvalidRule"
                assert (await add_rules(V2Client(raw), "harbour")).status == 200


@pytest.mark.rule("FS-07")
def test_keywords_find_no_reposts_with_the_new_index() -> None:
    repost = {**POST, "referenced_posts": [{"type": "retweeted", "id": "1"}]}
    before, after = datetime(2026, 5, 3, tzinfo=UTC), datetime(2026, 5, 4, tzinfo=UTC)
    rule = parse_rule("harbour", NOW)
    assert [rule.matches(Post(repost, "anna", moment)) for moment in (before, after)] == [True, False]
    assert rule.matches(Post({**POST, "referenced_posts": [{"type": "quoted", "id": "1"}]}, "anna", after))
    assert rule.matches(Post({**POST, "referenced_posts": 7}, "anna", after))  # as a test may trigger it
    assert parse_rule("from:anna", NOW).matches(Post(repost, "anna", after))


@pytest.mark.rule("FS-01", "FS-04", "WH-60")
async def test_matching_posts_are_delivered_to_the_webhook_with_their_edit_history(
    v2: V2Client, hook: RecordingReceiver
) -> None:
    await v2.register(hook)
    body = {"add": [{"value": "harbour", "tag": "h"}, {"value": "dawn"}, {"value": "dusk"}]}
    rules = (await v2("POST", RULES, json=body)).data
    await v2.sandbox.trigger("post.create", payload={"text": "Nothing of that"})
    versions = ["10", "11", "12"]
    payload = {"id": "12", "text": "The harbour at dawn", "edit_history_post_ids": versions}
    await v2.sandbox.trigger("post.create", payload=payload)
    (event,) = hook.events
    assert event["data"].items() >= payload.items()
    assert event["matching_rules"] == [{"id": rules[0]["id"], "tag": "h"}, {"id": rules[1]["id"]}]
    assert hook.verified == [True]


@pytest.mark.parametrize("config", [SandboxConfig(closed_gates=frozenset({"enterprise"}))])
@pytest.mark.rule("FS-06")
async def test_filtered_stream_webhooks_are_for_enterprises(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    await add_rules(v2, "harbour")
    await v2.sandbox.trigger("post.create", payload={"text": "harbour"})
    assert hook.events == []
    assert len(v2.sandbox.streams["filtered"].list_recorded(NOW, datetime(2027, 1, 1, tzinfo=UTC))) == 1


async def test_the_rules_of_an_app_are_its_own(v2: V2Client) -> None:
    await add_rules(v2, "harbour")
    other = f"Bearer {v2.sandbox.bearer_token(v2.sandbox.public_app['consumer_key'])}"
    assert (await v2("GET", RULES, authorization=other)).data == []


async def test_a_post_looks_as_other_clients_expect_it(v2: V2Client) -> None:
    await v2.clock.advance(seconds=1.25)
    await add_rules(v2, "harbour")
    await v2.sandbox.trigger("post.create", payload={"text": "harbour"})
    (line,) = v2.sandbox.streams["filtered"].list_recorded(NOW, datetime(2027, 1, 1, tzinfo=UTC))
    message = json.loads(line)
    post, (user,) = message["data"], message["includes"]["users"]
    assert post["created_at"] == "2026-06-10T12:00:01.250Z"
    counters = ("retweet_count", "reply_count", "like_count", "quote_count", "bookmark_count", "impression_count")
    assert post["public_metrics"] == dict.fromkeys((*counters, "repost_count"), 0)
    assert (user["id"], user["username"], "screen_name" in user) == (post["author_id"], "anna", False)
    (event,) = EventParser().parse(line)
    assert isinstance(event, MatchedPost)
    assert (event.problem, event.misfits, event.post.created_at) == (None, (), v2.clock.now())
    assert event.post.public_metrics == post["public_metrics"]
