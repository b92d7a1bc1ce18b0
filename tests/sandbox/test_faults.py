import asyncio
import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.sandbox import Fault, Faults, WrongArgument
from svc_async.sandbox.api import OPERATIONS
from svc_async.sandbox.server.faults import BATCHES_OF_PRODUCTS, BATCHES_OF_USERS, Calls
from tests.support.browser import Browser
from tests.support.errors import has
from tests.support.raw_client import RawClient
from tests.support.v2_client import RecordingReceiver, V2Client

USER = [{"operation_type": "Update", "params": {"users": [{"partner_user_id": ["1"]}]}}]
USERS = "*/custom_audiences/*/users"
PRODUCTS = "*/products"
OPERATION_ERRORS, PRODUCT_ERRORS = Fault.operation_errors({0: "no"}), Fault.product_errors({0: "no"})
NO_USERS = [
    ("PUT", PRODUCTS),
    ("POST", PRODUCTS),
    ("GET", "*/cards"),
    ("GET", "*"),
    ("PUT", USERS),
    ("POST", "/12/accounts/*/users"),  # the path begins with /ads or /ads-sandbox
    ("POST", "*/custom_audiences//users"),
    ("POST", "*/users/"),
    ("*", "*/custom_audiences/?/?/users"),
]
NO_PRODUCTS = [("POST", PRODUCTS), ("GET", PRODUCTS), ("PUT", "*/product"), ("DELETE", USERS), ("*", "*/cards")]


def count_users(raw: RawClient) -> int:
    return len(raw.sandbox.audience(raw.sandbox.audience_id).users)


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/line_item_curated_categories"


async def get_statuses(raw: RawClient, path: str, times: int) -> list[int]:
    return [(await raw("GET", path)).status for _ in range(times)]


async def test_the_nth_match_is_struck_and_no_other(raw: RawClient, path: str) -> None:
    raw.sandbox.faults.on("GET", "*/line_item_curated_categories").nth(2).do(Fault.http(503))
    assert (await raw("GET", raw.account)).status == 200
    assert await get_statuses(raw, path, 3) == [200, 503, 200]


async def test_a_plan_strikes_once_or_n_times_or_always(raw: RawClient, path: str) -> None:
    faults = raw.sandbox.faults
    faults.on("GET").once().do(Fault.http(500))
    assert await get_statuses(raw, path, 2) == [500, 200]
    faults.clear()
    faults.on("get").times(2).do(Fault.http(500))
    assert await get_statuses(raw, path, 3) == [500, 500, 200]
    faults.clear()
    faults.on().do(Fault.http(500))
    assert await get_statuses(raw, path, 3) == [500, 500, 500]


async def test_every_fault_counts_every_matching_request_whichever_strikes(raw: RawClient, path: str) -> None:
    faults = raw.sandbox.faults
    faults.on("GET").once().do(Fault.http(400))
    faults.on("GET").nth(2).do(Fault.http(409))
    assert await get_statuses(raw, path, 4) == [400, 409, 200, 200]


async def test_of_several_faults_the_first_that_was_armed_strikes(raw: RawClient, path: str) -> None:
    faults = raw.sandbox.faults
    for status in (400, 403, 409):
        faults.on("GET").once().do(Fault.http(status))
    late = faults.on("GET").nth(2).do(Fault.http(500))
    assert await get_statuses(raw, path, 4) == [400, 403, 409, 200]
    assert (late.seen, late.struck, late.preempted) == (4, 0, 1)
    assert faults.unused() == [late]


async def test_chance_comes_from_a_seed(raw: RawClient, path: str) -> None:
    runs = []
    for seed in (1, 1, 2):
        raw.sandbox.faults.clear()
        raw.sandbox.faults.on("*").probability(0.5, seed=seed).do(Fault.http(500))
        runs.append(await get_statuses(raw, path, 12))
    assert runs[0] == runs[1] != runs[2]
    assert set(runs[0]) == {200, 500}


