"""When a token is requested, kept, dropped and waited for: the two kinds of tokens without a connection."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest

from svc_async.auth.authorization import Authorization
from svc_async.auth.credentials import OAuth2UserCredentials
from svc_async.auth.tokens import AppTokens, Token, UserTokens
from svc_async.errors import ApiError, ErrorDetail, ServerError, Unauthorized
from svc_async.sandbox import VirtualClock
from svc_async.wire.outcome import api_error

INVALID = api_error(status=401, errors=[ErrorDetail(code=89)])
REASONLESS = api_error(status=401)
USER = OAuth2UserCredentials(access_token="access-0", refresh_token="refresh-0")


def refuse_too_often(**more: Any) -> ApiError:
    return api_error(status=403, errors=[ErrorDetail(code=99)], **more)


@attrs.define
class Service:
    """Gives the tokens in turn, or raises the errors among them, and counts how often it was asked."""

    answers: list[str | Exception]
    asked: int = 0

    async def fetch(self) -> str:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def refresh(self, before: OAuth2UserCredentials) -> OAuth2UserCredentials:
        return attrs.evolve(before, access_token=await self.fetch())


def accept(*good: str, refusal: ApiError = INVALID) -> Callable[[Authorization], Awaitable[str]]:
    """Return a call that is accepted with these tokens only, and returns its proof."""

    async def call(authorization: Authorization) -> str:
        proof = authorization("GET", "https://example.test", (), None)
        if proof.removeprefix("Bearer ") not in good:
            raise refusal
        return proof

    return call


# --- app-only


@pytest.mark.parametrize(
    ("given", "answers", "good", "refusal", "any_refusal", "proof", "asked"),
    [
        (None, ["one"], "one", INVALID, False, "one", 1),
        ("mine", [], "mine", INVALID, False, "mine", 0),
        ("mine", ["one"], "one", INVALID, False, "one", 1),
        (None, ["one", "two"], "two", INVALID, False, "two", 2),
        (None, ["one", "two"], "two", REASONLESS, True, "two", 2),
        (None, ["one", "two"], "two", REASONLESS, False, None, 1),
        (None, ["one", "two"], "three", INVALID, True, None, 2),
        (None, ["one", "one"], "three", INVALID, False, None, 2),
    ],
)
async def test_a_call_is_made_again_with_the_next_token_once(
    clock: VirtualClock,
    *,
    given: str | None,
    answers: list[str | Exception],
    good: str,
    refusal: ApiError,
    any_refusal: bool,
    proof: str | None,
    asked: int,
) -> None:
    service = Service([*answers])
    tokens = AppTokens(service.fetch, clock, None if given is None else Token(given))
    calling = tokens.call_with_token(accept(good, refusal=refusal), any_refusal=any_refusal)
    if proof is None:
        with pytest.raises(Unauthorized):
            await calling
    else:
        assert await calling == f"Bearer {proof}"
    assert service.asked == asked


@pytest.mark.parametrize(("refusal", "asked"), [(INVALID, 2), (REASONLESS, 3)])
async def test_the_same_token_again_is_the_end_for_a_while_only_if_it_is_invalid(
    clock: VirtualClock, refusal: ApiError, asked: int
) -> None:
    service = Service(["same"] * 9)
    tokens = AppTokens(service.fetch, clock)
    for _ in range(2):
        with pytest.raises(Unauthorized):
            await tokens.call_with_token(accept("other", refusal=refusal), any_refusal=True)
    assert service.asked == asked


async def test_a_call_that_was_sent_before_the_cool_down_fails_with_its_own_refusal(clock: VirtualClock) -> None:
    service, own = Service(["same"] * 9), api_error(status=401, errors=[ErrorDetail(code=89)])
    tokens = AppTokens(service.fetch, clock)

    async def call_slowly(_: Authorization) -> None:
        with pytest.raises(Unauthorized):
            await tokens.call_with_token(accept("other"))
        raise own

    with pytest.raises(Unauthorized) as caught:
        await tokens.call_with_token(call_slowly)
    assert caught.value is own
    assert service.asked == 2


async def test_a_given_token_that_cannot_be_requested_stays(clock: VirtualClock) -> None:
    tokens = AppTokens(None, clock, Token("mine"))
    for _ in range(2):
        with pytest.raises(Unauthorized):
            await tokens.call_with_token(accept("other"), any_refusal=True)
    assert await tokens.current() == Token("mine")


@pytest.mark.rule("ERR-02")
@pytest.mark.parametrize(("later", "seconds"), [(None, 900), (60, 900), (899, 900), (3_600, 3_600)])
async def test_after_too_many_requests_none_is_made_for_a_while(
    clock: VirtualClock, later: int | None, seconds: int
) -> None:
    refusal = refuse_too_often(retry_at=later and clock.now() + timedelta(seconds=later))
    service = Service([refusal, "one"])
    tokens = AppTokens(service.fetch, clock)
    raised = []
    for wait in (0, 1, seconds - 2):
        await clock.advance(seconds=wait)
        with pytest.raises(ApiError) as caught:
            await tokens.current()
        raised.append(caught.value)
    assert service.asked == 1
    assert {error.status for error in raised} == {403}
    assert raised[1] is not raised[2]  # each has a traceback of its own
    await clock.advance(seconds=1)
    assert await tokens.current() == Token("one")


async def test_another_refusal_is_not_remembered(clock: VirtualClock) -> None:
    service = Service([api_error(status=503), api_error(status=403), "one"])
    tokens = AppTokens(service.fetch, clock)
    for _ in range(2):
        with pytest.raises(ApiError):
            await tokens.current()
    assert await tokens.current() == Token("one")


async def test_a_refusal_is_forgotten_once_a_token_was_given(clock: VirtualClock) -> None:
    service = Service([refuse_too_often(), "one", api_error(status=500), "two"])
    tokens = AppTokens(service.fetch, clock)
    with pytest.raises(ApiError, check=lambda error: error.has_code(99)):
        await tokens.current()
    await clock.advance(seconds=900)
    await tokens.current()
    with pytest.raises(ServerError):
        await tokens.renew(Token("one"))
    assert await tokens.renew(Token("one")) == Token("two")


async def test_only_the_token_that_failed_is_forgotten(clock: VirtualClock) -> None:
    service = Service(["one", "two"])
    tokens = AppTokens(service.fetch, clock)
    await tokens.current()
    tokens.forget(Token("other"))
    assert (await tokens.current(), service.asked) == (Token("one"), 1)
    tokens.forget(Token("one"))
    assert (await tokens.current(), service.asked) == (Token("two"), 2)


# --- with scopes


@pytest.mark.parametrize(
    ("seconds", "refresh_token", "proof"),
    [(None, "r", "access-0"), (61, "r", "access-0"), (60, "r", "one"), (-1, "r", "one"), (-1, None, "access-0")],
)
async def test_a_token_is_refreshed_a_minute_before_it_ends(
    clock: VirtualClock, seconds: float | None, refresh_token: str | None, proof: str
) -> None:
    ends = None if seconds is None else clock.now() + timedelta(seconds=seconds)
    service = Service(["one"])
    tokens = UserTokens(attrs.evolve(USER, expires_at=ends, refresh_token=refresh_token), service.refresh, clock)
    assert await tokens.call_with_token(accept("access-0", "one")) == f"Bearer {proof}"


@pytest.mark.parametrize("any_refusal", [False, True])
async def test_any_refusal_of_a_scoped_token_refreshes_it_once(clock: VirtualClock, *, any_refusal: bool) -> None:
    service = Service(["one", "two"])
    tokens = UserTokens(USER, service.refresh, clock)
    assert await tokens.call_with_token(accept("one", refusal=REASONLESS), any_refusal=any_refusal) == "Bearer one"
    with pytest.raises(Unauthorized):
        await tokens.call_with_token(accept("other"), any_refusal=any_refusal)
    assert service.asked == 2


async def test_only_an_invalid_grant_is_not_sent_again(clock: VirtualClock) -> None:
    invalid = api_error(status=400, errors=[ErrorDetail(code="invalid_grant")])
    service = Service([api_error(status=400), api_error(status=503), invalid, "one"])
    tokens = UserTokens(USER, service.refresh, clock)
    raised = []
    for _ in range(5):
        with pytest.raises(ApiError) as caught:
            await tokens.refresh()
        raised.append(caught.value)
    assert [error.status for error in raised] == [400, 503, 400, 400, 400]
    assert raised[3] is not raised[4]
    assert service.asked == 3


@pytest.mark.parametrize("fails", [False, True])
async def test_the_next_token_is_told_and_kept_even_if_telling_fails(clock: VirtualClock, *, fails: bool) -> None:
    told: list[str] = []

    async def tell(credentials: OAuth2UserCredentials) -> None:
        await asyncio.sleep(0)
        told.append(credentials.access_token)
        if fails:
            raise OSError("no space left")

    tokens = UserTokens(USER, Service(["one"]).refresh, clock, tell)
    if fails:
        with pytest.raises(OSError, match="no space left"):
            await tokens.refresh()
    else:
        assert (await tokens.refresh()).access_token == "one"
    assert (told, tokens.credentials.access_token) == (["one"], "one")


# --- the end


async def test_closing_waits_five_seconds_for_a_token_and_until_its_request_has_ended(clock: VirtualClock) -> None:
    ended = asyncio.Event()

    async def fetch() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await ended.wait()
        return ""

    tokens = AppTokens(fetch, clock)
    calling = asyncio.create_task(tokens.current())
    await asyncio.sleep(0)
    closing = asyncio.create_task(tokens.close())
    await clock.advance(seconds=4.9)
    assert not calling.done()
    await clock.advance(seconds=0.1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    ended.set()
    await closing
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_closing_gives_the_token_that_is_on_its_way(clock: VirtualClock) -> None:
    given = asyncio.Event()

    async def fetch() -> str:
        await given.wait()
        return "one"

    tokens = AppTokens(fetch, clock)
    await tokens.close()  # nothing to wait for
    calling = asyncio.create_task(tokens.current())
    await asyncio.sleep(0)
    closing = asyncio.create_task(tokens.close())
    await asyncio.sleep(0)
    given.set()
    await closing
    assert await calling == Token("one")
    await tokens.close()


async def test_closing_waits_for_a_refresh_whose_token_is_on_its_way(clock: VirtualClock) -> None:
    given = asyncio.Event()

    async def refresh(credentials: OAuth2UserCredentials) -> OAuth2UserCredentials:
        await given.wait()
        return attrs.evolve(credentials, access_token="one")

    tokens = UserTokens(USER, refresh, clock)
    refreshing = asyncio.create_task(tokens.refresh())
    await asyncio.sleep(0)
    closing = asyncio.create_task(tokens.close())
    await asyncio.sleep(0)
    assert not closing.done()
    given.set()
    await closing
    assert tokens.credentials.access_token == "one"
    await refreshing


async def test_a_failure_that_nobody_waited_for_is_not_logged(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    failing = asyncio.Event()

    async def fetch() -> str:
        await failing.wait()
        raise api_error(status=503)

    tokens = AppTokens(fetch, clock)
    calling = asyncio.create_task(tokens.current())
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling])
    failing.set()
    for _ in range(3):
        await asyncio.sleep(0)
    del tokens, calling
    gc.collect()
    assert caplog.messages == []


async def test_tokens_do_not_show(clock: VirtualClock) -> None:
    shown = repr([AppTokens(None, clock, Token("hush")), UserTokens(USER, Service([]).refresh, clock), Token("hush")])
    assert "hush" not in shown
    assert "access-0" not in shown
    assert "SingleFlight" not in shown
