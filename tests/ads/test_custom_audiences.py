"""Custom audiences, their permissions, do-not-reach lists: what is sent, what is read, how long one is waited for."""

import pickle
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any

import attrs
import pytest

from svc_async import AudienceNotReady, InvalidArgument, NotFound
from svc_async.ads.custom_audience_permissions import CustomAudiencePermission
from svc_async.ads.custom_audiences import (
    CustomAudience,
    CustomAudienceTargetableType,
    CustomAudienceType,
    NotTargetableReason,
    PartnerSource,
    PermissionLevel,
    PermissionScope,
)
from svc_async.ads.do_not_reach_lists import DoNotReachList
from svc_async.handles import AccountHandle
from svc_async.sandbox import VirtualClock
from svc_async.wire.params import Param
from tests.support.errors import has
from tests.support.scripted_server import Answer, ReceivedRequest, ScriptedServer, service

__all__ = ["service"]

ROOT = "/ads/12/accounts/a"
ONE = f"{ROOT}/custom_audiences/b"
TIME = "2026-01-02T03:04:05Z"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MOMENTS: dict[str, Any] = {"created_at": TIME, "updated_at": TIME, "deleted": False}
READ: dict[str, Any] = {"created_at": MOMENT, "updated_at": MOMENT, "deleted": False}
NEW: dict[str, Any] = {
    "id": "b",
    "name": "Readers",
    "description": None,
    "audience_type": "CRM",
    "audience_size": None,
    "targetable": False,
    "reasons_not_targetable": ["PROCESSING", "TOO_SMALL"],
    "targetable_types": ["CRM", "EXCLUDED_CRM"],
    "permission_level": "READ_WRITE",
    "owner_account_id": "a",
    "partner_source": "OTHER",
    **MOMENTS,
}
PERMISSION: dict[str, Any] = {
    "id": "p",
    "custom_audience_id": "b",
    "granted_account_id": "c",
    "permission_level": "READ_ONLY",
    **MOMENTS,
}
OPT_OUTS: dict[str, Any] = {
    "id": "d",
    "name": "Do Not Reach List",
    "description": None,
    "targetable": False,
    "reasons_not_targetable": ["PROCESSING", "TOO_SMALL"],
    "list_size": None,
    **MOMENTS,
}
OF_NEW = CustomAudience(
    id="b",
    name="Readers",
    audience_type=CustomAudienceType.CRM,
    targetable=False,
    reasons_not_targetable=(NotTargetableReason.PROCESSING, NotTargetableReason.TOO_SMALL),
    targetable_types=(CustomAudienceTargetableType.CRM, CustomAudienceTargetableType.EXCLUDED_CRM),
    permission_level=PermissionLevel.READ_WRITE,
    owner_account_id="a",
    partner_source=PartnerSource.OTHER,
    **READ,
)
OF_PERMISSION = CustomAudiencePermission(
    id="p", custom_audience_id="b", granted_account_id="c", permission_level=PermissionLevel.READ_ONLY, **READ
)
OF_OPT_OUTS = DoNotReachList(
    id="d",
    name="Do Not Reach List",
    targetable=False,
    reasons_not_targetable=(NotTargetableReason.PROCESSING, NotTargetableReason.TOO_SMALL),
    **READ,
)

