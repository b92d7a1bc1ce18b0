"""Answers of every kind, as the caller of a typed method sees them."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import aiohttp
import pytest
from aioresponses import aioresponses

from svc_async import (
    ApiError,
    BadRequest,
    BearerToken,
    Conflict,
    Endpoints,
    Forbidden,
    NotFound,
    RateLimited,
    Retries,
    ServerError,
    Session,
    SvcError,
    TimedOut,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
    UserCredentials,
)
from svc_async.errors import Sent
from svc_async.monitoring import CallEvent
from svc_async.sandbox import VirtualClock
from tests.support.scripted_server import Answer, ReceivedRequest, ScriptedServer, run_service

CREDENTIALS = UserCredentials(consumer_key="k", consumer_secret="hush-1", token="hush-2", token_secret="hush-3")
ENDPOINTS = Endpoints(base_url="https://base.example.test", ads_url="https://ads.example.test")
URL = "https://ads.example.test/12/accounts/a"


@pytest.fixture
def service() -> Iterator[aioresponses]:
    with aioresponses() as service:
        yield service


def make_session() -> Session:
    return Session(CREDENTIALS, endpoints=ENDPOINTS, retries=Retries.none(), request_id_header="X-Request-Id")


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with make_session() as session:
        yield session


async def catch_error(session: Session) -> SvcError:
    with pytest.raises(SvcError) as caught:
        await session.accounts.get("a")
    assert "hush" not in f"{caught.value} {caught.value.__dict__}"
    return caught.value


KINDS: Mapping[int, type[ApiError]] = {
    301: ApiError,
    304: ApiError,
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
    500: ServerError,
    503: ServerError,
}


@pytest.mark.parametrize(
    "body",
    [
        '{"errors":[{"code":"SOME_CODE","message":"m"}]}',
        *(pytest.param(body, marks=pytest.mark.long) for body in ("", "<html>no</html>", '{"err')),
    ],
)
async def test_a_refusal_is_known_by_its_status_whatever_its_body(
    subtests: pytest.Subtests, service: aioresponses, body: str
) -> None:
    for status, kind in KINDS.items():
        service.get(URL, status=status, body=body, headers={"x-request-id": "r-1"})
        with subtests.test(status=status):
            async with make_session() as session:
                error = await catch_error(session)

            assert isinstance(error, ApiError)
            assert type(error) is kind
            assert (error.status, error.request_id) == (status, "r-1")
            assert error.sent is (Sent.MAYBE if status >= 500 else Sent.YES)
            assert error.has_code("SOME_CODE") == ("SOME_CODE" in body)


@pytest.mark.rule("AUTH-17", "ERR-01")
async def test_an_invalidated_token_is_unauthorized_with_code_89(service: aioresponses, session: Session) -> None:
    service.get(URL, status=401, payload={"errors": [{"code": 89, "message": "Invalid or expired token"}]})
    error = await catch_error(session)

    assert isinstance(error, Unauthorized)
    assert error.has_code(89)
    assert not error.repeatable


@pytest.mark.parametrize("body", ["", "<html>ok</html>", "[]", "{}", '{"data":{}}', '{"data":[]}', '{"data": {"id": 1'])
async def test_a_success_that_is_not_the_record_is_unexpected(
    service: aioresponses, session: Session, body: str
) -> None:
    service.get(URL, status=200, body=body, headers={"x-request-id": "r-2"})
    error = await catch_error(session)

    assert isinstance(error, UnexpectedAnswer)
    assert (error.status, error.request_id, error.sent) == (200, "r-2", Sent.YES)


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        (aiohttp.ServerDisconnectedError(), TransportError),
        (aiohttp.ClientOSError(104, "reset"), TransportError),
        (TimeoutError(), TimedOut),
        (aiohttp.ClientError(), TransportError),
    ],
)
async def test_what_the_http_library_raises_never_reaches_the_caller(
    service: aioresponses, session: Session, exception: Exception, kind: type[TransportError]
) -> None:
    service.get(URL, exception=exception)
    error = await catch_error(session)

    assert type(error) is kind


@pytest.mark.parametrize("status", [200, 400, 401, 403, 429, 500])
async def test_a_service_that_echoes_a_token_gets_it_into_no_error(status: int) -> None:
    service = ScriptedServer(VirtualClock())

    def echo(request: ReceivedRequest) -> Answer:
        words = f"bad {request.authorization} {request.authorization.replace('/', '%2F')}"
        headers = {"WWW-Authenticate": words, "X-Echo": words}
        if status == 200:
            return Answer(f"<html>{words}", status, headers)
        return Answer({"errors": [{"code": words, "message": words}], "error": words}, status, headers)

    service.answer_all(echo)
    events: list[CallEvent] = []
    async with run_service(service), service.session(BearerToken("abc/hush-token"), on_event=events.append) as session:
        with pytest.raises(SvcError) as caught:
            await session.request("GET", "/2/things")

    assert "hush" in service.requests[0].authorization
    assert "hush" not in f"{caught.value!r} {caught.value} {vars(caught.value)} {events}"
    assert b"bad" in getattr(caught.value, "body", b"")


async def test_errors_beside_data_have_no_token_that_they_echo() -> None:
    service, events = ScriptedServer(VirtualClock()), list[CallEvent]()
    service.answer_all(lambda request: Answer({"data": 1, "errors": [{"message": f"old {request.authorization}"}]}))
    async with run_service(service), service.session(BearerToken("abc/hush-token"), on_event=events.append) as session:
        await session.request("GET", "/2/things")

    assert [reason.message for reason in events[0].errors] == ["old Bearer …"]


async def test_values_that_the_service_echoes_are_not_kept(service: aioresponses, session: Session) -> None:
    detail: dict[str, Any] = {"code": "INVALID_PARAMETER", "message": "m", "parameter": "q", "value": "ada@example.org"}
    service.get(URL, status=400, payload={"errors": [detail], "request": {"params": {"q": "ada@example.org"}}})
    error = await catch_error(session)

    assert "ada" not in f"{error} {error.__dict__}"


async def test_a_receipt_names_the_request_that_the_service_answered(service: aioresponses, session: Session) -> None:
    url = "https://ads.example.test/12/accounts/a/custom_audiences/b/users"
    service.post(url, payload={"data": {"success_count": 1, "total_count": 1}}, headers={"x-request-id": "r-3"})
    users = session.account("a").custom_audience("b").users
    receipts = [receipt async for receipt in users.stream([{"email": "ada@example.org"}])]

    assert [receipt.request_id for receipt in receipts] == ["r-3"]
