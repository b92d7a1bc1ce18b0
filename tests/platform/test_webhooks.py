"""Webhook management: what is sent, how answers are read, and what takes time."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from svc_async import BadRequest, BearerToken, Conflict, InvalidArgument, WebhookInvalid
from svc_async.platform.webhooks import ReplayTerms, Webhook, check_url
from svc_async.sandbox import VirtualClock
from svc_async.session import Session
from tests.support.errors import has
from tests.support.scripted_server import Answer, ReceivedRequest, ScriptedServer

ALL = "/2/webhooks"
REPLAY = "/2/webhooks/replay"
URL = "https://hooks.example.test/svc"
NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
"""The moment at which the clock of these tests starts."""


class Passing(VirtualClock):
    """Time that passes while the one call of a test waits."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds=seconds)


@pytest.fixture
def clock() -> VirtualClock:
    return Passing(NOW)


def make_session(service: ScriptedServer, **settings: Any) -> Session:
    return service.session(BearerToken("mine"), **settings)


def build_webhook(number: int = 1, *, valid: bool = True, url: str = URL) -> dict[str, Any]:
    return {"id": str(number), "url": url, "valid": valid, "created_at": "2026-06-01T00:00:00.000Z"}


def list_webhooks(*records: dict[str, Any]) -> Answer:
    return Answer({"data": [*records], "meta": {"result_count": len(records)}})


def build_problem(name: str, status: int = 400) -> Answer:
    body = {"type": "about:blank", "title": "Invalid Request", "detail": f"{name}: no good.", "status": status}
    return Answer(body, status, {"Content-Type": "application/problem+json"})


@pytest.mark.rule("WH-09", "WH-60", "AUTH-25", "VER-01")
async def test_a_webhook_is_registered(service: ScriptedServer) -> None:
    service.on("POST", ALL, Answer({"data": build_webhook()}, 201))

    async with make_session(service) as session:
        webhook = await session.webhooks.create(URL)

    (seen,) = service.requests

    assert (seen.json, seen.content_type, seen.authorization) == ({"url": URL}, "application/json", "Bearer mine")
    assert webhook == Webhook(id="1", url=URL, valid=True, created_at=datetime(2026, 6, 1, tzinfo=UTC))


@pytest.mark.rule("WH-01", "WH-02", "LIM-01b")
@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://a.example.test",
            "https://a.example.test:443/x",
            "https://a.example.test:/x",
            "https://",
            "https:a.b",
        ),
        *(
            "https://user@a.example.test",
            "https://u:p@a.example.test/",
            "https://a.example.test/#part",
            "ftp://a.b",
            "",
        ),
        *(
            "https://[::1]:8443/x",
            "https://u:p@[::1]/x",
            "https://a.bü/",
            "https://a.example.test/" + "x" * 200,
            "https://a b.example.test",
            "https://[x",
        ),
        *("https://a.example.test/\t", "https://a.example.test/ä", "a.example.test/x"),
    ],
)
async def test_a_url_that_the_service_would_refuse_is_not_sent(service: ScriptedServer, url: str) -> None:
    async with make_session(service) as session:
        for call in (session.webhooks.create, session.webhooks.ensure):
            with pytest.raises(InvalidArgument, check=has(parameter="url")):
                await call(url)

    assert service.requests == []
    service.on("POST", ALL, Answer({"data": build_webhook(url=url)}))

    async with make_session(service, validate=False) as session:
        assert (await session.webhooks.create(url)).url == url


async def test_a_webhook_needs_a_url(service: ScriptedServer) -> None:
    wrong: list[Any] = [None, 7]
    for each in wrong:
        async with make_session(service) as session:
            for call in (session.webhooks.create, session.webhooks.ensure):
                with pytest.raises(InvalidArgument, check=has(parameter="url")):
                    await call(each)
        with pytest.raises(InvalidArgument, check=has(parameter="url")):
            check_url(each)

    assert service.requests == []


@pytest.mark.parametrize(
    "url", ["https://a.b/" + "x" * 188, "https://a.example.test?x=1@2:3", "https://[::1]/x", "https://a.b/@me:x"]
)
async def test_any_other_url_is_sent(service: ScriptedServer, url: str) -> None:
    service.on("POST", ALL, Answer({"data": build_webhook(url=url)}))
    async with make_session(service) as session:
        assert (await session.webhooks.create(url)).url == url


