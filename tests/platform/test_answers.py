"""Refusals of the main API, and successes with reasons."""

from typing import Any

import pytest

from svc_async import ApiError, BearerToken, Forbidden, RateLimited, Unauthorized
from svc_async.errors import ErrorDetail
from svc_async.monitoring import CallEvent
from svc_async.session import Session
from tests.support.scripted_server import Answer, ScriptedServer

ALL = "/2/webhooks"
WEBHOOK = {"id": "1", "url": "https://a.example.test", "valid": True}


def make_session(service: ScriptedServer, **settings: Any) -> Session:
    return service.session(BearerToken("mine"), **settings)


async def get_refused(service: ScriptedServer, payload: object, status: int) -> ApiError:
    service.on("GET", ALL, Answer(payload, status))
    async with make_session(service) as session:
        with pytest.raises(ApiError) as caught:
            await session.webhooks.list().collect()
    return caught.value


@pytest.mark.rule("ERR-01", "ERR-02")
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, 89, Unauthorized),
        (401, 32, Unauthorized),
        (403, 99, Forbidden),
        (403, 220, Forbidden),
        (429, 88, RateLimited),
    ],
)
async def test_numbers_are_codes(service: ScriptedServer, status: int, code: int, kind: type[ApiError]) -> None:
    error = await get_refused(service, {"errors": [{"code": code, "message": "words"}]}, status)
    assert type(error) is kind
    assert error.errors == (ErrorDetail(code=code, message="words"),)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        ({"title": "Unauthorized", "detail": "Not allowed."}, "Unauthorized"),
        ({"title": "Invalid Request", "detail": "DuplicateUrlFailed: it is there."}, "DuplicateUrlFailed"),
        ({"title": "CrcValidationFailed", "detail": "The answer was wrong."}, "CrcValidationFailed"),
        ({"title": "ConnectionException", "connection_issue": "TooManyConnections"}, "TooManyConnections"),
    ],
)
async def test_a_problem_is_named_by_its_failure(service: ScriptedServer, problem: dict[str, str], code: str) -> None:
    error = await get_refused(service, {"type": "about:blank", "status": 403, **problem}, 403)
    assert (error.status, error.errors[0].code) == (403, code)


async def test_a_problem_names_its_parameters(service: ScriptedServer) -> None:
    complaint = {"parameters": {"max_results": ["0"]}, "message": "must be at least 1"}
    error = await get_refused(service, {"title": "Invalid Request", "detail": "No.", "errors": [complaint]}, 400)

    assert error.errors == (
        ErrorDetail(code="Invalid Request", message="No."),
        ErrorDetail(message="must be at least 1", parameter="max_results"),
    )


async def test_a_success_with_reasons_and_without_data_is_a_refusal(service: ScriptedServer) -> None:
    error = await get_refused(service, {"errors": [{"title": "Not Found Error", "detail": "Gone."}]}, 200)
    assert (error.status, error.repeatable) == (200, False)
    assert error.has_code("Not Found Error")


async def test_a_success_with_data_and_reasons_returns_the_data_and_reports_the_reasons(
    service: ScriptedServer,
) -> None:
    received: list[CallEvent] = []
    body = {"data": [WEBHOOK], "errors": [{"title": "Not Found Error", "detail": "Could not find 2."}]}
    service.on("GET", ALL, Answer(body))

    async with make_session(service, on_event=received.append) as session:
        assert [webhook.id for webhook in await session.webhooks.list().collect()] == ["1"]

    assert received[0].error is None
    assert received[0].errors == (ErrorDetail(code="Not Found Error", message="Could not find 2."),)


async def test_a_value_that_holds_the_word_errors_is_no_reason(service: ScriptedServer) -> None:
    service.on("GET", ALL, Answer({"data": [{**WEBHOOK, "errors": "x"}]}))
    async with make_session(service) as session:
        assert len(await session.webhooks.list().collect()) == 1
