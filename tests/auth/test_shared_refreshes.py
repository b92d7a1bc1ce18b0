"""One grant in several sessions: each refresh token is sent once, and no session is left with a used one."""

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from svc_async import AppCredentials, BadRequest, Endpoints, OAuth2UserCredentials, Session
from svc_async.auth.tokens import Refreshes
from svc_async.errors import Sent
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from tests.support.scripted_server import Answer, ReceivedRequest, ScriptedServer

GRANT = "/2/oauth2/token"
SUBSCRIPTIONS = "/2/activity/subscriptions"
INVALID_GRANT = Answer({"error": "invalid_grant", "error_description": "The refresh token was used."}, 400)


@attrs.define
class Grants:
    """Gives the next token for the refresh token that it gave last, or else refuses, as a service that revokes does."""

    number: int = 0
    rotates: bool = True

    def __call__(self, request: ReceivedRequest) -> Answer:
        if request.form["refresh_token"] != [self.refresh_token]:
            return INVALID_GRANT
        self.number += 1
        token = {"access_token": f"access-{self.number}", "refresh_token": self.refresh_token, "expires_in": 7_200}
        return Answer({"token_type": "bearer", **token})

    @property
    def refresh_token(self) -> str:
        return f"refresh-{self.number if self.rotates else 0}"


@pytest.fixture(autouse=True)
def grants(service: ScriptedServer) -> Grants:
    grants = Grants()
    service.on("POST", GRANT, grants)
    service.on("GET", SUBSCRIPTIONS, Answer({"meta": {"result_count": 0}}))
    return grants


@pytest.fixture
def old(clock: VirtualClock) -> OAuth2UserCredentials:
    """Credentials that are about to expire."""
    return OAuth2UserCredentials(
        access_token="access-0", refresh_token="refresh-0", client_id="client", expires_at=clock.now()
    )


async def call(session: Session) -> None:
    await session.activity.subscriptions.list().collect()


def used(service: ScriptedServer, path: str = SUBSCRIPTIONS) -> list[Any]:
    """Return the tokens that arrived."""
    if path == GRANT:
        return [request.form["refresh_token"][0] for request in service.requests_to(GRANT)]
    return [request.authorization for request in service.requests_to(path)]


async def grant_scopes(sandbox: Sandbox, session: Session) -> OAuth2UserCredentials:
    pending = session.oauth2.authorization_url(
        scopes=["follow.read", "offline.access"], redirect_uri=sandbox.callback_url
    )
    return await session.oauth2.exchange(pending, redirect=sandbox.approve_oauth2(pending.url))


@pytest.mark.parametrize("stores", [True, False])
async def test_a_session_for_each_request_that_is_served_keeps_the_grant(*, stores: bool) -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(config=SandboxConfig(scoped_activity=True), clock=clock) as sandbox:
        app = AppCredentials(**sandbox.app)
        endpoints = Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url)
        async with Session(app, endpoints=endpoints, clock=clock) as session:
            stored = {"user": await grant_scopes(sandbox, session)}

            async def store(credentials: OAuth2UserCredentials) -> None:
                await asyncio.sleep(0)
                if stores:
                    stored["user"] = credentials

            async def serve() -> None:
                await call(session.as_user(stored["user"], on_token=store))

            await serve()
            for _ in range(3):
                await clock.advance(hours=3)
                await asyncio.gather(serve(), serve())
                await serve()


async def test_sessions_refresh_one_grant_once_and_each_is_told(
    service: ScriptedServer, old: OAuth2UserCredentials
) -> None:
    told: dict[str, list[str]] = {"own": [], "first": [], "second": []}

    def tell(name: str) -> Callable[[OAuth2UserCredentials], object]:
        return lambda credentials: told[name].append(credentials.access_token)

    async with service.session(old, on_token=tell("own")) as session:
        users = [session.as_user(old, on_token=tell(name)) for name in ("first", "second")]
        await asyncio.gather(*map(call, (session, *users)))
        await call(session.but(timeout=3))
    assert used(service, GRANT) == ["refresh-0"]
    assert used(service) == ["Bearer access-1"] * 4
    assert set(map(tuple, told.values())) == {("access-1",)}


async def test_credentials_that_a_session_has_used_are_followed_to_the_last_ones(
    service: ScriptedServer, old: OAuth2UserCredentials
) -> None:
    told: list[OAuth2UserCredentials] = []
    async with service.session(old) as session:
        for _ in range(3):
            await session.oauth2.refresh()
        user = session.as_user(old, on_token=told.append)
        await call(user)
        assert [each.refresh_token for each in told] == ["refresh-3"]
        assert await user.oauth2.refresh() == told[-1]
        assert await session.oauth2.refresh() == told[-1]  # as this session has that of the other
    assert used(service, GRANT) == ["refresh-0", "refresh-1", "refresh-2", "refresh-3"]


async def test_last_credentials_that_expire_are_refreshed(
    service: ScriptedServer, old: OAuth2UserCredentials, clock: VirtualClock
) -> None:
    told: list[OAuth2UserCredentials] = []
    async with service.session(old) as session:
        await call(session)
        await clock.advance(hours=3)
        await call(session.as_user(old, on_token=told.append))
    assert used(service, GRANT) == ["refresh-0", "refresh-1"]
    assert [each.refresh_token for each in told] == ["refresh-2"]