@pytest.mark.parametrize(
    ("arm", "parameter"),
    [
        (lambda faults: faults.on("PSOT"), "method"),
        (lambda faults: faults.on("GET", None), "path"),
        (lambda faults: faults.on().nth(0), "nth"),
        (lambda faults: faults.on().times(0), "times"),
        (lambda faults: faults.on().times("2"), "times"),
        (lambda faults: faults.on().probability(20, seed=1), "probability"),
        (lambda faults: faults.on().probability("1", seed=1), "probability"),
        (lambda faults: faults.on().do(Fault.hang(), stage="Before"), "stage"),
        (lambda faults: faults.on().do(Fault.hang), "fault"),
        (lambda faults: faults.on().do("hang"), "fault"),
        *(
            (lambda faults, at=at, fault=fault: faults.on(*at).do(fault), "method")
            for fault, wrong in (
                (OPERATION_ERRORS, NO_USERS),
                (Fault.partial_counts(success=0), NO_USERS),
                (Fault.late(5, OPERATION_ERRORS), NO_USERS),
                (PRODUCT_ERRORS, NO_PRODUCTS),
            )
            for at in wrong
        ),
        (lambda faults: faults.on("POST", USERS).do(Fault.partial_counts(success=0), stage="before"), "stage"),
        (lambda faults: faults.on("PUT").do(PRODUCT_ERRORS, stage="after"), "stage"),
    ],
)
def test_what_could_never_strike_is_not_armed(arm: Callable[[Faults], object], parameter: str) -> None:
    faults = Faults()
    with pytest.raises(WrongArgument, check=has(parameter=parameter)):
        arm(faults)
    assert faults.armed == []


async def test_unused_faults_are_known(raw: RawClient, path: str) -> None:
    faults = raw.sandbox.faults
    faults.on("GET").once().do(Fault.http(503))
    faults.on("PUT").once().do(Fault.drop_connection(), stage="after")
    twice = faults.on("GET").times(3).do(Fault.latency(0))
    faults.on("*").probability(0.0, seed=1).do(Fault.hang())
    await get_statuses(raw, path, 2)
    assert [str(injection) for injection in faults.unused()] == [
        "drop_connection on PUT *, after: struck 0 times",
        "latency(0) on GET *, before: struck 1 times",
    ]
    assert (twice.seen, twice.struck) == (2, 1)


async def test_an_injected_error_has_the_configured_code_headers_and_body(raw: RawClient, path: str) -> None:
    raw.sandbox.faults.on().once().do(Fault.http(503, retry_after=7, headers={"x-mine": "1"}))
    got = await raw("GET", path)
    assert (got.status, got.codes) == (503, [("OVER_CAPACITY", None)])
    assert (got.headers["retry-after"], got.headers["x-mine"]) == ("7", "1")
    raw.sandbox.faults.on().once().do(Fault.http(400, code="TOO_MANY_JOBS"))
    assert (await raw("GET", path)).codes == [("TOO_MANY_JOBS", None)]
    raw.sandbox.faults.on().once().do(Fault.http(400, body=b"?"))
    assert (await raw("GET", path)).body == b"?"


async def test_an_error_before_spares_the_effect_and_one_after_does_not(raw: RawClient) -> None:
    raw.sandbox.faults.on("POST", USERS).once().do(Fault.http(503))
    assert ((await raw.send_users(USER)).status, count_users(raw)) == (503, 0)
    raw.sandbox.faults.on("POST", USERS).once().do(Fault.http(503), stage="after")
    assert ((await raw.send_users(USER)).status, count_users(raw)) == (503, 1)


@pytest.mark.parametrize("fault", [Fault.drop_connection(), Fault.reset_connection()], ids=lambda fault: fault.name)
@pytest.mark.parametrize(("stage", "users"), [("before", 0), ("after", 1)])
async def test_a_connection_is_dropped_before_or_after_the_effect(
    raw: RawClient, stage: Any, users: int, fault: Fault
) -> None:
    raw.sandbox.faults.on("POST", USERS).once().do(fault, stage=stage)
    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        await raw.send_users(USER)
    assert count_users(raw) == users
    assert raw.sandbox.requests[0].status is None
    assert (await raw.send_users(USER)).status == 200