@pytest.mark.parametrize(
    "name", ["CrcValidationFailed", "UrlValidationFailed", "DuplicateUrlFailed", "WebhookLimitExceeded"]
)
async def test_the_reason_of_a_refusal_is_a_code(service: ScriptedServer, name: str) -> None:
    service.on("POST", ALL, build_problem(name))

    async with make_session(service) as session:
        with pytest.raises(BadRequest, check=has(status=400)) as caught:
            await session.webhooks.create(URL)

    assert caught.value.has_code(name)


@pytest.mark.rule("WH-10")
@pytest.mark.parametrize("valid", [True, False])
async def test_webhooks_are_listed_valid_or_not(service: ScriptedServer, *, valid: bool) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook(1, valid=valid), build_webhook(2)))
    async with make_session(service) as session:
        assert [(webhook.id, webhook.valid) for webhook in await session.webhooks.list().collect()] == [
            ("1", valid),
            ("2", True),
        ]


async def test_no_webhooks_are_an_answer_without_data(service: ScriptedServer) -> None:
    service.on("GET", ALL, Answer({"meta": {"result_count": 0}}))
    async with make_session(service) as session:
        assert await session.webhooks.list().collect() == []


@pytest.mark.rule("WH-11")
async def test_a_webhook_may_come_without_an_envelope(service: ScriptedServer) -> None:
    service.answer_all(Answer(build_webhook()))
    async with make_session(service) as session:
        assert (await session.webhooks.create(URL)).id == "1"
        service.answer_all(Answer([build_webhook()]))
        assert [webhook.id for webhook in await session.webhooks.list().collect()] == ["1"]


async def test_an_answer_without_content_means_that_it_is_done(service: ScriptedServer) -> None:
    service.answer_all(Answer("", 204))
    async with make_session(service) as session:
        assert (await session.webhooks.delete("1")).deleted
        assert (await session.webhooks.validate("1")).valid is None


async def test_a_webhook_is_deleted(service: ScriptedServer) -> None:
    service.on("DELETE", f"{ALL}/1", Answer({"data": {"deleted": True}}))
    async with make_session(service) as session:
        assert (await session.webhooks.delete("1")).deleted
        with pytest.raises(InvalidArgument, check=has(parameter="webhook_id")):
            await session.webhooks.delete("")


@pytest.mark.parametrize("fields", [{"valid": True}, {"valid": False}, {"attempted": True}])
async def test_a_check_answers_either_way(service: ScriptedServer, fields: dict[str, bool]) -> None:
    service.on("PUT", f"{ALL}/1", Answer({"data": fields}))

    async with make_session(service) as session:
        check = await session.webhooks.validate("1")

    assert {"valid": check.valid, "attempted": check.attempted} == {"valid": None, "attempted": None, **fields}


# --- ensure


async def test_a_url_that_is_valid_already_is_left_alone(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook(1, url="https://other.example.test"), build_webhook(2)))

    async with make_session(service) as session:
        assert (await session.webhooks.ensure(URL)).id == "2"

    assert [seen.method for seen in service.requests] == ["GET"]


async def test_a_new_url_is_registered(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks())
    service.on("POST", ALL, Answer({"data": build_webhook()}))

    async with make_session(service) as session:
        assert (await session.webhooks.ensure(URL)).valid

    assert [seen.method for seen in service.requests] == ["GET", "POST"]


async def test_a_url_that_somebody_else_registers_meanwhile_is_taken(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(), list_webhooks(build_webhook()))
    service.on("POST", ALL, build_problem("DuplicateUrlFailed"))

    async with make_session(service) as session:
        assert (await session.webhooks.ensure(URL)).id == "1"


@pytest.mark.parametrize("refusal", ["CrcValidationFailed", "DuplicateUrlFailed"])
async def test_a_url_that_cannot_be_registered_is_refused(service: ScriptedServer, refusal: str) -> None:
    service.on("GET", ALL, list_webhooks())
    service.on("POST", ALL, build_problem(refusal))

    async with make_session(service) as session:
        with pytest.raises(BadRequest) as caught:
            await session.webhooks.ensure(URL)

    assert caught.value.has_code(refusal)


async def test_an_invalid_webhook_is_checked_and_waited_for(service: ScriptedServer) -> None:
    service.on("GET", ALL, *[list_webhooks(build_webhook(valid=False))] * 3, list_webhooks(build_webhook()))
    service.on("PUT", f"{ALL}/1", Answer({"data": {"attempted": True}}))

    async with make_session(service) as session:
        assert (await session.webhooks.ensure(URL)).valid

    assert [seen.method for seen in service.requests] == ["GET", "PUT", "GET", "GET", "GET"]
    assert service.clock.now() - NOW == timedelta(seconds=4)


