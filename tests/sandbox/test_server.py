import asyncio
import json
import ssl
import time

import aiohttp
import attrs
import pytest
import trustme
from yarl import URL

from svc_async.sandbox import Fault, Sandbox, SandboxConfig, VirtualClock
from tests.support.raw_client import RawClient, open_raw_client

USER = [{"operation_type": "Update", "params": {"users": [{"partner_user_id": ["1"]}]}}]


async def test_the_request_log_records_requests_and_masks_the_signature(raw: RawClient) -> None:
    await raw("GET", raw.account, {"with_deleted": "true"})
    await raw.send_users(b"[]")
    first, second = raw.sandbox.requests
    assert (first.method, first.path, first.query) == ("GET", f"/ads{raw.account}", "with_deleted=true")
    assert (first.status, first.operation, first.rule, first.basis) == (200, "accounts.get", "ACC-02", "spec")
    assert 'oauth_signature="***"' in first.headers["authorization"]
    assert 'oauth_nonce="nonce1"' in first.headers["authorization"]
    assert (second.status, second.size, second.body) == (400, 2, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        first.status = 500  # type: ignore[misc]  # it is frozen, which is the point
    assert raw.sandbox.requests[-1] is second
    assert raw.sandbox.requests[:1] == [first]


async def test_other_credentials_are_hidden_whole(raw: RawClient) -> None:
    await raw("GET", raw.account, authorization="Bearer secret")
    assert raw.sandbox.requests[0].headers["authorization"] == "Bearer ***"


async def test_tokens_and_verifiers_are_hidden_wherever_they_stand(raw: RawClient) -> None:
    header = 'OAuth oauth_token="secret", oauth_verifier="secret", oauth_nonce="shown"'
    query = {"oauth_verifier": "secret", "access_token": "secret", "code_challenge": "shown", "code": "secret"}
    headers = {"Proxy-Authorization": "Basic secret"}
    await raw("POST", "/oauth/access_token", query, base=raw.sandbox.base_url, authorization=header, headers=headers)
    logged = str(raw.sandbox.requests[0])
    assert ("secret" in logged, logged.count("shown")) == (False, 2)


async def test_the_journal_counts_and_waits(raw: RawClient) -> None:
    requests = raw.sandbox.requests
    waiting = asyncio.create_task(requests.wait(count=2, route="*/users", method="POST", answered=True))
    await raw("GET", raw.account)
    await raw.send_users(USER)
    assert not waiting.done()
    raw.sandbox.faults.on().once().do(Fault.latency(1))
    last = asyncio.create_task(raw.send_users(USER))
    await requests.wait(count=3)
    assert not waiting.done()
    await raw.clock.advance(seconds=1)
    await last
    assert [entry.status for entry in await waiting] == [200, 200]
    assert (requests.count(), requests.count("*/users"), requests.count(method="PUT"), len(requests)) == (3, 2, 0, 3)


@pytest.mark.parametrize("config", [SandboxConfig(keep_bodies=True)])
async def test_bodies_are_kept_when_asked_for(raw: RawClient) -> None:
    await raw.send_users(USER)
    body = raw.sandbox.requests[0].body
    assert body is not None
    assert json.loads(body) == USER


async def test_one_seed_yields_one_state() -> None:
    one, same, other = Sandbox(seed=1), Sandbox(seed=1), Sandbox(seed=2)
    assert one.credentials == same.credentials != other.credentials
    assert one.add_audience() == same.add_audience() != one.add_audience()
    assert one.credentials.keys() == {"consumer_key", "consumer_secret", "token", "token_secret"}
    assert one.app.keys() == {"consumer_key", "consumer_secret", "client_id", "client_secret"}
    assert len(set(one.credentials.values()) | set(one.other_credentials.values())) == 6


async def test_sandboxes_share_nothing(raw: RawClient) -> None:
    async with Sandbox(clock=VirtualClock()) as other, open_raw_client(other) as beside:
        await beside.send_users(USER)
        assert len(other.audience(other.audience_id).users) == 1
    assert raw.sandbox.audience(raw.sandbox.audience_id).users == []
    assert len(raw.sandbox.requests) == 0


async def test_an_audience_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Sandbox().audience("nothing")


async def test_start_and_aclose_by_hand() -> None:
    sandbox = Sandbox(clock=VirtualClock())
    await sandbox.start()
    with pytest.raises(RuntimeError):
        await sandbox.start()
    async with open_raw_client(sandbox) as raw:
        assert (await raw("GET", raw.account)).status == 200
    await sandbox.aclose()
    await sandbox.aclose()
    with pytest.raises(aiohttp.ClientConnectorError):
        async with open_raw_client(sandbox) as raw:
            await raw("GET", raw.account)


async def test_it_closes_at_once_whatever_is_open() -> None:
    clock = VirtualClock()
    sandbox = Sandbox(clock=clock)
    await sandbox.start()
    async with open_raw_client(sandbox) as raw:
        await raw("GET", raw.account)
        sandbox.faults.on("GET").once().do(Fault.hang())
        sandbox.faults.on("GET").once().do(Fault.latency(60))
        calls = [asyncio.create_task(raw("GET", raw.account)) for _ in range(2)]
        await sandbox.requests.wait(count=3)
        began = time.perf_counter()
        await sandbox.aclose()
        took = time.perf_counter() - began
        assert await asyncio.gather(*calls, return_exceptions=True) != []
        assert all(isinstance(call.exception(), aiohttp.ClientError) for call in calls)
    assert took < 5.0  # no grace period of aiohttp's own (15 s, or for ever) was waited out


async def test_it_serves_https() -> None:
    authority = trustme.CA()
    server, client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with Sandbox(ssl_context=server, clock=VirtualClock()) as sandbox, open_raw_client(sandbox) as raw:
        assert sandbox.ads_url.startswith("https://127.0.0.1:")
        url = f"{sandbox.ads_url}{raw.account}"
        headers = {"Authorization": raw.sign("GET", url)}
        async with raw.http.get(URL(url, encoded=True), headers=headers, ssl=client) as got:
            assert got.status == 200
        question = {
            "response_type": "code",
            "client_id": sandbox.app["client_id"],
            "redirect_uri": sandbox.callback_url,
            "scope": "follow.read",
            "state": "s",
            "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            "code_challenge_method": "S256",
        }
        async with raw.http.get(f"{sandbox.base_url}/2/oauth2/authorize", params=question, ssl=client) as got:
            assert got.headers["Set-Cookie"].endswith("; Secure")


async def test_a_proxied_request_line_is_understood(raw: RawClient) -> None:
    url = URL(f"{raw.sandbox.ads_url}{raw.account}")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    header = raw.sign("GET", str(url))
    writer.write(f"GET {url} HTTP/1.1\r\nHost: {url.authority}\r\nAuthorization: {header}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("size", [2_500, pytest.param(50_000, marks=pytest.mark.long)])
async def test_many_users_are_held_and_found_again(raw: RawClient, size: int) -> None:
    for first in range(0, 4 * size, size):
        users = ",".join(f'{{"email":["{n:064x}"]}}' for n in range(first, first + size))
        got = await raw.send_users(f'[{{"operation_type":"Update","params":{{"users":[{users}]}}}}]'.encode())
        assert got.data["success_count"] == size
    held = raw.sandbox.audience(raw.sandbox.audience_id).users
    assert len(held) == 4 * size
    assert held[-1] == {"email": [f"{4 * size - 1:064x}"]}


@pytest.mark.parametrize("config", [SandboxConfig(requests_kept=3)])
async def test_the_request_log_keeps_the_latest_requests(raw: RawClient) -> None:
    requests = raw.sandbox.requests
    for number in range(5):
        await raw("GET", f"/12/accounts/{number}")
    assert [entry.path[-1] for entry in requests] == ["2", "3", "4"]
    assert (len(requests), requests.total, requests[0].number, requests[-1].number) == (3, 5, 2, 4)
    assert [entry.number for entry in requests[-2:]] == [3, 4]
    assert (requests.count("*/1"), requests.count("*/4", answered=True)) == (0, 1)
    with pytest.raises(IndexError):
        requests[3]
    seen = []
    for entry in requests:  # what comes meanwhile is seen too, and what is dropped is not
        seen.append(entry.number)
        if len(seen) < 3:
            await raw("GET", "/12/accounts/5")
            await raw("GET", "/12/accounts/6")
    assert seen == [2, 4, 6, 7, 8]


@pytest.mark.parametrize("config", [SandboxConfig(requests_kept=1)])
async def test_a_request_that_is_dropped_before_its_answer_is_not_logged_again(raw: RawClient) -> None:
    raw.sandbox.faults.on("GET").once().do(Fault.latency(1))
    slow = asyncio.create_task(raw("GET", raw.account))
    await raw.sandbox.requests.wait()
    await raw("GET", "/12/accounts")
    await raw.clock.advance(seconds=1)
    assert (await slow).status == 200
    assert [entry.path for entry in raw.sandbox.requests] == ["/ads/12/accounts"]
