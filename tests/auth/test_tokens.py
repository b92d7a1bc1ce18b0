"""The app-only bearer token and scoped tokens, as the calls of a session carry them."""

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest

from svc_async import (
    AccessDenied,
    AppCredentials,
    BearerToken,
    Forbidden,
    OAuth2UserCredentials,
    ServerError,
    Session,
    Unauthorized,
    UnexpectedAnswer,
)
from svc_async.auth.authorization import Authorization
from svc_async.auth.credentials import Credentials
from svc_async.auth.tokens import AppTokens, Token, UserTokens
from svc_async.errors import BadRequest, Hint
from svc_async.sandbox import VirtualClock
from tests.support.errors import has
from tests.support.scripted_server import APP, USER, Answer, ReceivedRequest, ScriptedServer

TOKEN = "/oauth2/token"
GRANT = "/2/oauth2/token"
CALL = "/2/webhooks"
NO_GOOD = Answer({"errors": [{"code": 89, "message": "Invalid or expired token"}]}, 401)
TOO_OFTEN = Answer({"errors": [{"code": 99, "message": "Unable to verify your credentials"}]}, 403)
NOTHING = Answer({"meta": {"result_count": 0}})


def token(value: str) -> Answer:
    return Answer({"token_type": "bearer", "access_token": value})


def only(*good: str) -> Callable[[ReceivedRequest], Answer]:
    """Answer those who carry one of these tokens."""
    return lambda request: NOTHING if request.authorization in {f"Bearer {value}" for value in good} else NO_GOOD


async def call(session: Session) -> None:
    await session.webhooks.list().collect()