async def test_the_wait_for_a_valid_webhook_has_a_bound(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook(valid=False)))
    service.on("PUT", f"{ALL}/1", Answer({"data": {"valid": False}}))

    async with make_session(service) as session:
        with pytest.raises(WebhookInvalid, check=has(webhook_id="1")):
            await session.webhooks.ensure(URL, within=10)

    assert service.clock.now() - NOW == timedelta(seconds=10)


async def test_a_webhook_that_is_deleted_while_it_is_waited_for_is_not_valid(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook(valid=False)), list_webhooks())
    service.on("PUT", f"{ALL}/1", Answer({"data": {"attempted": True}}))

    async with make_session(service) as session:
        with pytest.raises(WebhookInvalid):
            await session.webhooks.ensure(URL)


# --- replay


def read_window(seen: ReceivedRequest) -> tuple[str, str]:
    return seen.json["from_date"], seen.json["to_date"]


async def replay_gap(service: ScriptedServer, since: timedelta, **settings: Any) -> list[tuple[str, str]]:
    """Replay what came since, and give the windows that were asked for."""
    async with make_session(service) as session:
        await session.webhooks.replay_gap(NOW - since, **settings)
    return [read_window(seen) for seen in service.requests_to(REPLAY)]


JOB = Answer({"data": {"job_id": "7", "created_at": "2026-06-10T12:00:00Z"}})
BUSY = build_problem("ReplayConflictError", 409)


@pytest.mark.rule("WH-50")
async def test_a_replay_names_its_window_in_minutes_of_utc(service: ScriptedServer) -> None:
    service.on("POST", REPLAY, JOB)
    start = datetime(2026, 6, 10, 9, 1, 59, tzinfo=timezone(timedelta(hours=2)))

    async with make_session(service) as session:
        job = await session.webhooks.replay("1", from_date=start, to_date=NOW)

    (seen,) = service.requests

    assert seen.json == {"webhook_id": "1", "from_date": "202606100701", "to_date": "202606101200"}
    assert job.job_id == "7"


@pytest.mark.parametrize(
    ("start", "end", "parameter"),
    [
        (timedelta(hours=24, seconds=1), timedelta(), "from_date"),
        (timedelta(hours=1), timedelta(hours=1), "to_date"),
        (timedelta(hours=1), timedelta(hours=2), "to_date"),
    ],
)
async def test_a_window_that_cannot_be_replayed_is_not_sent(
    service: ScriptedServer, start: timedelta, end: timedelta, parameter: str
) -> None:
    async with make_session(service) as session:
        with pytest.raises(InvalidArgument, check=has(parameter=parameter)):
            await session.webhooks.replay("1", from_date=NOW - start, to_date=NOW - end)

    assert service.requests == []
    service.on("POST", REPLAY, JOB)

    async with make_session(service, validate=False) as session:
        await session.webhooks.replay("1", from_date=NOW - start, to_date=NOW - end)


async def test_a_window_needs_a_time_zone(service: ScriptedServer) -> None:
    async with make_session(service) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="from_date")):
            await session.webhooks.replay("1", from_date=NOW.replace(tzinfo=None), to_date=NOW)
        with pytest.raises(InvalidArgument, check=has(parameter="to_date")):
            await session.webhooks.replay("1", from_date=NOW, to_date=NOW.replace(tzinfo=None))
        with pytest.raises(InvalidArgument, check=has(parameter="since")):
            await session.webhooks.replay_gap(NOW.replace(tzinfo=None))


@pytest.mark.parametrize("moment", [None, "2026-06-10T12:00:00Z", 1_781_092_800, date(2026, 6, 10)])
async def test_a_window_consists_of_datetimes(service: ScriptedServer, moment: Any) -> None:
    async with make_session(service) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="since")):
            await session.webhooks.replay_gap(moment)
        with pytest.raises(InvalidArgument, check=has(parameter="from_date")):
            await session.webhooks.replay("1", from_date=moment, to_date=NOW)
    assert service.requests == []


@pytest.mark.rule("WH-51")
async def test_the_deprecated_replay_points_to_the_new_one(service: ScriptedServer) -> None:
    path = "/2/account_activity/replay/webhooks/1/subscriptions/all"
    service.on("POST", path, JOB)

    async with make_session(service) as session:
        with pytest.warns(DeprecationWarning, match="webhooks.replay") as warned:
            await session.webhooks.replay_account_activity("1", from_date=NOW - timedelta(hours=1), to_date=NOW)

    assert warned[0].filename == __file__
    (seen,) = service.requests
    assert seen.query == {"from_date": "202606101100", "to_date": "202606101200"}


