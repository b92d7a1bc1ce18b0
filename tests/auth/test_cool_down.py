"""While no bearer token is requested: what calls say meanwhile, and what the log says of them."""

import logging
import pickle
from datetime import timedelta

import pytest

from svc_async import ApiError, Forbidden, Session, Unauthorized
from svc_async.errors import Sent
from svc_async.sandbox import VirtualClock
from tests.support.scripted_server import Answer, ScriptedServer

TOKEN = "/oauth2/token"
CALL = "/2/webhooks"
ONE = Answer({"token_type": "bearer", "access_token": "one"})
NO_GOOD = Answer({"errors": [{"code": 89, "message": "Invalid or expired token"}]}, 401)
TOO_OFTEN = Answer({"errors": [{"code": 99, "message": "Unable to verify your credentials"}]}, 403)


async def call(session: Session) -> None:
    await session.webhooks.list().collect()


async def fail(session: Session) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await call(session)
    return caught.value


@pytest.mark.rule("AUTH-22", "ERR-01", "ERR-02")
@pytest.mark.parametrize(
    ("given", "kind", "code"),
    [(ONE, Unauthorized, 89), (TOO_OFTEN, Forbidden, 99)],
)
async def test_a_call_meanwhile_says_that_it_was_not_sent_and_until_when(
    service: ScriptedServer, clock: VirtualClock, *, given: Answer, kind: type[ApiError], code: int
) -> None:
    service.on("POST", TOKEN, given)
    service.on("GET", CALL, NO_GOOD)
    async with service.session() as session:
        first = await fail(session)
        ends = clock.now() + timedelta(minutes=15)
        await clock.advance(minutes=5)
        later, last = await fail(session), await fail(session)
        assert (first.sent, first.retry_at, first.repeatable) == (Sent.YES, None, False)
        for error in (later, pickle.loads(pickle.dumps(last))):
            assert type(error) is kind
            assert error.errors == first.errors
            assert error.has_code(code)
            assert (error.sent, error.retry_at, error.repeatable) == (Sent.NO, ends, True)
            assert error.retry_after == 600
        assert later is not last  # each has a traceback of its own
        service.on("POST", TOKEN, ONE)
        service.on("GET", CALL, Answer({"meta": {"result_count": 0}}))
        await clock.advance(minutes=10)
        await call(session)


async def test_the_log_says_that_a_call_meanwhile_was_not_sent(
    service: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "svc_async.http")
    service.on("POST", TOKEN, TOO_OFTEN)
    async with service.session() as session:
        await fail(session)
        await fail(session)
    assert caplog.messages[1:] == ["GET /2/webhooks: Forbidden (HTTP 403), not sent"] * 2