async def test_a_rejected_token_is_replaced_by_that_of_another_session(
    service: ScriptedServer, old: OAuth2UserCredentials
) -> None:
    service.on(
        "GET",
        SUBSCRIPTIONS,
        lambda request: Answer({"meta": {"result_count": 0}}, 200 if request.authorization.endswith("-1") else 401),
    )
    lasting = attrs.evolve(old, expires_at=None)
    async with service.session(lasting) as session:
        await asyncio.gather(call(session), call(session.as_user(lasting)))
        await call(session.as_user(lasting))
    assert used(service, GRANT) == ["refresh-0"]


async def test_who_leaves_or_closes_does_not_stop_the_refresh_for_others(
    service: ScriptedServer, old: OAuth2UserCredentials, clock: VirtualClock
) -> None:
    service.gate = asyncio.Event()
    async with service.session(old) as session:
        first, second = session.as_user(old), session.as_user(old)
        calls = [asyncio.create_task(call(each)) for each in (first, second)]
        await service.arrived.wait()
        closing = asyncio.create_task(first.close())
        await clock.advance(seconds=5)
        await closing
        service.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        await call(session.as_user(old))
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] is None
    assert used(service, GRANT) == ["refresh-0"]


async def test_the_end_of_all_sessions_waits_for_a_refresh_whose_session_was_closed(
    service: ScriptedServer, old: OAuth2UserCredentials, clock: VirtualClock
) -> None:
    service.gate = asyncio.Event()
    session = await service.session(old).open()
    user = session.as_user(old)
    calling = asyncio.create_task(call(user))
    await service.arrived.wait()
    for each in (user, session):
        closing = asyncio.create_task(each.close())
        await asyncio.sleep(0)
        assert not closing.done()
        await clock.advance(seconds=5)
        await closing
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_callback_that_fails_costs_other_sessions_nothing(
    service: ScriptedServer, old: OAuth2UserCredentials
) -> None:
    def store(_: OAuth2UserCredentials) -> None:
        raise OSError("no space left")

    async with service.session(old) as session:
        calls = call(session.as_user(old, on_token=store)), call(session.as_user(old))
        failed, done = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(failed, OSError)
    assert done is None


async def test_a_refresh_token_that_was_refused_is_sent_by_no_session_again(
    service: ScriptedServer, old: OAuth2UserCredentials
) -> None:
    service.on("POST", GRANT, INVALID_GRANT)
    raised = []
    async with service.session(old) as session:
        for user in (session, session, session.as_user(old)):
            with pytest.raises(BadRequest, check=lambda error: error.has_code("invalid_grant")) as caught:
                await call(user)
            raised.append(caught.value)
    assert [(error.sent, error.repeatable) for error in raised] == [
        (Sent.YES, False),
        (Sent.NO, False),
        (Sent.NO, False),
    ]
    assert raised[1] is not raised[2]  # each has a traceback of its own
    assert used(service, GRANT) == ["refresh-0"]


async def test_a_failure_that_passes_is_shared_and_not_kept(
    service: ScriptedServer, grants: Grants, old: OAuth2UserCredentials
) -> None:
    service.on("POST", GRANT, Answer("", 503), grants)
    async with service.session(old) as session:
        users = session.as_user(old), session.as_user(old)
        failed = await asyncio.gather(*map(call, users), return_exceptions=True)
        assert [getattr(error, "status", None) for error in failed] == [503, 503]
        await asyncio.gather(*map(call, users))
    assert used(service, GRANT) == ["refresh-0"] * 2


async def test_a_refresh_token_that_stays_the_same_is_used_again(
    service: ScriptedServer, grants: Grants, old: OAuth2UserCredentials
) -> None:
    grants.rotates = False
    async with service.session(old) as session:
        users = session.as_user(old), session.as_user(old)
        await asyncio.gather(*map(call, users))
        assert used(service, GRANT) == ["refresh-0"]
        assert (await session.oauth2.refresh()).access_token == "access-2"
        assert (await session.oauth2.refresh()).access_token == "access-3"


# --- what is kept


def renew_as(number: int) -> Callable[[OAuth2UserCredentials], Any]:
    async def request(before: OAuth2UserCredentials) -> OAuth2UserCredentials:
        return attrs.evolve(before, access_token=f"access-{number}", refresh_token=f"refresh-{number}")

    return request


async def test_a_refresh_token_that_is_given_a_second_time_is_not_a_used_one(old: OAuth2UserCredentials) -> None:
    refreshes = Refreshes()
    first = await refreshes.refresh(old, renew_as(1))
    again = await refreshes.refresh(first, renew_as(0))
    assert refreshes.find_latest(first) is again


async def test_the_oldest_refreshes_are_forgotten(old: OAuth2UserCredentials) -> None:
    refreshes, users = Refreshes(2), [attrs.evolve(old, refresh_token=name) for name in ("a", "b", "c")]
    renewed = [await refreshes.refresh(user, renew_as(number)) for number, user in enumerate(users)]
    assert [refreshes.find_latest(user) for user in users] == [users[0], *renewed[1:]]


async def test_no_token_shows(old: OAuth2UserCredentials) -> None:
    refreshes = Refreshes()
    await refreshes.refresh(old, renew_as(1))
    assert repr(refreshes) == "Refreshes(_most=10000)"
