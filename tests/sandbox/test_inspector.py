"""The inspector's calls: what the page is made of, what it is sent, and who may ask."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partialmethod
from typing import Any

import aiohttp
import pytest

from svc_async.sandbox import Fault, RateRule, Sandbox, SandboxConfig, VirtualClock
from svc_async.sandbox.inspector.inspector import FILES, Inspector
from tests.support.raw_client import RawAnswer, RawClient, encode_basic, hash_sha256, open_raw_client
from tests.support.v2_client import RecordingReceiver, V2Client

USERS = [{"operation_type": "Update", "params": {"users": [{"email": [hash_sha256("anna@example.com")]}]}}]
PARTS = ("", *FILES, "feed", "request?number=0", "delivery?id=1", "state")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for what has changed as often as can be."""
    monkeypatch.setattr(Inspector, "__init__", partialmethod(Inspector.__init__, interval=0.01))


async def ask(raw: RawClient, path: str, **headers: str) -> RawAnswer:
    base = f"{raw.sandbox.base_url}/_sandbox/inspector/"
    return await raw("GET", path, base=base, headers=headers, authorization="")


class Page:
    """The messages of the feed that an open page has read."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def read(self) -> tuple[str, Any]:
        """Return the name and the data of the next message."""
        name = (await self.answer.content.readline()).decode().strip().removeprefix("event: ")
        data = (await self.answer.content.readline()).decode().removeprefix("data: ")
        assert await self.answer.content.readline() == b"\n"
        return name, json.loads(data)

    async def read_until(self, wanted: str) -> Any:
        while (message := await self.read())[0] != wanted:
            pass
        return message[1]


@asynccontextmanager
async def open_page(raw: RawClient) -> AsyncIterator[Page]:
    async with raw.http.get(f"{raw.sandbox.inspector_url}feed") as answer:
        assert answer.status == 200, await answer.text()
        yield Page(answer)


async def get_request(raw: RawClient, number: int) -> Any:
    return (await ask(raw, f"request?number={number}")).json


async def test_the_page_is_made_of_the_files_of_the_sandbox_only(raw: RawClient) -> None:
    page = await ask(raw, "")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html;charset=utf-8")
    assert page.body == (await ask(raw, "index.html")).body
    named = set(re.findall(r'(?:src|href)="([^"]+)"', page.text))
    assert named == {"icon.svg", "inspector.css", "main.js"}
    assert not re.search(r"<style|style=|<script>|\son\w+=|javascript:", page.text)
    for name in FILES:
        file = await ask(raw, name)
        assert file.status == 200
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|insertAdjacentHTML|document\.write|eval\(", file.text
        )
        imported = re.findall(r'^import .* from "\./(.+)";$', file.text, re.MULTILINE)
        assert len(imported) == len(re.findall(r"\bimport\b", file.text)) if name.endswith(".js") else not imported
        assert set(imported) <= set(FILES)


async def test_nothing_from_outside_may_run_in_the_page(raw: RawClient) -> None:
    headers = (await ask(raw, "")).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


async def test_no_other_page_reads_it(raw: RawClient, subtests: pytest.Subtests) -> None:
    for path in PARTS:
        with subtests.test(path=path):
            for foreign in (
                {"Host": "sandbox.example"},
                {"Origin": "https://elsewhere.example"},
                {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
                {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
                {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
                {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
            ):
                assert (await ask(raw, path, **foreign)).status == 403


async def test_a_link_on_another_page_opens_it(raw: RawClient) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await ask(raw, "", **visit)).status == 200


@pytest.mark.parametrize("path", ["faults", "faults/clear", "reset", "events", "clock/advance"])
async def test_no_other_page_acts(raw: RawClient, path: str) -> None:
    raw.sandbox.faults.on().do(Fault.http(503))
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for foreign in (visit, {"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "same-site"}):
        base = f"{raw.sandbox.base_url}/_sandbox/"
        got = await raw("POST", path, base=base, data=b"", headers=foreign, authorization="")
        assert got.status == 403
    assert len(raw.sandbox.faults.armed) == 1


@pytest.mark.parametrize(
    ("host", "shown"),
    [("0.0.0.0", "http://127.0.0.1:"), ("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")],  # noqa: S104 a name
)
def test_its_url_names_this_machine(host: str, shown: str) -> None:
    assert Sandbox(host=host, port=7).inspector_url == f"{shown}7/_sandbox/inspector/"


async def test_a_page_is_sent_what_there_is_and_then_what_changes(raw: RawClient) -> None:
    await raw("GET", raw.account)
    async with open_page(raw) as page:
        name, options = await page.read()
        assert (name, options["clock"], options["user_id"]) == ("hello", "manual", raw.sandbox.user_id)
        rows = await page.read_until("requests")
        assert [(row["number"], row["status"], row["rule"], row["basis"]) for row in rows] == [
            (0, 200, "ACC-02", "spec")
        ]
        assert (await page.read_until("present"))["requests"] == 1
        await raw("GET", raw.account, {"with_deleted": "TRUE"})
        (row,) = await page.read_until("requests")
        assert (row["number"], row["status"], row["reason"]) == (1, 400, "with_deleted must be true or false")
        await raw.clock.advance(seconds=90)
        while (await page.read_until("present"))["time"] != "2026-06-10T12:01:30Z":
            pass


async def test_an_open_request_is_sent_again_when_it_is_over(raw: RawClient) -> None:
    raw.sandbox.faults.on("GET").once().do(Fault.latency(5))
    async with open_page(raw) as page:
        call = asyncio.create_task(raw("GET", raw.account))
        (row,) = await page.read_until("requests")
        assert (row["status"], row["seconds"]) == (None, None)
        await raw.clock.advance(seconds=5)
        while row["seconds"] is None:
            (row,) = await page.read_until("requests")
        assert (row["status"], row["seconds"], row["faults"]) == (200, 5.0, ["latency(5)"])
        await call


async def test_a_reset_begins_anew(raw: RawClient) -> None:
    await raw("GET", raw.account)
    async with open_page(raw) as page:
        run = (await page.read_until("hello"))["run"]
        await raw.sandbox.reset()
        assert (await page.read_until("hello"))["run"] != run
        assert (await page.read_until("present"))["requests"] == 0
        await raw("GET", raw.account)
        (row,) = await page.read_until("requests")
        assert (row["number"], row["status"]) == (1, 200)


async def test_few_pages_are_open_at_once(raw: RawClient) -> None:
    pages = [open_page(raw) for _ in range(16)]
    for page in pages:
        await page.__aenter__()
    assert (await ask(raw, "feed")).status == 503
    await pages[0].__aexit__(None, None, None)
    status = 503
    while status == 503:  # until it has noticed
        async with raw.http.get(f"{raw.sandbox.inspector_url}feed") as answer:
            status = answer.status
    assert status == 200
    for page in pages[1:]:
        await page.__aexit__(None, None, None)


async def test_an_open_page_holds_no_time() -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, open_raw_client(sandbox) as raw, open_page(raw) as page:
        await page.read_until("hello")
        await clock.sleep(3600)
        assert clock.monotonic() >= 3600


async def test_a_request_is_shown_decoded(raw: RawClient) -> None:
    await raw.send_users(USERS)
    got = await get_request(raw, 0)
    assert (got["operation"], got["rule"], got["basis"]) == ("custom_audience_users.batch", "CAU-10", "spec")
    assert got["body"] == {
        "kind": "json",
        "size": len(json.dumps(USERS)),
        "text": json.dumps(USERS, indent=2),
        "cut": False,
    }
    assert json.loads(got["answer"]["body"]["text"])["data"] == {"success_count": 1, "total_count": 1}
    assert ["x-rate-limit-remaining", "1499"] in got["answer"]["headers"]
    assert got["statement"].startswith("The response `data` is")


async def test_a_refused_batch_names_its_first_operation(raw: RawClient) -> None:
    bad = {"operation_type": "Update", "params": {"users": [{"email": ["anna@example.com"]}]}}
    await raw.send_users([*USERS, bad, bad])
    assert raw.sandbox.requests[0].reason.startswith("operation 1")
    assert raw.sandbox.requests[0].reason.endswith("; 1 more")


async def test_a_dropped_connection_has_no_answer(raw: RawClient) -> None:
    raw.sandbox.faults.on().once().do(Fault.drop_connection())
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await raw("POST", raw.account, data=b"{}")
    got = await get_request(raw, 0)
    assert (got["status"], got["answer"], got["faults"]) == (None, None, ["drop_connection"])
    assert (got["body"]["text"], got["seconds"]) == ("{}", 0.0)


async def test_an_answer_is_shown_as_it_was_sent(raw: RawClient) -> None:
    raw.sandbox.faults.on().once().do(Fault.truncate(5))
    with pytest.raises(aiohttp.ClientPayloadError):
        await raw("GET", raw.account)
    assert (await get_request(raw, 0))["answer"]["body"] == {"kind": "text", "size": 5, "text": '{"req', "cut": False}


async def test_no_secret_is_shown(raw: RawClient) -> None:
    sandbox = raw.sandbox
    app = {name: sandbox.app[name] for name in ("consumer_key", "consumer_secret")}
    asked = await raw.call_signed("POST", "/oauth/request_token", credentials=app, oauth_callback="oob")
    token = {"token": asked.form["oauth_token"], "token_secret": asked.form["oauth_token_secret"]}
    pin = sandbox.approve(token["token"])
    granted = await raw.call_signed("POST", "/oauth/access_token", credentials={**app, **token}, oauth_verifier=pin)
    form = {"grant_type": "refresh_token", "refresh_token": "refresh-me", "client_id": sandbox.app["client_id"]}
    await raw.post_form("/2/oauth2/token", form)
    await raw.post_form("/2/oauth2/token", {"client_secret": sandbox.app["client_secret"]})
    await raw("GET", "/oauth/authorize", {"oauth_token": token["token"]}, base=sandbox.base_url, authorization="")
    shown = "".join([json.dumps(await get_request(raw, number)) for number in range(len(sandbox.requests))])
    secrets = {*app.values(), *token.values(), *granted.form.values(), pin, "refresh-me", sandbox.app["client_secret"]}
    public = {app["consumer_key"], granted.form["user_id"], granted.form["screen_name"]}
    assert [secret for secret in secrets - public if secret in shown] == []
    assert (granted.form["user_id"] in shown, "HTML" not in shown) == (True, True)


async def test_the_secrets_in_the_url_of_a_webhook_are_not_shown(
    v2: V2Client, raw: RawClient, hook: RecordingReceiver
) -> None:
    webhook_id = await v2.register(hook, "https://hooks.example.test/svc?token=secret&shop=7")
    await v2.subscribe("post.create", webhook_id=webhook_id)
    await raw.sandbox.trigger("post.create")
    delivery = (await ask(raw, f"delivery?id={raw.sandbox.deliveries[0].id}")).json
    assert delivery["url"] == "https://hooks.example.test/svc?token=***&shop=7"
    assert "secret" not in (await ask(raw, "state")).text


async def test_a_reason_is_bounded(raw: RawClient) -> None:
    body = {f"unknown{number}": 1 for number in range(1_000)}
    await V2Client(raw)("POST", "/2/webhooks", json=body)
    assert len(raw.sandbox.requests[-1].reason) == 1_000


async def test_a_request_that_a_reset_overtakes_is_forgotten(raw: RawClient) -> None:
    raw.sandbox.faults.on().once().do(Fault.latency(5))
    call = asyncio.create_task(raw("GET", raw.account))
    await raw.sandbox.requests.wait()
    await raw.sandbox.reset()
    await raw.clock.advance(seconds=5)
    assert (await call).status == 200
    assert (len(raw.sandbox.requests), raw.sandbox.requests.find_bodies(0)) == (0, None)


async def test_a_bearer_token_is_not_shown(raw: RawClient) -> None:
    authorization = encode_basic(raw.sandbox.app["consumer_key"], raw.sandbox.app["consumer_secret"])
    got = await raw.post_form("/oauth2/token", {"grant_type": "client_credentials"}, authorization=authorization)
    shown = await get_request(raw, 0)
    assert json.loads(shown["answer"]["body"]["text"]) == {"token_type": "bearer", "access_token": "***"}
    assert got.json["access_token"] not in json.dumps(shown)


@pytest.mark.parametrize("config", [SandboxConfig(bodies_kept=2_000)])
async def test_only_the_latest_bodies_are_kept(raw: RawClient) -> None:
    for _ in range(5):
        await raw("GET", raw.account)
    kept = [(await get_request(raw, number))["body"] is not None for number in range(5)]
    assert kept[0] is False
    assert kept[-1] is True
    await raw.send_users(b"[" + b" " * 10_000 + b"]")
    assert [(await get_request(raw, number))["body"] for number in range(6)] == [None] * 6


async def test_a_long_body_is_cut(raw: RawClient) -> None:
    await raw.send_users([USERS[0]] * 1_000)
    body = (await get_request(raw, 0))["body"]
    assert (body["cut"], len(body["text"]), body["size"]) == (True, 100_000, len(json.dumps([USERS[0]] * 1_000)))


@pytest.mark.parametrize("number", ["", "-1", "1", "x", "9" * 30, "%C2%B2"])
async def test_a_request_that_is_not_there_is_not_found(raw: RawClient, number: str) -> None:
    await raw("GET", raw.account)
    assert (await ask(raw, f"request?number={number}")).status == 404
    assert (await ask(raw, f"delivery?id={number}")).status == 404


async def test_a_delivery_is_shown_with_signature_and_attempts(
    v2: V2Client, raw: RawClient, hook: RecordingReceiver
) -> None:
    await v2.subscribe("post.create", webhook_id=await v2.register(hook))
    hook.ack = lambda: (500, {"content-type": "text/html"}, b"<b>no</b>")
    await raw.sandbox.trigger("post.create", payload={"text": "Hello"})
    hook.ack = lambda: (200, {}, b"")
    async with open_page(raw) as page:
        (row,) = await page.read_until("deliveries")
        assert (row["event_type"], row["state"], row["attempts"], row["status"]) == ("post.create", "retrying", 1, 500)
        await raw.clock.advance(minutes=1)
        (row,) = await page.read_until("deliveries")
        assert (row["state"], row["attempts"], row["verdict"]) == ("delivered", 2, "ok")
    got = (await ask(raw, f"delivery?id={row['id']}")).json
    assert json.loads(got["body"]["text"])["data"]["payload"]["text"] == "Hello"
    assert [(each["status"], each["rule"]) for each in got["tries"]] == [(500, "WH-41"), (200, "WH-41")]
    assert dict(got["tries"][0]["headers"])["x-svc-webhooks-signature"] == hook.headers[0]["x-svc-webhooks-signature"]
    assert got["tries"][0]["answer"]["text"] == "<b>no</b>"


@pytest.mark.parametrize("config", [SandboxConfig(rate_rules={"core_reads": RateRule(3, 900)})])
async def test_rate_limits_and_streams_are_shown_without_a_token(v2: V2Client, raw: RawClient) -> None:
    for _ in range(4):
        await raw("GET", f"{raw.account}/campaigns/8wku2")
    await raw("GET", "/12/accounts")
    async with v2.stream("/2/activity/stream"), open_page(raw) as page:
        present = await page.read_until("present")
    gauges = {(gauge["name"], gauge["scope"]): (gauge["used"], gauge["limit"]) for gauge in present["gauges"]}
    assert gauges["global_reads", "user anna"] == (1, 5)
    assert ("activity_connects", "app Harbour Desk") in gauges
    assert [(stream["product"], stream["number"], stream["stalled"]) for stream in present["streams"]] == [
        ("activity", 1, False)
    ]
    assert not [secret for secret in raw.sandbox.credentials.values() if secret in json.dumps(present)]


async def test_the_state_is_shown_in_tables(v2: V2Client, raw: RawClient, hook: RecordingReceiver) -> None:
    await raw.send_users(USERS)
    await v2.subscribe("post.create", tag="mine", webhook_id=await v2.register(hook))
    tables = {table["name"]: table for table in (await ask(raw, "state")).json["tables"]}
    audiences = {row[0]: row[4] for row in tables["Audiences"]["rows"]}
    assert (tables["Accounts"]["total"], audiences[raw.sandbox.audience_id]) == (3, 1)
    assert tables["Webhooks"]["rows"][0][1:3] == ["https://hooks.example.test/svc", "valid"]
    assert tables["Subscriptions and rules"]["rows"][0][1:4] == [
        "post.create",
        f"user_id {raw.sandbox.user_id}",
        "mine",
    ]
    assert all(table["total"] for table in tables.values())
    assert all(len(row) == len(table["columns"]) for table in tables.values() for row in table["rows"])


async def test_a_table_shows_its_latest_rows(raw: RawClient) -> None:
    added = [raw.sandbox.add_account(name="\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 1_000) for _ in range(150)]
    table = (await ask(raw, "state")).json["tables"][0]
    assert (table["total"], [row[0] for row in table["rows"]]) == (153, added[-100:])
    assert all(len(row[1]) <= 301 for row in table["rows"])


async def test_the_rows_that_a_page_is_sent_are_bounded(raw: RawClient) -> None:
    entry = None
    for _ in range(2):
        await raw("GET", raw.account, {"x": "y" * 2_000})
        entry = raw.sandbox.requests[0]
    assert entry is not None
    for number in range(2, 6_000):
        raw.sandbox.requests.add(type(entry)(**{**_fields(entry), "number": number}))
    async with open_page(raw) as page:
        rows: list[Any] = []
        while (message := await page.read())[0] != "present":
            rows += message[1] if message[0] == "requests" else []
    assert [row["number"] for row in rows] == list(range(4_000, 6_000))
    assert all(len(row["query"]) <= 301 for row in rows)


def _fields(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__ if not name.startswith("_")}
