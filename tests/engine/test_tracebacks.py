"""Locals of the frames of this SDK hold no secret, whatever fails: error reporters send them elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from svc_async import (
    AppCredentials,
    BearerToken,
    Endpoints,
    OAuth2UserCredentials,
    Retries,
    Session,
    SvcError,
    UserCredentials,
)
from svc_async.auth.credentials import Credentials
from svc_async.engine.transport import Transport
from svc_async.governor.governor import Governor
from svc_async.platform.oauth1_flow import RequestToken
from svc_async.webhooks import SigningKey
from tests.support.raw_peer import OK, Peer, send
from tests.support.tracebacks import find_shown, list_frames

SECRET = "hush"
USER = UserCredentials(consumer_key="k", consumer_secret="hush-1", token="hush-2", token_secret="hush-3")
APP = AppCredentials(consumer_key="k", consumer_secret="hush-1", client_id="c", client_secret="hush-4")
SCOPED = OAuth2UserCredentials(access_token="hush-5", refresh_token="hush-6", client_id="c")

JSON = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
FAILURES = {
    "reset": b"",
    "garbage": b"\x00\x01\r\n\r\n",
    "cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
    "not JSON": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]",
    "odd": OK,
    "odd page": JSON % (11, b'{"data": 1}'),
    "400": b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n",
    "401": b'HTTP/1.1 401 X\r\nContent-Length: 26\r\n\r\n{"errors": [{"code": 89}]}',
    "403": b'HTTP/1.1 403 X\r\nContent-Length: 26\r\n\r\n{"errors": [{"code": 99}]}',
    "429": b"HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n",
    "504": b"HTTP/1.1 504 X\r\nContent-Length: 0\r\n\r\n",
    "407": b"HTTP/1.1 407 X\r\nContent-Length: 0\r\n\r\n",
    "wrong token": JSON % (51, b'{"token_type": "odd", "access_token": "hush-token"}'),
}
REQUEST_TOKEN = RequestToken(oauth_token="t", oauth_token_secret="hush-7", oauth_callback_confirmed="true")

Call = Callable[[Session], Awaitable[object]]


async def stream(session: Session) -> None:
    async with session.activity.stream() as events:
        async for _ in events:
            pass


async def exchange(session: Session) -> None:
    pending = session.oauth2.authorization_url(redirect_uri="https://example.test/back", scopes=["users.read"])
    await session.oauth2.exchange(pending, redirect=f"https://example.test/back?code=hush-8&state={pending.state}")


CALLS: dict[str, tuple[Credentials, Call]] = {
    "read": (USER, lambda session: session.accounts.get("a")),
    "list": (USER, lambda session: session.accounts.list().collect()),
    "query": (USER, lambda session: session.request("POST", "/12/accounts/a/x", params={"text": "hush-9"})),
    "raw": (USER, lambda session: session.request("POST", "/2/x", json={"text": "hush-9"})),
    "app token": (APP, lambda session: session.webhooks.list().collect()),
    "bearer": (BearerToken("hush-5"), lambda session: session.webhooks.list().collect()),
    "scoped": (SCOPED, lambda session: session.activity.subscriptions.list().collect()),
    "refresh": (SCOPED, lambda session: session.oauth2.refresh()),
    "verifier": (APP, lambda session: session.oauth1.access_token(REQUEST_TOKEN, verifier="hush-8")),
    "code": (APP, exchange),
    "invalidate": (USER, lambda session: session.oauth1.invalidate_token()),
}
SHORT = {"query", "app token", "refresh"}
"""Calls whose secrets are of different kinds."""


def find_leaks(error: BaseException) -> list[str]:
    """Return where secrets are to be seen: in the frames of this SDK, and in any exception."""
    return find_shown(error, SECRET)


@pytest.mark.parametrize(
    "call", [call if call in SHORT else pytest.param(call, marks=pytest.mark.long) for call in CALLS]
)
async def test_no_frame_and_no_exception_shows_a_secret(subtests: pytest.Subtests, peer: Peer, call: str) -> None:
    credentials, make_call = CALLS[call]
    for failure, answer in FAILURES.items():
        peer.script = peer.answer(answer, close=True)
        session = Session(
            credentials,
            app=APP if credentials is SCOPED else None,
            endpoints=Endpoints(base_url=peer.url, ads_url=peer.url),
            retries=Retries(attempts=2, first_wait=0),
            governor=Governor(max_wait=0),
            proxy=peer.url.replace("//", "//user:hush-proxy@"),
        )
        with subtests.test(failure):
            async with session:
                try:
                    await make_call(session)
                except SvcError as error:
                    assert find_leaks(error) == []


async def test_of_a_connection_that_fails_only_what_the_system_said_is_kept(transport: Transport) -> None:
    with pytest.raises(SvcError) as caught:
        await send(
            transport, "GET", "http://127.0.0.1:1/?q=hush", headers={"Authorization": "hush"}, body=b"hush", proxy=None
        )

    assert caught.value.__context__ is None
    assert type(caught.value.__cause__) is ConnectionRefusedError
    assert caught.value.__cause__.__traceback__ is None
    files = {Path(file).name for file, *_ in list_frames(caught.value.__traceback__)}
    assert files == {"test_tracebacks.py", "raw_peer.py", "transport.py"}


WRONG: dict[str, Callable[[], object]] = {
    "line break": lambda: UserCredentials(consumer_key="k", consumer_secret="hush\n", token="t", token_secret="s"),
    "list": lambda: UserCredentials(consumer_key="hush", consumer_secret=["hush"], token="t", token_secret="s"),  # type: ignore[arg-type]  # wrong on purpose
    "unknown": lambda: AppCredentials(consumer_key="hush", consumer_secret="hush", secret="hush"),  # type: ignore[call-arg]  # wrong on purpose
    "scheme": lambda: BearerToken("Bearer hush"),
    "scopes": lambda: OAuth2UserCredentials(access_token="hush", scopes=[1]),
    "host": lambda: Endpoints(base_url="https://user:hush@a.test", ads_url="https://a.test"),
    "key": lambda: SigningKey("hush", key_id=1),  # type: ignore[arg-type]  # wrong on purpose
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_what_is_refused_when_it_is_made_keeps_its_secrets(make: Callable[[], object]) -> None:
    with pytest.raises((SvcError, TypeError)) as caught:
        make()

    assert find_leaks(caught.value) == []


async def test_a_call_that_is_cancelled_shows_no_secret(peer: Peer) -> None:
    arrived = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()

    peer.script = hang
    async with Session(BearerToken("hush"), endpoints=Endpoints(base_url=peer.url, ads_url=peer.url)) as session:
        for call in (session.webhooks.list().collect(), stream(session)):
            task = asyncio.ensure_future(call)
            await arrived.wait()
            arrived.clear()
            task.cancel("by the test")
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert find_leaks(caught.value) == []
            assert caught.value.args == ("by the test",)


@pytest.mark.parametrize("proxy", ["socks5://user:hush@example.test", "http://user:hush@"])
def test_a_proxy_that_is_refused_keeps_its_password(proxy: str) -> None:
    with pytest.raises(SvcError) as caught:
        Session(USER, endpoints=Endpoints(base_url="https://a.test", ads_url="https://a.test"), proxy=proxy)

    assert find_leaks(caught.value) == []


@pytest.mark.parametrize(
    "variables", [{"SVC_CONSUMER_KEY": "k", "SVC_CONSUMER_SECRET": "hush-1"}, {"SVC_BEARER_TOKEN": "hush-1"}]
)
def test_an_environment_that_is_refused_keeps_its_secrets(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SvcError) as caught:
        Session.from_env()

    assert find_leaks(caught.value) == []