Call = Callable[[AccountHandle], Awaitable[Any]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(mode="jump")


def wrap(value: object) -> Answer:
    return Answer({"request": {"params": {}}, "data": value})


async def call_once(service: ScriptedServer, answer: Answer, call: Call) -> tuple[Any, str, str, dict[str, str]]:
    """Return what a call returns, and the method, the path and the query of its one request, which has no body."""
    service.answer_all(answer)
    async with service.session() as session:
        result = await call(session.account("a"))
    (request,) = service.requests
    assert request.body == b""
    return result, request.method, request.path, dict(request.query)


SENT: dict[str, tuple[Call, str, str, dict[str, str], dict[str, Any], Any]] = {
    "create": (
        lambda account: account.custom_audiences.create(name="Readers", description="of maps & more"),
        "POST",
        f"{ROOT}/custom_audiences",
        {"name": "Readers", "description": "of maps & more"},
        NEW,
        OF_NEW,
    ),
    "permissions.create": (
        lambda account: account.custom_audience("b").permissions.create(
            granted_account_id="c", permission_level=PermissionLevel.READ_ONLY
        ),
        "POST",
        f"{ONE}/permissions",
        {"granted_account_id": "c", "permission_level": "READ_ONLY"},
        PERMISSION,
        OF_PERMISSION,
    ),
    "do_not_reach_lists.create": (
        lambda account: account.do_not_reach_lists.create(description="opt-outs"),
        "POST",
        f"{ROOT}/do_not_reach_lists",
        {"description": "opt-outs"},
        OPT_OUTS,
        OF_OPT_OUTS,
    ),
    "get": (
        lambda account: account.custom_audiences.get("b", with_deleted=True),
        "GET",
        ONE,
        {"with_deleted": "true"},
        NEW,
        OF_NEW,
    ),
    "update": (
        lambda account: account.custom_audiences.update("b", name="Readers"),
        "PUT",
        ONE,
        {"name": "Readers"},
        NEW,
        OF_NEW,
    ),
    "delete": (
        lambda account: account.custom_audiences.delete("b"),
        "DELETE",
        ONE,
        {},
        NEW,
        OF_NEW,
    ),
    "permissions.delete": (
        lambda account: account.custom_audience("b").permissions.delete("p"),
        "DELETE",
        f"{ONE}/permissions/p",
        {},
        PERMISSION,
        OF_PERMISSION,
    ),
}


@pytest.mark.rule("CA-01", "CA-03", "CA-07", "CA-09", "CAP-01", "DNL-02", "DNL-02b")
@pytest.mark.parametrize("name", SENT)
async def test_a_call_sends_its_parameters_in_the_query_and_returns_the_record(
    service: ScriptedServer, name: str
) -> None:
    call, method, path, query, answer, record = SENT[name]

    assert await call_once(service, wrap(answer), call) == (record, method, path, query)


LISTED: dict[str, tuple[Call, str, dict[str, str], dict[str, Any], Any]] = {
    "custom_audiences": (
        lambda account: account.custom_audiences.list(
            count=50,
            custom_audience_ids=["b", "e"],
            permission_scope=PermissionScope.SHARED,
            q="re",
            sort_by="created_at-desc",
            with_deleted=True,
        ).collect(),
        f"{ROOT}/custom_audiences",
        {
            "count": "50",
            "custom_audience_ids": "b,e",
            "permission_scope": "SHARED",
            "q": "re",
            "sort_by": "created_at-desc",
            "with_deleted": "true",
        },
        NEW,
        OF_NEW,
    ),
    "permissions": (
        lambda account: (
            account.custom_audience("b")
            .permissions.list(
                count=50,
                custom_audience_permission_ids=["p"],
                granted_account_ids=["c", "f"],
                sort_by="created_at-desc",
            )
            .collect()
        ),
        f"{ONE}/permissions",
        {
            "count": "50",
            "granted_account_ids": "c,f",
            "sort_by": "created_at-desc",
            "custom_audience_permission_ids": "p",
        },
        PERMISSION,
        OF_PERMISSION,
    ),
    "do_not_reach_lists": (
        lambda account: account.do_not_reach_lists.list(with_deleted=True).collect(),
        f"{ROOT}/do_not_reach_lists",
        {"with_deleted": "true"},
        OPT_OUTS,
        OF_OPT_OUTS,
    ),
}


@pytest.mark.rule("CA-04", "CAP-05", "DNL-01", "DNL-03")
@pytest.mark.parametrize("name", LISTED)
async def test_a_listing_sends_its_filters_and_returns_the_records(service: ScriptedServer, name: str) -> None:
    call, path, query, answer, record = LISTED[name]

    assert await call_once(service, wrap([answer]), call) == ([record], "GET", path, query)


async def test_audiences_come_in_pages_and_are_counted(service: ScriptedServer) -> None:
    first = Answer({"data": [NEW], "next_cursor": "n", "total_count": 2})
    service.on("GET", f"{ROOT}/custom_audiences", first, wrap([{**NEW, "id": "e"}]), first)
    async with service.session() as session:
        listing = session.account("a").custom_audiences.list()

        assert [each.id async for each in listing] == ["b", "e"]
        assert await listing.total_count() == 2
    assert [dict(each.query) for each in service.requests] == [{}, {"cursor": "n"}, {"with_total_count": "true"}]


@pytest.mark.rule("CA-10", "CAP-04")
async def test_what_is_deleted_is_returned_as_deleted(service: ScriptedServer) -> None:
    service.on("DELETE", ONE, wrap({**NEW, "deleted": True}))
    service.on("DELETE", f"{ONE}/permissions/p", wrap({**PERMISSION, "deleted": True}))
    async with service.session() as session:
        account = session.account("a")

        assert (await account.custom_audiences.delete("b")).deleted
        assert (await account.custom_audience("b").permissions.delete("p")).deleted


@pytest.mark.rule("CA-12")
async def test_the_answer_to_an_update_says_only_whether_the_account_is_the_owner(service: ScriptedServer) -> None:
    record = {**NEW, "is_owner": True}
    del record["owner_account_id"]
    found, *_ = await call_once(service, wrap(record), lambda account: account.custom_audiences.update("b"))

    assert (found.is_owner, found.owner_account_id) == (True, None)


async def test_values_that_are_new_are_kept(service: ScriptedServer) -> None:
    tree = {"name": "n", "segments": {"boolean_operator": "OR", "child_segments": []}}
    record = {
        **NEW,
        "audience_type": "WEB",
        "reasons_not_targetable": ["EXPIRED"],
        "targetable_types": ["WEB"],
        "permission_level": "OWNER",
        "partner_source": "SOMEBODY",
        "audience_size": 1_234_567_890_123,
        "metadata": [tree],
    }
    found, *_ = await call_once(service, wrap(record), lambda account: account.custom_audiences.get("b"))

    assert {name: value for name, value in found.to_dict().items() if value is not None} == {
        name: value for name, value in record.items() if value is not None
    }
    kept = (found.audience_type, found.permission_level, found.partner_source, *found.reasons_not_targetable)
    assert not any(each.is_known for each in kept)
    assert hash(found)


BREACHES: dict[str, tuple[str, dict[str, Param]]] = {
    "q is empty": ("q", {"q": ""}),
    "q is long": ("q", {"q": "x" * 256}),
    "ids": ("custom_audience_ids", {"custom_audience_ids": ["x"] * 201}),
    "count": ("count", {"count": 1001}),
    "scope": ("permission_scope", {"permission_scope": 1}),
}


@pytest.mark.rule("CA-05")
@pytest.mark.parametrize("name", BREACHES)
async def test_a_filter_that_the_service_would_refuse_is_not_sent(service: ScriptedServer, name: str) -> None:
    parameter, given = BREACHES[name]
    listed: Any = given
    async with service.session() as session:
        with pytest.raises(InvalidArgument, check=has(parameter=parameter)):
            await session.account("a").custom_audiences.list(**listed).collect()
    assert service.requests == []


@pytest.mark.rule("CA-05", "CAP-05")
async def test_filters_at_their_bounds_are_sent(service: ScriptedServer) -> None:
    service.answer_all(wrap([]))
    async with service.session() as session:
        account = session.account("a")
        await account.custom_audiences.list(q="x" * 255, custom_audience_ids=["x"] * 200).collect()
        permissions = account.custom_audience("b").permissions
        await permissions.list(granted_account_ids=["x"] * 200).collect()
        for name in ("granted_account_ids", "custom_audience_permission_ids"):
            several: Any = {name: ["x"] * 201}
            with pytest.raises(InvalidArgument, check=has(parameter=name)):
                await permissions.list(**several).collect()
    assert len(service.requests) == 2


READY: dict[str, Any] = {**NEW, "targetable": True, "reasons_not_targetable": [], "audience_size": 240}
PROCESSED: dict[str, Any] = {**NEW, "reasons_not_targetable": ["TOO_SMALL"]}


@attrs.define
class Visits:
    """Answers with one record after the other, and notes the seconds between the requests."""

    service: ScriptedServer
    pauses: list[float] = attrs.field(factory=list)
    last: float | None = None

    def answer(self, *records: dict[str, Any]) -> None:
        self.service.on("GET", ONE, *(partial(self._note, wrap(each)) for each in records))

    def _note(self, answer: Answer, request: ReceivedRequest) -> Answer:
        assert request.query == {}
        now = self.service.clock.monotonic()
        self.pauses += [] if self.last is None else [round(now - self.last)]
        self.last = now
        return answer


@pytest.fixture
def visits(service: ScriptedServer) -> Visits:
    return Visits(service)


async def wait(service: ScriptedServer, timeout: Any = None) -> CustomAudience:  # noqa: ASYNC109 - what is tested
    async with service.session() as session:
        return await session.account("a").custom_audience("b").ready(timeout=timeout)


async def test_an_audience_that_is_ready_is_returned_at_once(service: ScriptedServer, visits: Visits) -> None:
    visits.answer(READY)

    assert (await wait(service, timeout=0)).audience_size == 240
    assert visits.pauses == []


@pytest.mark.rule("CA-06", "CA-08")
async def test_an_audience_is_asked_for_ever_more_rarely_until_it_is_ready(
    service: ScriptedServer, visits: Visits
) -> None:
    visits.answer(NEW, NEW, NEW, NEW, NEW, NEW, READY)
    found = await wait(service)

    assert (found.targetable, found.audience_size) == (True, 240)
    assert visits.pauses == [30, 60, 120, 240, 300, 300]


@pytest.mark.parametrize(("seconds", "pauses"), [(100.0, [30, 60, 10]), (0, [])])
async def test_the_wait_ends_with_the_reasons_when_its_time_is_over(
    service: ScriptedServer, visits: Visits, seconds: float, pauses: list[float]
) -> None:
    visits.answer(NEW)
    expected = has(custom_audience_id="b", reasons=("PROCESSING", "TOO_SMALL"), repeatable=True, sent="yes")
    with pytest.raises(AudienceNotReady, check=expected):
        await wait(service, timeout=seconds)
    assert visits.pauses == pauses


@pytest.mark.rule("CA-06")
@pytest.mark.parametrize("record", [PROCESSED, {**READY, "deleted": True}], ids=["too small", "deleted"])
async def test_what_no_wait_changes_is_not_waited_for(
    service: ScriptedServer, visits: Visits, record: dict[str, Any]
) -> None:
    visits.answer(record)
    with pytest.raises(AudienceNotReady, check=has(reasons=tuple(record["reasons_not_targetable"]), repeatable=False)):
        await wait(service)
    assert visits.pauses == []


@pytest.mark.parametrize("reasons", [[], ["EXPIRED"], ["TOO_SMALL", "EXPIRED"]], ids=["none", "new", "several"])
async def test_what_may_pass_is_waited_for(service: ScriptedServer, visits: Visits, reasons: list[str]) -> None:
    visits.answer({**NEW, "reasons_not_targetable": reasons}, READY)

    assert (await wait(service)).targetable
    assert visits.pauses == [30]


async def test_a_refusal_ends_the_wait(service: ScriptedServer) -> None:
    service.on("GET", ONE, wrap(NEW), Answer({"errors": [{"code": "TAILORED_AUDIENCE_NOT_FOUND"}]}, 404))
    with pytest.raises(NotFound):
        await wait(service)


@pytest.mark.parametrize("seconds", [-1, inf, "60"])
async def test_the_time_to_wait_is_a_number_of_seconds(service: ScriptedServer, seconds: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="timeout")):
        await wait(service, timeout=seconds)
    assert service.requests == []


def test_a_reason_in_the_message_is_bounded_and_can_be_printed() -> None:
    error = AudienceNotReady("b", ["\x1b[2J" + "x" * 10_000] * 20, repeatable=True)

    assert len(str(error)) < 5_000
    assert "\x1b" not in str(error)
    assert pickle.loads(pickle.dumps(error)).reasons == error.reasons
