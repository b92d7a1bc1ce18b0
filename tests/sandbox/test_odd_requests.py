"""Requests that no well-meaning client sends: each is refused in the format of the call, and named."""

import asyncio
import json
import logging
import zlib
from typing import Any

import aiohttp
import pytest
from yarl import URL

from svc_async.sandbox import SandboxConfig, VirtualClock
from svc_async.sandbox.config import RateRule
from tests.support.raw_client import JSON, RawClient, hash_sha256
from tests.support.v2_client import V2Client

ONE_USER = {"operation_type": "Update", "params": {"users": [{"email": [hash_sha256("a")]}]}}


@pytest.fixture
def lists(raw: RawClient) -> str:
    return f"{raw.account}/line_item_curated_categories?count=5"


@pytest.mark.rule("GEN-12")
async def test_years_have_four_digits(raw: RawClient, v2: V2Client) -> None:
    search = "/12/insights/keywords/search"
    query = {"granularity": "DAY", "keywords": "x", "start_time": "0001-01-01T00:00:00Z"}
    got = await raw("GET", search, {**query, "end_time": "0001-01-02T00:00:00Z"})
    assert got.json["request"]["params"]["start_time"] == "0001-01-01T00:00:00Z"
    last = {**query, "start_time": "9999-12-31T00:00:00Z", "end_time": "9999-12-31T23:59:59Z"}
    assert len((await raw("GET", search, last)).data["tweet_volume"]) == 1
    assert (await raw("GET", search, {**query, "start_time": "201-01-01T00:00:00Z"})).status == 400
    got = await v2("GET", "/2/activity/stream", {"start_time": "0999-01-01T00:00:00Z"})
    assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.rule("GEN-12")
async def test_a_record_gives_back_the_year_that_it_was_given(raw: RawClient) -> None:
    item = raw.sandbox.add_line_item(end_time=None)
    got = await raw("PUT", f"{raw.account}/line_items/{item}", {"start_time": "0001-01-01T00:00:00Z"})
    assert got.data["start_time"] == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("body", [b"junk", zlib.compress(b"[]")[:5], b"\x1f\x8b" + b"\0" * 30])
async def test_a_body_that_is_not_of_its_encoding_is_refused(
    raw: RawClient, v2: V2Client, encoding: str, body: bytes
) -> None:
    headers = {**JSON, "Content-Encoding": encoding}
    got = await raw.send_users(body, headers=headers)
    assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", None)])
    got = await v2("POST", "/2/webhooks", data=body, headers=headers)
    assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")
    got = await raw("POST", "/_sandbox/events", base=raw.sandbox.base_url, data=body, headers=headers)
    assert (got.status, "json" in got.headers["Content-Type"]) == (400, True)
    assert (await raw("GET", raw.account)).status == 200


async def test_a_body_of_more_than_32_mib_is_refused_and_not_executed(raw: RawClient) -> None:
    body = json.dumps([ONE_USER]).encode().ljust(33 * 2**20)
    got = await raw.send_users(body)
    assert (got.status, got.codes, got.headers["Connection"]) == (413, [("INVALID_PARAMETER", None)], "close")
    assert raw.sandbox.audience(raw.sandbox.audience_id).users == []
    assert raw.sandbox.requests[-1].status == 413


async def test_json_is_nested_up_to_100_levels(raw: RawClient, v2: V2Client, subtests: pytest.Subtests) -> None:
    for levels in [101, 900, 5_000]:
        with subtests.test(levels=levels):
            deep: Any = b'{"a":' * levels + b"1" + b"}" * levels
            event = b'{"event_type":"post.create","payload":%b}' % deep
            got = await raw("POST", "/_sandbox/events", base=raw.sandbox.base_url, data=event, headers=JSON)
            assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")
            got = await v2(
                "POST", "/2/activity/subscriptions", data=b'{"event_type":"x","filter":%b}' % deep, headers=JSON
            )
            assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")
            got = await raw.send_users(deep)
            assert got.status == 400


@pytest.mark.rule("CAU-04")
async def test_a_name_stands_once_in_an_object(raw: RawClient, v2: V2Client) -> None:
    params = json.dumps(ONE_USER["params"])
    twice = f'[{{"operation_type":"Delete","operation_type":"Update","params":{params}}}]'.encode()
    assert (await raw.send_users(twice)).status == 400
    assert raw.sandbox.audience(raw.sandbox.audience_id).users == []
    rules = "/2/tweets/search/stream/rules"
    got = await v2("POST", rules, data=b'{"add":[{"value":"a","value":"b"}]}', headers=JSON)
    assert got.status == 400
    escaped = b'{"add":[{"value":"c","valu\\u0065":"d"}]}'
    assert (await v2("POST", rules, data=escaped, headers=JSON)).status == 400