async def test_a_gap_is_replayed_in_two_jobs_for_its_end_must_settle(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook()))
    service.on("POST", REPLAY, JOB)

    assert await replay_gap(service, timedelta(hours=2, seconds=30)) == [
        ("202606100959", "202606101150"),
        ("202606101150", "202606101201"),
    ]
    assert service.clock.now() - NOW == timedelta(minutes=21)  # 11:50 is 31 minutes old


async def test_a_gap_that_begins_in_a_later_minute_is_refused_by_its_name(service: ScriptedServer) -> None:
    for ahead in (timedelta(minutes=1), timedelta(hours=1)):
        with pytest.raises(InvalidArgument, check=has(parameter="since")):
            await replay_gap(service, -ahead)
    assert service.requests == []


async def test_a_short_gap_waits_until_it_can_be_replayed(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook()))
    service.on("POST", REPLAY, JOB)

    assert await replay_gap(service, timedelta(minutes=5)) == [("202606101155", "202606101201")]
    assert service.clock.now() - NOW == timedelta(minutes=26)


@pytest.mark.parametrize(("hours", "lost"), [(24, "09T12:00"), (72, "07T12:00"), (23, None)])
async def test_a_gap_reaches_back_no_further_than_the_service(
    service: ScriptedServer, hours: int, lost: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook()))
    service.on("POST", REPLAY, JOB)
    (first, _) = await replay_gap(service, timedelta(hours=hours))

    assert first == ("202606091300" if lost is None else "202606091202", "202606101150")
    told = [f" 2026-06-{lost}:00+00:00 until 2026-06-09T12:02:00+00:00 " in each for each in caplog.messages]
    assert told == ([] if lost is None else [True])


async def test_one_job_runs_at_a_time_and_the_next_waits_for_it(
    service: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook()))
    service.on("POST", REPLAY, BUSY, BUSY, JOB)
    windows = await replay_gap(service, timedelta(hours=24))

    lost = [" until 2026-06-09T12:02:00+00:00 ", "from 2026-06-09T12:02:00+00:00 until 2026-06-09T12:04:00+00:00"]
    assert all(part in message for part, message in zip(lost, caplog.messages, strict=True))
    assert [start for start, _ in windows[:3]] == ["202606091202", "202606091203", "202606091204"]
    assert len(windows) == 4


async def test_the_wait_for_another_job_has_a_bound(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook()))
    service.on("POST", REPLAY, BUSY)
    with pytest.raises(Conflict) as caught:
        await replay_gap(service, timedelta(hours=2), within=150)

    assert caught.value.has_code("ReplayConflictError")
    assert len(service.requests_to(REPLAY)) == 3


async def test_another_refusal_of_a_replay_is_final(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook()))
    service.on("POST", REPLAY, build_problem("WebhookIdInvalid"))
    with pytest.raises(BadRequest):
        await replay_gap(service, timedelta(hours=2))

    assert len(service.requests_to(REPLAY)) == 1


async def test_what_the_service_demands_of_a_replay_is_a_setting(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook()))
    service.on("POST", REPLAY, JOB)
    terms = ReplayTerms(reach=timedelta(hours=1), start_age=timedelta(), end_age=timedelta(minutes=1))
    assert await replay_gap(service, timedelta(hours=2), terms=terms) == [
        ("202606101102", "202606101159"),
        ("202606101159", "202606101201"),
    ]
    far = ReplayTerms(reach=timedelta(days=3), start_age=timedelta(), end_age=timedelta())
    assert (await replay_gap(service, timedelta(days=2), terms=far))[2][0] == "202606081200"


async def test_the_webhook_may_be_left_out_where_there_is_one(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook(1), build_webhook(2, url="https://other.example.test")))
    service.on("POST", REPLAY, JOB)
    for webhook_id in (None, "3"):
        with pytest.raises(InvalidArgument, check=has(parameter="webhook_id")):
            await replay_gap(service, timedelta(hours=2), webhook_id=webhook_id)
    await replay_gap(service, timedelta(hours=2), webhook_id="2")

    assert {seen.json["webhook_id"] for seen in service.requests_to(REPLAY)} == {"2"}


@pytest.mark.rule("ERR-10")
async def test_nothing_is_replayed_to_an_invalid_webhook(service: ScriptedServer) -> None:
    service.on("GET", ALL, list_webhooks(build_webhook(valid=False)))
    with pytest.raises(WebhookInvalid):
        await replay_gap(service, timedelta(hours=2))

    assert service.requests_to(REPLAY) == []