async def test_a_429_says_when_or_keeps_silent(raw: RawClient, path: str) -> None:
    now = int(raw.sandbox.clock.now().timestamp())
    for seconds, reset in ((40, str(now + 40)), (-40, str(now - 40)), (None, None)):
        raw.sandbox.faults.on().once().do(Fault.rate_limited(seconds))
        got = await raw("GET", path)
        assert (got.status, got.headers.get("x-rate-limit-reset")) == (429, reset)
        assert got.headers["x-rate-limit-remaining"] == "0"
        raw.sandbox.faults.clear()
    raw.sandbox.faults.on().once().do(Fault.rate_limited(40, headers=False))
    assert not any(name.startswith("x-rate") for name in (await raw("GET", path)).headers)


async def test_latency_passes_on_the_sandbox_s_clock(raw: RawClient, path: str) -> None:
    raw.sandbox.faults.on("GET").once().do(Fault.latency(30))
    task = asyncio.create_task(raw("GET", path))
    await raw.sandbox.requests.wait()
    await raw.clock.advance(seconds=29)
    assert raw.sandbox.requests[0].status is None
    await raw.clock.advance(seconds=1)
    assert (await task).status == 200


async def test_hanging_lasts_until_the_sandbox_closes(raw: RawClient, path: str) -> None:
    raw.sandbox.faults.on("GET").once().do(Fault.hang())
    task = asyncio.create_task(raw("GET", path))
    await raw.sandbox.requests.wait()
    await raw.clock.advance(hours=24)
    assert not task.done()
    await raw.sandbox.aclose()
    with pytest.raises(aiohttp.ClientError):
        await task


async def test_a_body_is_cut_short(raw: RawClient, path: str) -> None:
    raw.sandbox.faults.on("GET").once().do(Fault.truncate(20))
    with pytest.raises(aiohttp.ClientPayloadError):
        await raw("GET", path)
    assert (await raw("GET", path)).status == 200


async def test_a_body_may_come_slowly(raw: RawClient, path: str) -> None:
    whole = await raw("GET", path)
    raw.sandbox.faults.on("GET").once().do(Fault.slow_body(5))
    task = asyncio.create_task(raw("GET", path))
    await raw.sandbox.requests.wait(count=2, answered=True)
    await raw.clock.advance(seconds=14)
    assert not task.done()
    await raw.clock.advance(seconds=60)
    assert (await task).body == whole.body


async def test_unreadable_answers(raw: RawClient, path: str) -> None:
    for fault, status in ((Fault.malformed_json(), 200), (Fault.empty(), 200), (Fault.html(502), 502)):
        raw.sandbox.faults.on("GET").once().do(fault)
        got = await raw("GET", path)
        raw.sandbox.faults.clear()
        assert got.status == status
        with pytest.raises(json.JSONDecodeError):
            _ = got.json
    assert got.headers["Content-Type"].startswith("text/html")
    assert b"502 Bad Gateway" in got.body


async def test_counts_may_be_wrong_while_all_took_effect(raw: RawClient) -> None:
    raw.sandbox.faults.on("POST", USERS).once().do(Fault.partial_counts(success=0))
    assert (await raw.send_users(USER)).data == {"success_count": 0, "total_count": 1}
    assert count_users(raw) == 1
    raw.sandbox.faults.on("POST", USERS).do(Fault.partial_counts(success=3, total=3))
    assert (await raw.send_users(USER)).data == {"success_count": 3, "total_count": 3}
    assert (await raw.send_users(b"{}")).status == 400


async def test_operations_are_refused_by_index(raw: RawClient) -> None:
    raw.sandbox.faults.on("POST", USERS).once().do(Fault.operation_errors({1: "no"}))
    got = await raw.send_users(USER * 3)
    assert got.status == 400
    assert [[error["message"] for error in found] for found in got.json["operation_errors"]] == [[], ["no"], []]
    assert count_users(raw) == 0