@pytest.mark.rule("GEN-10")
@pytest.mark.parametrize("spelling", ["with_total_count=tru%65", "with%5Ftotal_count=true", "with_total_coun%74=true"])
@pytest.mark.parametrize("config", [SandboxConfig(rate_rules={"total_count": RateRule(1, 900, "user")})])
async def test_no_spelling_evades_the_limit_of_counted_lists(raw: RawClient, lists: str, spelling: str) -> None:
    got = await raw("GET", f"{lists}&{spelling}")
    assert (got.status, "total_count" in got.json) == (200, True)
    refused = await raw("GET", f"{lists}&with_total_count=true")
    assert (refused.status, refused.rule) == (429, "GEN-10")


async def test_an_encoded_name_hides_no_secret_from_the_log(raw: RawClient) -> None:
    await raw("GET", f"{raw.account}?oauth%5Ftoken=secret&acces%73_token=secret&%63ode=secret&shown=1")
    assert raw.sandbox.requests[0].query == "oauth%5Ftoken=***&acces%73_token=***&%63ode=***&shown=1"


@pytest.mark.rule("GEN-15")
async def test_a_url_is_utf_8(raw: RawClient, v2: V2Client) -> None:
    for path in (f"{raw.account}?name=%ff", f"{raw.account}?%c3=1", f"{raw.account}%ff"):
        got = await raw("PUT", path)
        assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", None)])
    got = await v2("GET", "/2/webhooks?a=%80")
    assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"grant_type=%ff", b"grant_type=\xff"):
        got = await raw("POST", "/2/oauth2/token", base=raw.sandbox.base_url, data=body, headers=form, authorization="")
        assert (got.status, got.json["error"]) == (400, "invalid_request")


LENIENT = SandboxConfig(unknown_parameters="ignore", booleans="any_case")


@pytest.mark.parametrize(("config", "status"), [(SandboxConfig(), 400), (LENIENT, 200)], ids=["default", "lenient"])
async def test_unknown_parameters_and_other_booleans_are_settings(
    raw: RawClient, v2: V2Client, lists: str, status: int
) -> None:
    statuses = [
        (await raw("GET", f"{lists}&colour=red")).status,
        (await raw("GET", f"{lists}&with_deleted=True")).status,
        (await v2("GET", "/2/webhooks", {"webhook_config.fields": "url"})).status,
        (await v2("POST", "/2/tweets/search/stream/rules", json={"add": [{"value": "a"}], "colour": 1})).status,
    ]
    assert statuses == [status] * 4
    assert (await raw("GET", f"{lists}&with_deleted=yes")).status == 400


@pytest.mark.parametrize("config", [LENIENT])
async def test_an_ignored_parameter_is_not_in_the_answer(raw: RawClient, lists: str) -> None:
    got = await raw("GET", f"{lists}&colour=red&with_total_count=TRUE")
    assert got.json["request"]["params"].keys() == {"account_id", "count", "with_total_count"}
    assert got.json["request"]["params"]["with_total_count"] is True
    assert got.headers["x-rate-limit-limit"] == "200"


@pytest.mark.parametrize("config", [SandboxConfig(expiry_months=1_000_000)])
async def test_a_failure_of_the_sandbox_is_answered_in_shape_and_logged(
    raw: RawClient, caplog: pytest.LogCaptureFixture, clock: VirtualClock
) -> None:
    with caplog.at_level(logging.ERROR):
        got = await raw.send_users([ONE_USER])
        clock.call_later(1, lambda: 1 / 0)
        base = raw.sandbox.base_url
        advanced = await raw("POST", "/_sandbox/clock/advance", base=base, data=b'{"seconds": 2}', headers=JSON)
    assert (got.status, got.codes) == (500, [("INTERNAL_ERROR", None)])
    assert (advanced.status, advanced.headers["Content-Type"]) == (500, "application/problem+json")
    assert raw.sandbox.requests[-1].status == 500
    answers = [got.json["errors"][0]["message"], advanced.json["detail"]]
    for record, answer in zip(caplog.records, answers, strict=True):
        assert record.getMessage().split()[1].removesuffix(":") in answer
        assert record.exc_info is not None