async def at_once(*calls: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


# --- app-only


@pytest.mark.rule("AUTH-20", "AUTH-20b", "AUTH-20c", "AUTH-20d", "AUTH-25", "AUTH-25b")
@pytest.mark.parametrize("credentials", [USER, AppCredentials(**APP)])
async def test_a_session_with_an_app_gets_its_bearer_token_by_itself(
    service: ScriptedServer, credentials: Credentials
) -> None:
    service.on("POST", TOKEN, token("one%2Ftwo%3D"))
    service.on("GET", CALL, only("one%2Ftwo%3D"))
    async with service.session(credentials) as session:
        await call(session)
    asked, made = service.requests

    assert (asked.authorization, asked.body) == ("Basic a2V5Omh1c2gtMQ==", b"grant_type=client_credentials")
    assert asked.content_type == "application/x-www-form-urlencoded"
    assert made.authorization == "Bearer one%2Ftwo%3D"


async def test_key_and_secret_are_percent_encoded_before_they_are_joined(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("one"))
    async with service.session(AppCredentials(consumer_key="k:1", consumer_secret="s/ü")) as session:
        await session.oauth2.token()

    assert service.requests[0].authorization == "Basic ayUzQTE6cyUyRiVDMyVCQw=="  # k%3A1:s%2F%C3%BC


@pytest.mark.rule("AUTH-22b")
async def test_the_token_is_asked_for_once_and_kept(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("one"))
    service.on("GET", CALL, only("one"))
    async with service.session() as session:
        await at_once(*(call(session) for _ in range(5)))
        await call(session)
        assert (await session.oauth2.token()).access_token == "one"
        await call(session.but(timeout=3))

    assert len(service.requests_to(TOKEN)) == 1


@pytest.mark.rule("AUTH-17", "ERR-01")
async def test_of_several_calls_refused_with_one_token_one_renews_it(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("old"), token("new"))
    service.on("GET", CALL, only("old"))
    async with service.session() as session:
        await call(session)
        service.on("GET", CALL, only("new"))
        assert await at_once(*(call(session) for _ in range(5))) == [None] * 5

    assert len(service.requests_to(TOKEN)) == 2


async def test_a_token_that_another_call_renewed_is_not_renewed_again(clock: VirtualClock) -> None:
    fetched = iter(["old", "new", "newer"])

    async def fetch() -> str:
        return next(fetched)

    tokens = AppTokens(fetch, clock)

    assert await tokens.current() == Token("old")
    assert await tokens.renew(Token("old")) == Token("new")
    assert await tokens.renew(Token("old")) == Token("new")


async def test_a_second_refusal_is_final(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("old"), token("new"), token("newer"))
    service.on("GET", CALL, NO_GOOD)
    async with service.session() as session:
        with pytest.raises(Unauthorized, check=lambda error: error.has_code(89)):
            await call(session)

    assert (len(service.requests_to(TOKEN)), len(service.requests_to(CALL))) == (2, 2)


async def test_a_service_that_gives_the_refused_token_again_is_not_asked_again_for_a_while(
    service: ScriptedServer, clock: VirtualClock
) -> None:
    service.on("POST", TOKEN, token("same"))
    service.on("GET", CALL, NO_GOOD)
    async with service.session() as session:
        for _ in range(3):
            with pytest.raises(Unauthorized, check=lambda error: error.has_code(89)):
                await call(session)
        assert (len(service.requests_to(TOKEN)), len(service.requests_to(CALL))) == (2, 2)
        await clock.advance(seconds=900)
        service.on("GET", CALL, only("same"))
        await call(session)


async def test_a_service_that_gives_the_refused_token_again_may_accept_it_again(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("same"))
    service.on("GET", CALL, NOTHING, NO_GOOD, NOTHING)
    async with service.session() as session:
        for _ in range(3):
            await call(session)

    assert (len(service.requests_to(TOKEN)), len(service.requests_to(CALL))) == (2, 4)


@pytest.mark.parametrize("status", [401, 403])
async def test_only_code_89_renews(service: ScriptedServer, status: int) -> None:
    service.on("POST", TOKEN, token("one"))
    service.on("GET", CALL, Answer({"title": "Unauthorized", "detail": "no"}, status))
    async with service.session() as session:
        with pytest.raises((Unauthorized, Forbidden)):
            await call(session)

    assert (len(service.requests_to(TOKEN)), len(service.requests_to(CALL))) == (1, 1)


@pytest.mark.rule("AUTH-22", "ERR-02")
async def test_code_99_is_final_for_a_while_and_all_who_wait_share_it(
    service: ScriptedServer, clock: VirtualClock
) -> None:
    service.on("POST", TOKEN, TOO_OFTEN, token("one"))
    service.on("GET", CALL, only("one"))
    async with service.session() as session:
        failures = await at_once(*(call(session) for _ in range(4)))
        assert [type(failure) for failure in failures] == [Forbidden] * 4
        assert all(failure.has_code(99) for failure in failures)
        await clock.advance(seconds=899)
        with pytest.raises(Forbidden, check=lambda error: error.has_code(99)):
            await call(session)
        assert len(service.requests_to(TOKEN)) == 1
        await clock.advance(seconds=1)
        await call(session)

    assert len(service.requests_to(TOKEN)) == 2


async def test_a_passing_failure_is_shared_but_not_remembered(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, Answer("", 502), token("one"))
    service.on("GET", CALL, only("one"))
    async with service.session() as session:
        failures = await at_once(call(session), call(session))
        assert [type(failure) for failure in failures] == [ServerError] * 2
        await call(session)

    assert len(service.requests_to(TOKEN)) == 2


async def test_who_leaves_while_the_token_is_on_its_way_does_not_stop_it_for_others(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("one"))
    service.on("GET", CALL, only("one"))
    service.gate = asyncio.Event()
    async with service.session() as session:
        first, second = (asyncio.ensure_future(call(session)) for _ in range(2))
        await service.arrived.wait()
        first.cancel()
        await asyncio.wait({first})
        service.gate.set()
        await second

    assert first.cancelled()
    assert len(service.requests_to(TOKEN)) == 1


async def test_a_flight_that_everybody_left_ends_with_its_session(service: ScriptedServer, clock: VirtualClock) -> None:
    service.on("POST", TOKEN, token("one"))
    service.gate = asyncio.Event()
    session = await service.session().__aenter__()
    left = asyncio.ensure_future(call(session))
    await service.arrived.wait()
    left.cancel()
    await asyncio.wait({left})
    closing = asyncio.ensure_future(session.__aexit__(None, None, None))
    await asyncio.sleep(0)

    assert not closing.done()
    await clock.advance(seconds=5)
    await closing


async def test_a_given_bearer_token_is_carried_and_never_asked_for(service: ScriptedServer) -> None:
    service.on("GET", CALL, only("mine"))
    async with service.session(BearerToken("mine")) as session:
        await call(session)
        await session.request("GET", CALL)
        assert (await session.oauth2.token()).access_token == "mine"
        service.on("GET", CALL, NO_GOOD)
        with pytest.raises(Unauthorized):
            await call(session)

    assert service.requests_to(TOKEN) == []


async def test_a_given_bearer_token_is_renewed_where_the_app_is_known(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("new"))
    service.on("GET", CALL, only("new"))
    async with service.session(BearerToken("old"), app=AppCredentials(**APP)) as session:
        await call(session)

    assert [request.authorization for request in service.requests_to(CALL)] == ["Bearer old", "Bearer new"]


async def test_an_app_alone_makes_any_call_with_its_token(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("one"))
    service.on("GET", "/2/anything", only("one"))
    async with service.session(AppCredentials(**APP)) as session:
        await session.request("GET", "/2/anything")


@pytest.mark.rule("AUTH-24", "AUTH-24b")
async def test_an_invalidated_token_is_forgotten(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("old%3D"), token("new"))
    service.on("POST", "/oauth2/invalidate_token", Answer({"access_token": "old%3D"}))
    async with service.session() as session:
        await session.oauth2.token()
        assert (await session.oauth2.invalidate_token()).access_token == "old%3D"
        assert (await session.oauth2.token()).access_token == "new"
    (invalidated,) = service.requests_to("/oauth2/invalidate_token")

    assert invalidated.body == b"access_token=old%3D"  # percent-encoded as it came, never again
    assert invalidated.authorization.startswith("Basic ")


async def test_a_token_that_was_invalidated_elsewhere_is_forgotten_as_well(service: ScriptedServer) -> None:
    service.on("POST", TOKEN, token("old"), token("new"))
    service.on("POST", "/oauth2/invalidate_token", NO_GOOD)
    async with service.session() as session:
        with pytest.raises(Unauthorized):
            await session.oauth2.invalidate_token()
        assert (await session.oauth2.token()).access_token == "new"


SCOPED = OAuth2UserCredentials(access_token="hush-a", refresh_token="hush-b", client_id="client")


async def test_what_is_missing_for_a_bearer_token_is_named(service: ScriptedServer) -> None:
    async with service.session(SCOPED) as session:
        with pytest.raises(AccessDenied, check=has(hint=Hint.GIVE_AN_APP)):
            _ = session.webhooks
        with pytest.raises(AccessDenied):
            await session.oauth2.token()
        with pytest.raises(AccessDenied):
            await session.oauth2.invalidate_token()
    async with service.session(BearerToken("mine")) as session:
        with pytest.raises(AccessDenied):
            await session.oauth2.invalidate_token()
        with pytest.raises(AccessDenied):
            await session.oauth2.refresh()

    assert service.requests == []


# --- with scopes


def grant(number: int, **more: object) -> Answer:
    return Answer(
        {
            "token_type": "bearer",
            "access_token": f"access-{number}",
            "refresh_token": f"refresh-{number}",
            "expires_in": 7200,
            "scope": "follow.read offline.access",
            **more,
        }
    )


def scoped(clock: VirtualClock, seconds: float | None = None) -> OAuth2UserCredentials:
    ends = None if seconds is None else clock.now() + timedelta(seconds=seconds)
    return OAuth2UserCredentials(
        access_token="access-0", refresh_token="refresh-0", client_id="client", expires_at=ends
    )


async def subscriptions(session: Session) -> None:
    await session.activity.subscriptions.list().collect()


SUBSCRIPTIONS = "/2/activity/subscriptions"


@pytest.mark.rule("AUTH-26")
async def test_a_user_with_scopes_calls_by_them(service: ScriptedServer, clock: VirtualClock) -> None:
    service.on("GET", SUBSCRIPTIONS, only("access-0"))
    async with service.session(scoped(clock)) as session:
        await subscriptions(session)


async def test_a_token_is_refreshed_before_it_ends(service: ScriptedServer, clock: VirtualClock) -> None:
    received: list[OAuth2UserCredentials] = []
    service.on("POST", GRANT, grant(1))
    service.on("GET", SUBSCRIPTIONS, only("access-0"))
    async with service.session(scoped(clock, 61), on_token=received.append) as session:
        await subscriptions(session)
        await clock.advance(seconds=1)
        service.on("GET", SUBSCRIPTIONS, only("access-1"))
        await at_once(*(subscriptions(session) for _ in range(3)))
    (asked,) = service.requests_to(GRANT)

    assert asked.form == {"grant_type": ["refresh_token"], "refresh_token": ["refresh-0"], "client_id": ["client"]}
    assert "Authorization" not in asked.headers
    assert len(service.requests_to(SUBSCRIPTIONS)) == 4  # none was refused
    (new,) = received

    assert (new.access_token, new.refresh_token, new.client_id) == ("access-1", "refresh-1", "client")
    assert new.scopes == ("follow.read", "offline.access")
    assert new.expires_at == clock.now() + timedelta(seconds=7200)


async def test_the_token_of_another_user_is_refreshed_and_reported_apart(
    service: ScriptedServer, clock: VirtualClock
) -> None:
    own: list[OAuth2UserCredentials] = []
    others: list[OAuth2UserCredentials] = []
    service.on("POST", GRANT, grant(1))
    service.on("GET", SUBSCRIPTIONS, only("access-1"))
    async with service.session(scoped(clock), on_token=own.append) as session:
        user = session.as_user(scoped(clock, -1), on_token=others.append)
        await subscriptions(user)
    assert (own, [each.access_token for each in others]) == ([], ["access-1"])


async def test_a_client_with_a_secret_proves_itself(service: ScriptedServer, clock: VirtualClock) -> None:
    service.on("POST", GRANT, grant(1))
    app = AppCredentials(**APP, client_id="client", client_secret="hush")
    async with service.session(scoped(clock), app=app) as session:
        await session.oauth2.refresh()
    (asked,) = service.requests_to(GRANT)

    assert asked.authorization == "Basic Y2xpZW50Omh1c2g="
    assert "client_id" not in asked.form


async def test_a_refused_token_is_refreshed_once_for_all_and_each_refresh_token_is_used_once(
    service: ScriptedServer, clock: VirtualClock
) -> None:
    service.on("POST", GRANT, grant(1), grant(2))
    service.on("GET", SUBSCRIPTIONS, only("access-1"))
    async with service.session(scoped(clock)) as session:
        assert await at_once(*(subscriptions(session) for _ in range(4))) == [None] * 4
        service.on("GET", SUBSCRIPTIONS, only("access-2"))
        await subscriptions(session)

    assert [request.form["refresh_token"] for request in service.requests_to(GRANT)] == [["refresh-0"], ["refresh-1"]]


async def test_a_refusal_of_a_token_that_was_refreshed_meanwhile_refreshes_nothing(clock: VirtualClock) -> None:
    refreshes = 0

    async def refresh(before: OAuth2UserCredentials) -> OAuth2UserCredentials:
        nonlocal refreshes
        refreshes += 1
        return attrs.evolve(before, access_token=f"access-{refreshes}")

    async def call(authorization: Authorization) -> str:
        proof = authorization("GET", "https://example.test", (), None)
        if proof == "Bearer access-0":
            await tokens.refresh()  # by another call, while this one is on its way
            raise Unauthorized(status=401)
        return proof

    tokens = UserTokens(scoped(clock), refresh, clock)

    assert await tokens.call_with_token(call) == "Bearer access-1"
    assert refreshes == 1


async def test_a_refresh_token_that_does_not_rotate_is_kept(service: ScriptedServer, clock: VirtualClock) -> None:
    service.on("POST", GRANT, grant(1, refresh_token=None, scope=None))
    async with service.session(scoped(clock)) as session:
        assert (await session.oauth2.refresh()).refresh_token == "refresh-0"


async def test_a_refused_refresh_token_is_not_sent_again(service: ScriptedServer, clock: VirtualClock) -> None:
    refusal = {"error": "invalid_grant", "error_description": "The refresh token was used."}
    service.on("POST", GRANT, Answer(refusal, 400))
    async with service.session(scoped(clock, 0)) as session:
        for _ in range(2):
            with pytest.raises(BadRequest, check=lambda error: error.has_code("invalid_grant")):
                await subscriptions(session)

    assert len(service.requests_to(GRANT)) == 1


async def test_without_a_refresh_token_a_refusal_is_final(service: ScriptedServer) -> None:
    service.on("GET", SUBSCRIPTIONS, NO_GOOD)
    async with service.session(OAuth2UserCredentials(access_token="mine")) as session:
        with pytest.raises(Unauthorized):
            await subscriptions(session)
        with pytest.raises(AccessDenied, check=has(hint=Hint.REQUEST_OFFLINE_ACCESS)):
            await session.oauth2.refresh()

    assert service.requests_to(GRANT) == []


async def test_a_refresh_that_everybody_left_still_brings_its_token(
    service: ScriptedServer, clock: VirtualClock
) -> None:
    received: list[OAuth2UserCredentials] = []
    service.on("POST", GRANT, grant(1))
    service.gate = asyncio.Event()
    async with service.session(scoped(clock, 0), on_token=received.append) as session:
        left = asyncio.ensure_future(subscriptions(session))
        await service.arrived.wait()
        left.cancel()
        await asyncio.wait({left})
        service.gate.set()

    assert [credentials.refresh_token for credentials in received] == ["refresh-1"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        None,
        {"token_type": "mac", "access_token": "hush", "refresh_token": "hush"},
        {"token_type": "bearer"},
        {"token_type": "bearer", "access_token": ""},
        {"token_type": "bearer", "access_token": 7},
        {"token_type": "bearer", "access_token": "x", "refresh_token": 7},
    ],
)
async def test_an_answer_without_a_bearer_token_is_not_one(
    service: ScriptedServer, clock: VirtualClock, answer: object
) -> None:
    service.on("POST", GRANT, Answer(answer))
    async with service.session(scoped(clock)) as session:
        with pytest.raises(UnexpectedAnswer) as caught:
            await session.oauth2.refresh()
    # The refresh token was used, so the next one may be nowhere else.
    assert (caught.value.body, caught.value.repeatable) == (json.dumps(answer).encode(), False)
    frames = [frame for frame, _ in traceback.walk_tb(caught.tb) if frame.f_globals["__name__"].startswith("svc_async")]
    assert "hush" not in " ".join(repr(frame.f_locals) for frame in frames)


