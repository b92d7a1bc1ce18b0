"""The flows from end to end, against the sandbox."""

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from svc_async import (
    AppCredentials,
    BadRequest,
    Endpoints,
    Forbidden,
    OAuth2UserCredentials,
    Retries,
    Session,
    Unauthorized,
)
from svc_async.auth.credentials import Credentials
from svc_async.sandbox import Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


def session_of(sandbox: Sandbox, credentials: Credentials | None = None, **settings: object) -> Session:
    return Session(
        credentials or AppCredentials(**sandbox.app),
        app=AppCredentials(**sandbox.app),
        endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url),
        clock=sandbox.clock,
        retries=Retries.none(),
        **settings,  # type: ignore[arg-type]  # one test's own
    )


@pytest.mark.rule("AUTH-01", "AUTH-03", "AUTH-08", "AUTH-14", "AUTH-14c", "AUTH-14d", "AUTH-16", "AUTH-17", "ERR-01")
async def test_an_app_becomes_a_user_s_by_pin_and_stops_being_it(sandbox: Sandbox) -> None:
    async with session_of(sandbox) as session:
        token = await session.oauth1.request_token(callback="oob")
        granted = await session.oauth1.access_token(token, verifier=sandbox.approve(token.oauth_token))
        assert granted.user_id == sandbox.user_id
        with pytest.raises(Unauthorized):
            await session.oauth1.access_token(token, verifier="0000000")
    async with session_of(sandbox, granted.credentials(AppCredentials(**sandbox.app))) as session:
        assert [account.id async for account in session.accounts.list()] == [sandbox.account_id]
        gone = await session.oauth1.invalidate_token()
        assert gone.access_token == granted.oauth_token
        with pytest.raises(Unauthorized) as caught:
            await session.accounts.list().collect()
        assert caught.value.has_code(89)


@pytest.mark.rule("AUTH-12e", "AUTH-14c")
async def test_an_app_becomes_a_user_s_by_callback(sandbox: Sandbox) -> None:
    async with session_of(sandbox) as session:
        token = await session.oauth1.request_token(callback=sandbox.callback_url)
        verifier = sandbox.approve(token.oauth_token)
        redirect = f"{sandbox.callback_url}?oauth_token={token.oauth_token}&oauth_verifier={verifier}"
        read = session.oauth1.verifier(token, redirect)
        assert (await session.oauth1.access_token(token, verifier=read)).user_id == sandbox.user_id


async def test_a_callback_that_is_not_configured_is_refused(sandbox: Sandbox) -> None:
    async with session_of(sandbox) as session:
        with pytest.raises(Forbidden):
            await session.oauth1.request_token(callback="https://elsewhere.example.test/back")


@pytest.mark.rule("AUTH-20", "AUTH-20d", "AUTH-22b")
async def test_the_bearer_token_of_the_app_is_one_and_the_same(sandbox: Sandbox) -> None:
    async with session_of(sandbox) as session, session_of(sandbox) as another:
        assert await session.oauth2.token() == await another.oauth2.token()


@pytest.mark.rule("AUTH-22", "ERR-02")
async def test_an_app_with_a_wrong_secret_is_refused_with_code_99(sandbox: Sandbox) -> None:
    wrong = AppCredentials(consumer_key=sandbox.app["consumer_key"], consumer_secret="wrong")
    async with Session(wrong, endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url)) as session:
        for _ in range(2):
            with pytest.raises(Forbidden) as caught:
                await session.oauth2.token()
            assert caught.value.has_code(99)
    assert len([request for request in sandbox.requests if request.path == "/oauth2/token"]) == 1


async def granted(sandbox: Sandbox, session: Session) -> OAuth2UserCredentials:
    pending = session.oauth2.authorization_url(
        scopes=["follow.read", "offline.access"], redirect_uri=sandbox.callback_url
    )
    redirect = sandbox.approve_oauth2(pending.url)
    assert parse_qs(urlsplit(redirect).query)["state"] == [pending.state]
    return await session.oauth2.exchange(pending, redirect=redirect)


@pytest.mark.rule("AUTH-26")
async def test_a_user_grants_scopes_and_the_token_rotates(sandbox: Sandbox) -> None:
    told: list[OAuth2UserCredentials] = []
    async with session_of(sandbox) as session:
        first = await granted(sandbox, session)
    assert set(first.scopes) == {"follow.read", "offline.access"}
    async with session_of(sandbox, first, on_token=told.append) as session:
        second = await session.oauth2.refresh()
        third = await session.oauth2.refresh()
    assert told == [second, third]
    assert len({each.refresh_token for each in (first, second, third)}) == 3


async def test_a_refresh_token_works_once(sandbox: Sandbox) -> None:
    async with session_of(sandbox) as session:
        first = await granted(sandbox, session)
    async with session_of(sandbox, first) as session:
        await session.oauth2.refresh()
    async with session_of(sandbox, first) as session:
        with pytest.raises(BadRequest) as caught:
            await session.oauth2.refresh()
    assert caught.value.has_code("invalid_grant")
