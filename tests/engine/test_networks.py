"""Private certificate authorities, client certificates, proxies and another event loop."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator

import pytest
import trustme

from svc_async import Endpoints, Retries, Session, TransportError, UserCredentials
from svc_async.errors import Sent
from svc_async.sandbox import Sandbox
from tests.support.connect_proxy import run_proxy
from tests.support.errors import has


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def secure_sandbox(server_tls: ssl.SSLContext) -> AsyncIterator[Sandbox]:
    async with Sandbox(ssl_context=server_tls) as sandbox:
        yield sandbox


def open_session(sandbox: Sandbox, connector: ssl.SSLContext | None = None, proxy: str | None = None) -> Session:
    return Session(
        UserCredentials(**sandbox.credentials),
        endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url),
        connector=connector,
        proxy=proxy,
        retries=Retries.none(),
    )


async def test_a_private_authority_is_trusted_by_the_given_context(
    secure_sandbox: Sandbox, client_tls: ssl.SSLContext
) -> None:
    async with open_session(secure_sandbox, client_tls) as session:
        assert await session.accounts.list().first() is not None
    async with open_session(secure_sandbox) as session:
        with pytest.raises(TransportError, check=has(sent=Sent.NO)):
            await session.accounts.list().first()


async def test_a_private_authority_is_trusted_by_the_environment(
    secure_sandbox: Sandbox, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        async with open_session(secure_sandbox, ssl.create_default_context()) as session:
            assert await session.accounts.list().first() is not None


async def test_a_client_certificate_is_presented(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, authority: trustme.CA
) -> None:
    server_tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(server_tls)
    async with Sandbox(ssl_context=server_tls) as sandbox:
        async with open_session(sandbox, client_tls) as session:
            with pytest.raises(TransportError):
                await session.accounts.list().first()
        authority.issue_cert("client@example.test").configure_cert(client_tls)
        async with open_session(sandbox, client_tls) as session:
            assert await session.accounts.list().first() is not None


@pytest.mark.parametrize("user", [None, "ann:hush"])
async def test_https_goes_through_a_tunnel_of_the_proxy(
    secure_sandbox: Sandbox, client_tls: ssl.SSLContext, user: str | None
) -> None:
    port = int(secure_sandbox.ads_url.split(":")[2].partition("/")[0])
    async with run_proxy(user) as proxy, open_session(secure_sandbox, client_tls, proxy.url) as session:
        assert await session.accounts.list().first() is not None
        assert proxy.targets == [("CONNECT", "127.0.0.1", port)]


async def test_a_proxy_that_refuses_is_a_failure_without_its_password(
    secure_sandbox: Sandbox, client_tls: ssl.SSLContext
) -> None:
    async with run_proxy("ann:right") as proxy:
        wrong = proxy.url.replace("right", "hush")
        async with open_session(secure_sandbox, client_tls, wrong) as session:
            with pytest.raises(TransportError, check=has(sent=Sent.NO)) as caught:
                await session.accounts.list().first()
    assert proxy.refused == 1
    assert "hush" not in f"{caught.value!r} {caught.value.__cause__!r}"


async def test_plain_http_is_forwarded_by_the_proxy() -> None:
    async with Sandbox() as sandbox, run_proxy() as proxy, open_session(sandbox, proxy=proxy.url) as session:
        assert await session.accounts.list().first() is not None
    assert [method for method, _, _ in proxy.targets] == ["GET"]


@pytest.mark.parametrize(
    ("no_proxy", "tunnels"),
    [
        ("", 1),
        ("127.0.0.1", 0),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("*", 0), ("other.example.test", 1))),
    ],
)
async def test_the_environment_names_the_proxy_and_what_needs_none(
    secure_sandbox: Sandbox,
    client_tls: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    no_proxy: str,
    tunnels: int,
) -> None:
    async with run_proxy() as proxy:
        variables = {
            "SVC_BASE_URL": secure_sandbox.base_url,
            "SVC_ADS_URL": secure_sandbox.ads_url,
            "SVC_CONSUMER_KEY": secure_sandbox.credentials["consumer_key"],
            "SVC_CONSUMER_SECRET": secure_sandbox.credentials["consumer_secret"],
            "SVC_ACCESS_TOKEN": secure_sandbox.credentials["token"],
            "SVC_ACCESS_TOKEN_SECRET": secure_sandbox.credentials["token_secret"],
            "https_proxy": proxy.url,
            "no_proxy": no_proxy,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        async with Session.from_env(connector=client_tls) as session:
            assert await session.accounts.list().first() is not None
        assert len(proxy.targets) == tunnels


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run on Windows")
def test_another_event_loop_serves_calls_jobs_and_streams() -> None:
    import uvloop  # noqa: PLC0415 - it is not installed on Windows

    async def work() -> None:
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
            assert await session.accounts.list().first() is not None
            users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
            assert (await users.upload([{"email": "ann@example.test"}])).complete
            await session.activity.subscriptions.create(event_type="post.create", user_id=sandbox.user_id, tag="mine")
            async with session.activity.stream() as stream:
                await sandbox.trigger("post.create", payload={"text": "hello"})
                await anext(stream)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