@pytest.mark.parametrize("seconds", [None, "7200", 1e300, -1e300])
async def test_a_lifetime_that_makes_no_sense_makes_no_failure(
    service: ScriptedServer, clock: VirtualClock, seconds: object
) -> None:
    service.on("POST", GRANT, grant(1, expires_in=seconds))
    async with service.session(scoped(clock)) as session:
        assert (await session.oauth2.refresh()).access_token == "access-1"


async def test_a_flight_that_asyncio_shows_shows_no_token(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fetch() -> str:
        return "hush"

    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0

    assert (await AppTokens(fetch, clock).current()).text == "hush"
    loop.set_debug(False)

    assert "result=Token()" in caplog.text
    assert "hush" not in caplog.text


async def test_a_new_token_is_stored_before_any_call_carries_it(service: ScriptedServer, clock: VirtualClock) -> None:
    stored: list[str] = []
    asked, storing = asyncio.Event(), asyncio.Event()

    async def store(credentials: OAuth2UserCredentials) -> None:
        asked.set()
        await storing.wait()
        assert all(request.authorization == "Bearer access-0" for request in service.requests_to(SUBSCRIPTIONS))
        stored.append(credentials.access_token)

    service.on("POST", GRANT, grant(1))
    service.on("GET", SUBSCRIPTIONS, only("access-1"))
    async with service.session(scoped(clock), on_token=store) as session:
        calls = [asyncio.create_task(subscriptions(session)) for _ in range(2)]
        await asked.wait()
        calls.append(asyncio.create_task(subscriptions(session)))
        storing.set()
        await asyncio.gather(*calls)

    assert stored == ["access-1"]


async def test_a_token_that_could_not_be_stored_is_stored_before_the_next_call(
    service: ScriptedServer, clock: VirtualClock
) -> None:
    stored: list[str] = []
    failures = [OSError("no space left"), OSError("no space left")]

    async def store(credentials: OAuth2UserCredentials) -> None:
        await asyncio.sleep(0)
        if failures:
            raise failures.pop()
        stored.append(credentials.access_token)

    service.on("POST", GRANT, grant(1))
    service.on("GET", SUBSCRIPTIONS, only("access-1"))
    async with service.session(scoped(clock, 30), on_token=store) as session:
        for _ in range(2):
            with pytest.raises(OSError, match="no space left"):
                await subscriptions(session)
        assert service.requests_to(SUBSCRIPTIONS) == []
        await asyncio.gather(subscriptions(session), subscriptions(session))
        await subscriptions(session)

    assert stored == ["access-1"]
    assert len(service.requests_to(GRANT)) == 1