async def test_an_effect_may_come_late(raw: RawClient) -> None:
    raw.sandbox.faults.on("POST", USERS).once().do(Fault.late(90))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await raw.send_users(USER)
    assert count_users(raw) == 0
    await raw.clock.advance(seconds=89)
    assert count_users(raw) == 0
    await raw.clock.advance(seconds=1)
    assert count_users(raw) == 1


async def test_a_late_effect_may_be_answered_with_an_error_and_a_wrong_request_has_none(raw: RawClient) -> None:
    raw.sandbox.faults.on("POST", USERS).times(2).do(Fault.late(5, Fault.http(504)))
    assert (await raw.send_users(USER)).status == 504
    assert (await raw.send_users(b"[]")).status == 504
    await raw.clock.advance(seconds=5)
    assert count_users(raw) == 1


async def test_a_call_that_answers_in_its_own_time_may_take_effect_late(v2: V2Client, hook: RecordingReceiver) -> None:
    url = "https://hooks.example.test/svc"
    v2.sandbox.deliver_to(url, hook)
    v2.sandbox.faults.on("POST", "/2/webhooks").times(2).do(Fault.late(5, Fault.http(504)))
    assert [(await v2("POST", "/2/webhooks", json={"url": url})).status for _ in range(2)] == [504, 504]
    assert len(v2.sandbox.webhooks) == 0
    await v2.clock.advance(seconds=5)
    assert [webhook.url for webhook in v2.sandbox.webhooks.values()] == [url]


async def test_a_stream_is_not_opened_late(v2: V2Client) -> None:
    v2.sandbox.faults.on("GET", "/2/activity/stream").once().do(Fault.late(5, Fault.http(504)))
    assert (await v2("GET", "/2/activity/stream")).status == 504
    await v2.clock.advance(seconds=5)
    assert len(v2.sandbox.streams["activity"]) == 0
    assert (await v2("GET", "/2/webhooks")).status == 200  # on the same connection


async def test_two_stages_strike_one_request(raw: RawClient) -> None:
    raw.sandbox.faults.on("POST", USERS).once().do(Fault.latency(3))
    raw.sandbox.faults.on("POST", USERS).once().do(Fault.http(500), stage="after")
    task = asyncio.create_task(raw.send_users(USER))
    await raw.sandbox.requests.wait()
    await raw.clock.advance(seconds=3)
    assert ((await task).status, count_users(raw)) == (500, 1)
    assert raw.sandbox.requests[0].fault


async def test_an_injected_error_looks_as_that_part_of_the_service_has_it(
    raw: RawClient, subtests: pytest.Subtests
) -> None:
    for path, expected in [
        ("/1.1/oauth/invalidate_token", {"errors": [{"code": 130, "message": "injected"}]}),
        ("/oauth2/token", {"errors": [{"code": 130, "message": "injected"}]}),
        ("/2/oauth2/token", {"error": "temporarily_unavailable", "error_description": "injected"}),
        (
            "/2/webhooks",
            {
                "type": "about:blank",
                "title": "Service Unavailable",
                "detail": "OVER_CAPACITY: injected",
                "status": 503,
            },
        ),
    ]:
        with subtests.test(path=path, expected=expected):
            raw.sandbox.faults.on("POST", path).once().do(Fault.http(503, retry_after=5))
            got = await raw("POST", path, base=raw.sandbox.base_url)
            assert (got.status, got.json, got.headers["retry-after"]) == (503, expected, "5")


@pytest.mark.parametrize("path", ["/oauth/authorize", "/2/oauth2/authorize"])
async def test_an_injected_error_on_a_page_is_a_page(browser: Browser, path: str) -> None:
    browser.sandbox.faults.on("GET", path).once().do(Fault.http(500))
    got = await browser.open(path)
    assert (got.status, got.headers["Content-Type"]) == (500, "text/html;charset=utf-8")


