"""A machine whose clock is wrong: its calls are signed with the time of the service, which TLS vouches for."""

import ssl
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import trustme

from svc_async import Endpoints, Session, Unauthorized, UserCredentials
from svc_async.clock import SystemClock
from svc_async.sandbox import Sandbox
from tests.support.errors import has

AUTHORITY = trustme.CA()


class WrongClock(SystemClock):
    """A clock that is some minutes behind; these can be corrected."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes

    def now(self) -> datetime:
        return super().now() - timedelta(minutes=self.minutes)


@pytest.fixture
async def secure() -> AsyncIterator[Sandbox]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    async with Sandbox(ssl_context=context) as sandbox:
        yield sandbox


def open_session(sandbox: Sandbox, clock: WrongClock, **changes: str) -> Session:
    ours = ssl.create_default_context()
    AUTHORITY.configure_trust(ours)
    return Session(
        UserCredentials(**{**sandbox.credentials, **changes}),
        endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url),
        connector=ours,
        clock=clock,
    )


def list_statuses(sandbox: Sandbox) -> list[int | None]:
    return [request.status for request in sandbox.requests]


@pytest.mark.parametrize("minutes", [20, -20, 60 * 24 * 365])
async def test_calls_are_signed_with_the_time_of_the_service(
    secure: Sandbox, minutes: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock = WrongClock(minutes)
    async with open_session(secure, clock) as session:
        assert (await session.accounts.get(secure.account_id)).id == secure.account_id
        assert list_statuses(secure) == [401, 200]
        await session.accounts.get(secure.account_id)
        await session.as_user(UserCredentials(**secure.credentials)).accounts.get(secure.account_id)
        assert list_statuses(secure) == [401, 200, 200, 200]
        clock.minutes = 0  # somebody sets it
        await session.accounts.get(secure.account_id)
        assert list_statuses(secure)[4:] == [401, 200]
    assert len(caplog.records) == 2
    learned = [record.args for record in caplog.records]
    assert learned == [(pytest.approx(minutes * 60, abs=5),), (pytest.approx(0, abs=5),)]


async def test_a_call_that_writes_is_sent_again_as_well(secure: Sandbox) -> None:
    async with open_session(secure, WrongClock(20)) as session:
        account = session.account(secure.account_id)
        report = await account.custom_audience(secure.audience_id).users.upload([{"email": "a@example.org"}])
    assert report.accepted == 1
    assert list_statuses(secure) == [401, 200]


async def test_a_wrong_secret_is_not_blamed_on_a_clock_that_is_right(secure: Sandbox) -> None:
    async with open_session(secure, WrongClock(0), token_secret="wrong") as session:
        with pytest.raises(Unauthorized, check=has(clock_difference=None)):
            await session.accounts.get(secure.account_id)
    assert list_statuses(secure) == [401]


async def test_a_wrong_secret_and_a_wrong_clock_end_after_one_repeat(secure: Sandbox) -> None:
    async with open_session(secure, WrongClock(20), token_secret="wrong") as session:
        for requests in (2, 3):
            with pytest.raises(Unauthorized, check=has(clock_difference=None)):  # it was signed with the right time
                await session.accounts.get(secure.account_id)
            assert len(secure.requests) == requests


async def test_without_tls_the_difference_is_said_and_nothing_is_corrected() -> None:
    async with Sandbox() as sandbox, open_session(sandbox, WrongClock(20)) as session:
        for _ in range(2):
            with pytest.raises(Unauthorized) as caught:
                await session.accounts.get(sandbox.account_id)
            assert caught.value.clock_difference == pytest.approx(1_200, abs=5)
            assert "behind the service's clock" in str(caught.value)
        assert list_statuses(sandbox) == [401, 401]
