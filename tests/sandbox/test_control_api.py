"""The control API."""

import inspect
import json
import re
import socket
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from svc_async import Session
from svc_async.sandbox import Fault, Sandbox, SystemClock
from svc_async.sandbox.api import control_faults
from tests.support.raw_client import RawAnswer, RawClient, open_raw_client
from tests.support.v2_client import RecordingReceiver, V2Client

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def ask(raw: RawClient) -> Ask:
    async def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        base = raw.sandbox.base_url
        return await raw(method, f"/_sandbox/{path}", base=base, data=data, headers=sent, authorization="")

    return call


async def test_health_reports_that_it_serves(raw: RawClient, ask: Ask) -> None:
    await raw("GET", raw.account)
    got = await ask("GET", "health")
    assert (got.status, got.json) == (200, {"status": "ok", "time": "2026-06-10T12:00:00Z", "requests": 1})


async def test_the_users_of_a_list_are_listed(ask: Ask, sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        account = session.account(sandbox.account_id)
        people = [{"partner_user_id": f"p{number}"} for number in range(10_001)]
        await account.custom_audience(sandbox.audience_id).users.upload(people)
        await account.do_not_reach_list(sandbox.do_not_reach_list_id).users.upload([{"email": "a@b.de"}])
    some = (await ask("GET", f"users?list_id={sandbox.audience_id}")).json
    rest = (await ask("GET", f"users?list_id={sandbox.audience_id}&first={some['next']}")).json
    kept_out = (await ask("GET", f"users?list_id={sandbox.do_not_reach_list_id}")).json

    assert (some["total"], some["next"], rest["next"]) == (10_001, 10_000, None)
    assert [*some["users"], *rest["users"]] == sandbox.audience(sandbox.audience_id).users
    assert kept_out["users"] == [{"email": [sha256(b"a@b.de").hexdigest()]}]


async def test_a_list_that_cannot_be_listed_is_refused(ask: Ask, subtests: pytest.Subtests) -> None:
    for query, status, about in [
        ("", 400, "list_id"),
        ("?list_id=none", 404, "such audience"),
        ("?list_id=1nmth&first=-1", 400, "first"),
    ]:
        with subtests.test(query=query, status=status, about=about):
            got = await ask("GET", f"users{query}")
            assert (got.status, about in got.json["detail"]) == (status, True)


async def test_credentials_are_ready_to_use(ask: Ask, sandbox: Sandbox) -> None:
    got = await ask("GET", "credentials")
    assert got.json == {**sandbox.credentials, **sandbox.app, "user_id": sandbox.user_id}


async def test_the_clock_is_advanced(ask: Ask, sandbox: Sandbox) -> None:
    ran = []
    sandbox.clock.call_later(90, lambda: ran.append(sandbox.clock.now().second))
    got = await ask("POST", "clock/advance", {"seconds": 120.5})
    assert (got.json, ran) == ({"time": "2026-06-10T12:02:00Z"}, [30])


async def test_the_clock_takes_a_number_of_seconds(ask: Ask, subtests: pytest.Subtests) -> None:
    for body in [None, {}, {"seconds": "60"}, {"seconds": True}, {"seconds": -1}, {"seconds": 1e12}]:
        with subtests.test(body=body):
            got = await ask("POST", "clock/advance", body)
            assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")
            assert "seconds" in got.json["detail"]


async def test_the_time_of_the_machine_is_not_advanced() -> None:
    async with Sandbox(clock=SystemClock()) as sandbox, open_raw_client(sandbox) as raw:
        headers = {"Content-Type": "application/json"}
        path = "/_sandbox/clock/advance"
        got = await raw("POST", path, base=sandbox.base_url, data=b'{"seconds":1}', headers=headers)
        assert got.status == 409


async def test_a_request_token_is_approved(raw: RawClient, ask: Ask, sandbox: Sandbox) -> None:
    app = {name: sandbox.app[name] for name in ("consumer_key", "consumer_secret")}
    for user, name in ((None, "anna"), ("1401775033290919936", "dario")):
        asked = await raw.call_signed(
            "POST", "/oauth/request_token", credentials=app, oauth_callback=sandbox.callback_url
        )
        token = {**app, "token": asked.form["oauth_token"], "token_secret": asked.form["oauth_token_secret"]}
        body = {"oauth_token": token["token"]} | ({} if user is None else {"user_id": user})
        verifier = (await ask("POST", "oauth/approve", body)).json["oauth_verifier"]
        got = await raw.call_signed("POST", "/oauth/access_token", credentials=token, oauth_verifier=verifier)
        assert got.form["screen_name"] == name


async def test_an_authorize_page_is_approved(ask: Ask, sandbox: Sandbox) -> None:
    query = f"response_type=code&client_id={sandbox.app['client_id']}&redirect_uri={sandbox.callback_url}"
    challenge = f"&scope=follow.read&state=s&code_challenge={'a' * 43}&code_challenge_method=S256"
    url = f"{sandbox.base_url}/2/oauth2/authorize?{query}{challenge}"
    got = await ask("POST", "oauth/approve", {"authorization_url": url})
    assert got.json["redirect_url"].startswith(f"{sandbox.callback_url}?state=s&code=")
    assert (await ask("POST", "oauth/approve", {"authorization_url": url.replace("callback", "x")})).status == 400


async def test_nothing_else_is_approved(ask: Ask, subtests: pytest.Subtests) -> None:
    for body, status in [
        ({}, 400),
        ({"oauth_token": 1}, 400),
        ({"oauth_token": "unknown"}, 404),
        ({"oauth_token": "unknown", "user_id": "nobody"}, 404),
        ([], 400),
        (b"{", 400),
        (b"\xff", 400),
    ]:
        with subtests.test(body=body, status=status):
            assert (await ask("POST", "oauth/approve", body)).status == status


async def test_they_are_for_this_machine_only(ask: Ask, sandbox: Sandbox) -> None:
    here = sandbox.base_url.removeprefix("http://")
    port = here.partition(":")[2]
    for good in ({}, {"Host": here}, {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}):
        assert (await ask("GET", "health", **good)).status == 200
    for foreign in (
        {"Host": "sandbox.example"},
        {"Host": "127.0.0.1.example"},
        {"Host": "192.0.2.1"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port}"},
    ):
        got = await ask("GET", "health", **foreign)
        assert (got.status, got.json["title"]) == (403, "Forbidden")
    assert (await ask("GET", "health", Host="[")).status == 400


async def test_a_peer_on_another_machine_is_refused() -> None:
    async with Sandbox(host="0.0.0.0") as sandbox, open_raw_client(sandbox) as raw:  # noqa: S104 it is refused there
        port = sandbox.base_url.rpartition(":")[2]
        here = {"Host": f"127.0.0.1:{port}"}
        for address, status in (("127.0.0.1", 200), (_address(), 403)):
            base = f"http://{address}:{port}"
            got = await raw("GET", "/_sandbox/health", base=base, headers=here, authorization="")
            assert got.status == status


def _address() -> str:
    """Return an address of this machine other than loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no other address")
        return str(probe.getsockname()[0])


async def test_a_form_is_no_json(ask: Ask) -> None:
    got = await ask("POST", "clock/advance", b'{"seconds":1}', **{"Content-Type": "text/plain"})
    assert got.status == 400


async def test_a_body_has_an_end(ask: Ask) -> None:
    got = await ask("POST", "events", b" " * 2**21)
    assert (got.status, got.json["status"]) == (413, 413)


async def test_they_are_no_part_of_the_service(raw: RawClient, ask: Ask) -> None:
    raw.sandbox.faults.on().do(Fault.http(503))
    assert (await ask("GET", "health")).status == 200
    assert len(raw.sandbox.requests) == 0
    for method, path in (("GET", "nothing"), ("POST", "health"), ("GET", "clock/advance")):
        assert (await ask(method, path)).status == 404


ACCOUNT = {"kind": "http", "method": "GET", "path": "*/accounts/*"}
USER = [{"operation_type": "Update", "params": {"users": [{"partner_user_id": ["1"]}]}}]


async def test_a_fault_is_armed_and_strikes(raw: RawClient, ask: Ask) -> None:
    armed = await ask("POST", "faults", {**ACCOUNT, "status": 503, "retry_after": 7, "times": 2})
    assert armed.json == {
        "number": 1,
        "fault": "http(503)",
        "method": "GET",
        "path": "*/accounts/*",
        "stage": "before",
        "when": "the first 2 requests",
        "seen": 0,
        "struck": 0,
    }
    got = [await raw("GET", raw.account) for _ in range(3)]
    assert [answer.status for answer in got] == [503, 503, 200]
    assert got[0].headers["retry-after"] == "7"
    assert [(each["seen"], each["struck"]) for each in (await ask("GET", "faults")).json["faults"]] == [(3, 2)]


KINDS = pytest.mark.parametrize("kind", control_faults.KINDS)
ONLY_IN_PYTHON = {"http": {"headers", "body"}, "rate_limited": {"headers"}}


@KINDS
def test_each_kind_of_fault_has_the_fields_of_the_python_api(kind: str) -> None:
    parameters = inspect.signature(getattr(Fault, kind)).parameters
    assert parameters.keys() - ONLY_IN_PYTHON.get(kind, set()) == {*control_faults.KINDS[kind].__struct_fields__}


def test_each_fault_of_the_python_api_is_a_kind() -> None:
    made = {name for name, each in vars(Fault).items() if isinstance(each, classmethod)}
    assert made == {*control_faults.KINDS}


@KINDS
def test_each_kind_of_fault_is_documented_with_its_fields(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs/sandbox.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}` |")]
    assert set(re.findall("`([a-z_]+)`", row.split("|")[2])) == {*control_faults.KINDS[kind].__struct_fields__}


async def test_fields_of_faults_do_what_the_arguments_do(raw: RawClient, ask: Ask) -> None:
    async def strike(**fault: object) -> RawAnswer:
        assert (await ask("POST", "faults", {"times": 1, **fault})).status == 200
        return await raw.send_users(USER * 3)

    assert (await strike(kind="http", status=400, code="TOO_MANY_JOBS", message="later")).json["errors"] == [
        {"code": "TOO_MANY_JOBS", "message": "later"}
    ]
    assert (await strike(kind="rate_limited", limit=7)).headers["x-rate-limit-limit"] == "7"
    assert (await strike(kind="partial_counts", success=1, total=9)).data == {"success_count": 1, "total_count": 9}
    got = await strike(kind="operation_errors", messages={"2": "no", "0": "nor this"}, code="ODD")
    assert [[(error["code"], error["message"]) for error in each] for each in got.json["operation_errors"]] == [
        [("ODD", "nor this")],
        [],
        [("ODD", "no")],
    ]
    assert (await strike(kind="late", seconds=5, then={"kind": "http", "status": 504})).status == 504
    assert (await strike(kind="empty", status=202)).status == 202
    assert (await strike(kind="html", status=200)).headers["Content-Type"].startswith("text/html")


async def test_a_wrong_field_of_a_fault_is_refused(ask: Ask, subtests: pytest.Subtests) -> None:
    for body, field in [
        ({"kind": "late", "delay": 5}, "delay"),
        ({"kind": "hang", "seconds": 5}, "seconds"),
        ({"kind": "late", "then": "hang"}, "then"),
        ({"kind": "late", "then": {"kind": "hang", "seconds": 1}}, "seconds"),
        ({"kind": "late", "then": {"kind": "hang", "times": 1}}, "times"),
        ({"kind": "operation_errors", "messages": []}, "messages"),
        ({"kind": "operation_errors", "messages": {"x": "no"}}, "messages"),
        ({"kind": "operation_errors", "messages": {"0": 1}}, "messages"),
        ({"kind": "operation_errors", "messages": {}}, "messages"),
        ({"kind": "operation_errors", "method": "PUT", "path": "*/products"}, "method"),
        ({"kind": "product_errors", "stage": "after"}, "stage"),
        ({"kind": "product_errors", "messages": {"-1": "no"}}, "messages"),
        ({"kind": "http", "code": 5}, "code"),
        ({"kind": "html", "status": 599}, "status"),
    ]:
        with subtests.test(body=body, field=field):
            got = await ask("POST", "faults", body)
            assert (got.status, got.failure) == (400, ("INVALID_PARAMETER", field))


async def test_the_refusal_of_a_field_names_those_that_a_fault_takes(ask: Ask) -> None:
    said = (await ask("POST", "faults", {"kind": "late", "delay": 5})).json["detail"]
    assert all(field in said for field in ("seconds", "then", "method", "path", "stage", "times", "nth", "seed"))


@KINDS
async def test_each_kind_of_fault_is_armed_with_its_defaults(ask: Ask, sandbox: Sandbox, kind: str) -> None:
    assert (await ask("POST", "faults", {"kind": kind})).status == 200
    (armed,) = sandbox.faults.armed
    assert armed.fault.name.partition("(")[0] == kind
    assert armed.stage == armed.fault.stage


async def test_a_fault_is_narrowed(ask: Ask, sandbox: Sandbox) -> None:
    for narrowed in ({"nth": 3}, {"probability": 0.25, "seed": 4}, {"stage": "after"}, {}):
        assert (await ask("POST", "faults", {"kind": "hang", **narrowed})).status == 200
    shown = [(fault["when"], fault["stage"]) for fault in (await ask("GET", "faults")).json["faults"]]
    assert shown == [
        ("only request 3", "before"),
        ("25% of the requests", "before"),
        ("every request", "after"),
        ("every request", "before"),
    ]
    assert (await ask("POST", "faults/disarm", {"number": 2})).status == 200
    assert [armed.number for armed in sandbox.faults.armed] == [1, 3, 4]
    assert (await ask("POST", "faults/disarm", {"number": 2})).status == 404
    assert (await ask("POST", "faults/clear")).json == {"faults": []}


async def test_a_fault_that_makes_no_sense_is_refused(ask: Ask, sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    for body in [
        {},
        {"kind": "lightning"},
        {"kind": "http", "status": "503"},
        {"kind": "http", "status": 200},
        {"kind": "http", "status": 599},
        {"kind": "http", "seconds": 1},
        {"kind": "latency", "seconds": True},
        {"kind": "latency", "seconds": -1},
        {"kind": "truncate", "size": 1.5},
        {"kind": "hang", "method": "get"},
        {"kind": "hang", "path": ""},
        {"kind": "hang", "path": 1},
        {"kind": "hang", "stage": "later"},
        {"kind": "hang", "times": 0},
        {"kind": "hang", "times": 1, "nth": 1},
        {"kind": "hang", "probability": 2},
        {"kind": "hang", "probability": 0.5, "seed": "x"},
    ]:
        with subtests.test(body=body):
            assert (await ask("POST", "faults", body)).status == 400
            assert sandbox.faults.armed == []


async def test_the_number_of_armed_faults_is_bounded(ask: Ask) -> None:
    assert [(await ask("POST", "faults", {"kind": "hang"})).status for _ in range(101)] == [200] * 100 + [409]


async def test_a_reset_returns_to_the_seed(raw: RawClient, ask: Ask, sandbox: Sandbox) -> None:
    v2, credentials, audience = V2Client(raw), sandbox.credentials, sandbox.add_audience()
    await raw.send_users(USER)
    for _ in range(5):
        assert (await raw("GET", "/12/accounts")).status == 200
    assert (await raw("GET", "/12/accounts")).status == 429
    sandbox.faults.on().do(Fault.http(503))
    sandbox.deliver_to("https://hooks.example.test/svc", RecordingReceiver(sandbox.app["consumer_secret"]))
    got = await ask("POST", "reset")
    assert got.json == {"status": "ok", "time": "2026-06-10T12:00:00Z", "requests": 7}
    assert (len(sandbox.requests), sandbox.faults.armed, sandbox.audience(sandbox.audience_id).users) == (0, [], [])
    with pytest.raises(KeyError):
        sandbox.audience(audience)
    assert (await raw("GET", "/12/accounts")).status == 200
    assert sandbox.requests[0].number == 7
    assert (sandbox.credentials, sandbox.add_audience()) == (credentials, audience)
    assert (await v2("POST", "/2/webhooks", json={"url": "https://hooks.example.test/svc"})).status == 200


async def test_a_reset_ends_what_is_under_way(v2: V2Client, sandbox: Sandbox, ask: Ask) -> None:
    sandbox.faults.on("POST", "*/users").once().do(Fault.late(60))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await v2.raw.send_users(USER)
    async with v2.stream("/2/activity/stream") as answer:
        assert (await ask("POST", "reset")).status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    await v2.clock.advance(seconds=120)
    assert (sandbox.audience(sandbox.audience_id).users, len(sandbox.streams["activity"])) == ([], 0)


async def test_a_sandbox_that_does_not_serve_is_reset_too() -> None:
    sandbox = Sandbox()
    audience = sandbox.add_audience()
    await sandbox.reset()
    with pytest.raises(KeyError):
        sandbox.audience(audience)
    async with sandbox, open_raw_client(sandbox) as raw:
        assert (await raw("GET", "/_sandbox/health", base=sandbox.base_url)).status == 200