@pytest.mark.parametrize(("status", "error"), [(500, "server_error"), (429, "temporarily_unavailable")])
async def test_an_error_of_a_grant_has_a_word_of_rfc_6749(raw: RawClient, status: int, error: str) -> None:
    raw.sandbox.faults.on("POST", "/2/oauth2/token").once().do(Fault.http(status))
    assert (await raw.post_form("/2/oauth2/token", {})).json["error"] == error


@pytest.mark.parametrize(
    "path",
    [
        "*",
        "*/users",
        USERS,
        "*users",
        "**/accounts/**",
        "/ads/12/accounts/18ce54d4x5t/custom_audiences/1nmth/users",
        "/ads-sandbox/12/batch/accounts/a/do_not_reach_lists/b/users",
        "/ads/12/*/[a-z]*/user[!x]",
        "/ads/??/accounts/?*x/custom_audiences/?/users",
    ],
)
def test_whatever_pattern_may_select_a_batch_is_armed(path: str) -> None:
    faults = Faults()
    for method in ("*", "POST"):
        faults.on(method, path).do(OPERATION_ERRORS)
    assert len(faults.armed) == 2


@pytest.mark.parametrize("calls", [BATCHES_OF_USERS, BATCHES_OF_PRODUCTS])
def test_the_calls_that_a_fault_can_strike_are_those_of_the_service(calls: Calls) -> None:
    known = {(operation.method, operation.path) for operation in OPERATIONS}
    assert {(method, path) for method in calls.methods for path in calls.paths} <= known
    if calls is BATCHES_OF_USERS:
        assert set(calls.paths) == {operation.path for operation in OPERATIONS if operation.batch}


@given(st.text(alphabet="/a*?bu", max_size=12), st.text(alphabet="ab", min_size=1, max_size=3))
@pytest.mark.long("tries a hundred examples")
def test_a_pattern_that_selects_a_call_is_never_refused(pattern: str, id_: str) -> None:
    calls = Calls("x", "x", ("GET",), ("/a/{id}/b",))
    for path in (f"/ads/a/{id_}/b", f"/ads-sandbox/a/{id_}/b"):
        for tried in (pattern, f"/ads*{pattern}", f"*{pattern}/b", f"/ads/a{pattern}"):
            if fnmatchcase(path, tried):
                assert calls.may_match("GET", tried)


async def test_a_fault_of_batches_leaves_other_requests_alone(raw: RawClient) -> None:
    users = raw.sandbox.faults.on().nth(2).do(OPERATION_ERRORS)
    counts = raw.sandbox.faults.on().nth(1).do(Fault.partial_counts(success=0))
    for path in (f"{raw.account}/cards", raw.account, f"{raw.account}/custom_audiences/x/users"):
        assert (await raw("GET", path)).status in {200, 404}
    assert (await raw.send_users(USER)).data == {"success_count": 0, "total_count": 1}
    assert (await raw.send_users(USER)).status == 400
    assert (users.seen, users.struck, counts.seen, counts.struck) == (2, 1, 2, 1)


async def test_a_body_that_is_no_batch_is_refused_as_ever(raw: RawClient) -> None:
    raw.sandbox.faults.on("POST", USERS).do(OPERATION_ERRORS)
    for body in (b"{}", b"[", b""):
        got = await raw.send_users(body)
        assert (got.status, "operation_errors" in got.json) == (400, False)


def test_what_happens_meanwhile_is_a_fault() -> None:
    with pytest.raises(WrongArgument, check=has(parameter="then")):
        Fault.late(5, "hang")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("make", [Fault.operation_errors, Fault.product_errors])
@pytest.mark.parametrize("messages", [{}, {"0": "no"}, {-1: "no"}, {0: 1}, {True: "no"}, ["no"], None])
def test_messages_are_strings_by_positions(make: Callable[[Any], Fault], messages: Any) -> None:
    with pytest.raises(WrongArgument, check=has(parameter="messages")):
        make(messages)