async def exchange(raw: RawClient, request: bytes) -> bytes:
    """Send bytes and return all that comes back until the connection is closed."""
    url = URL(raw.sandbox.base_url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("request_line", "status", "code"),
    [
        ("BREW {path} HTTP/1.1", 404, "ROUTE_NOT_FOUND"),
        ("GET {path} HTTP/9.7", 400, "INVALID_PARAMETER"),
        ("GET {path} HTTP/1.1\r\nContent-Length: -1", 400, "INVALID_PARAMETER"),
        ("GET {path} HTTP/1.1\r\nbad name: 1", 400, "INVALID_PARAMETER"),
        ("GET {path} HTTP/1.1\r\nHost: a\r\nHost: b", 400, "INVALID_PARAMETER"),
        ("GET {path} HTTP/1.0\r\nAccept: */*", 400, "INVALID_PARAMETER"),
        ("POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz", 400, "INVALID_PARAMETER"),
    ],
)
async def test_what_is_not_http_is_refused_with_one_line_in_the_log(
    raw: RawClient,
    caplog: pytest.LogCaptureFixture,
    request_line: str,
    status: int,
    code: str,
) -> None:
    with caplog.at_level(logging.INFO):
        sent = request_line.format(path=f"/ads{raw.account}")
        answer = await exchange(raw, f"{sent}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert b"Content-Type: application/json" in head
    assert json.loads(body)["errors"][0]["code"] == code
    assert json.loads(body)["request"] == {"params": {}}
    assert all(record.levelno <= logging.INFO and record.exc_info is None for record in caplog.records)
    assert len(caplog.records) <= 1


@pytest.mark.parametrize("before", ["", "GET /2/webhooks HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_a_url_that_is_too_long_is_refused_as_such(raw: RawClient, before: str) -> None:
    for path in (f"/ads{raw.account}?name={'x' * 8_200}", f"/ads/12/{'x' * 70_000}"):
        sent = f"{before}PUT {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        head, _, body = (await exchange(raw, sent.encode())).rpartition(b"\r\n\r\n")
        assert b" 414 " in head
        assert json.loads(body)["errors"] == [
            {"code": "INVALID_PARAMETER", "message": "the URL is longer than 8190 bytes"}
        ]


@pytest.mark.parametrize("header", ["X-Id: " + "x" * 8_200, "X-" + "y" * 8_200 + ": x"])
async def test_a_header_that_is_too_long_is_refused_as_such(raw: RawClient, header: str) -> None:
    sent = f"GET /ads{raw.account} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n\r\n"
    head, _, body = (await exchange(raw, sent.encode())).partition(b"\r\n\r\n")
    assert head.split()[1] == b"431"
    assert json.loads(body)["errors"][0]["message"] == "a header is longer than 8190 bytes"


async def test_what_is_not_http_at_all_is_refused(raw: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    for nonsense in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"{}\r\n\r\n"):
        assert (await exchange(raw, nonsense)).split()[1] == b"400"
    assert caplog.records == []


async def test_another_method_is_no_call(raw: RawClient, subtests: pytest.Subtests) -> None:
    for method in ["PATCH", "PROPFIND", "OPTIONS", "HEAD"]:
        with subtests.test(method=method):
            got = await raw(method, raw.account)
            assert got.status == 404
            assert method == "HEAD" or got.codes == [("ROUTE_NOT_FOUND", None)]


@pytest.mark.parametrize(
    ("config", "status"), [(SandboxConfig(), 421), (SandboxConfig(hosts=frozenset({"svc.example"})), 200)]
)
async def test_host_names_this_server(raw: RawClient, v2: V2Client, status: int) -> None:
    port = raw.sandbox.base_url.rpartition(":")[2]
    for host, expected in (("svc.example", status), (f"localhost:{port}", 200), (f"[::1]:{port}", 200)):
        header = raw.sign("GET", f"http://{host}/ads{raw.account}")
        got = await raw("GET", raw.account, authorization=header, headers={"Host": host})
        assert got.status == expected
    for host in ("rebound.example", "127.0.0.1.example", "192.0.2.1", "evil@127.0.0.1"):
        got = await raw("GET", raw.account, headers={"Host": host})
        assert (got.status, got.codes) in [(421, [("ROUTE_NOT_FOUND", "Host")]), (400, [("INVALID_PARAMETER", "Host")])]
        got = await v2("GET", "/2/webhooks", headers={"Host": host})
        assert (got.status in {400, 421}, got.headers["Content-Type"]) == (True, "application/problem+json")


async def test_the_control_api_is_closed_to_pages_of_other_sites(raw: RawClient) -> None:
    answer = await exchange(raw, b"GET /_sandbox/credentials HTTP/1.0\r\n\r\n")
    assert answer.split()[1] == b"400"
    for path, status in (("health", 200), ("nothing", 404)):
        got = await raw("GET", f"/_sandbox/{path}", base=raw.sandbox.base_url, authorization="")
        assert got.status == status
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        assert got.headers["Cross-Origin-Resource-Policy"] == "same-origin"


async def test_a_failure_in_the_middle_of_an_answer_cuts_it(v2: V2Client, caplog: pytest.LogCaptureFixture) -> None:
    await v2.subscribe("post.create")
    size: Any = "not a number"
    async with v2.stream("/2/activity/stream") as answer:
        v2.sandbox.streams["activity"].piece = size  # which `split_bytes` refuses
        await v2.sandbox.trigger("post.create")
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["incident"]


async def test_a_client_that_ends_in_the_middle_of_a_body_is_no_failure(
    raw: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{raw.account}/custom_audiences/{raw.sandbox.audience_id}/users"
    url = URL(f"{raw.sandbox.ads_url}{path}")
    assert url.host is not None
    authorization = raw.sign("POST", str(url))
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST {url.path} HTTP/1.1\r\nHost: {url.authority}\r\nAuthorization: {authorization}\r\nContent-Length: 100"
    with caplog.at_level(logging.INFO):
        writer.write(f"{head}\r\nContent-Type: application/json\r\n\r\n[".encode())
        await writer.drain()
        assert (await raw("GET", raw.account)).status == 200
        writer.transport.abort()
        assert (await raw("GET", raw.account)).status == 200
    assert caplog.records == []
