"""A time that is no datetime is refused by the name of its parameter, before anything is read or sent."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest

from svc_async import InvalidArgument, Session
from svc_async.ads.account_history import HistoryEntityType
from svc_async.ads.keyword_insights import KeywordGranularity
from svc_async.sandbox import Sandbox
from svc_async.streams.states import Checkpoint
from tests.support.errors import has

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRONG: tuple[Any, ...] = ("2027-01-01T00:00:00Z", date(2027, 1, 1), 1_800_000_000)

Call = Callable[[Session, Any], Awaitable[object]]


def users(session: Session) -> Any:
    return session.account("a").custom_audience("c").users


async def stream_members(session: Session, moment: Any) -> None:
    async with users(session).stream([{"email": "a@example.org"}], expires_at=moment):
        pass


CALLS: dict[str, tuple[str, Call]] = {
    "upload": ("expires_at", lambda session, moment: users(session).upload([{"email": "a"}], expires_at=moment)),
    "upload from": (
        "effective_at",
        lambda session, moment: users(session).upload([{"email": "a"}], effective_at=moment),
    ),
    "stream": ("expires_at", stream_members),
    "do not reach": (
        "expires_at",
        lambda session, moment: (
            session.account("a").do_not_reach_list("d").users.upload([{"email": "a"}], expires_at=moment)
        ),
    ),
    "line item": (
        "end_time",
        lambda session, moment: session.account("a").line_items.update("l", end_time=moment),
    ),
    "history": (
        "start_time",
        lambda session, moment: (
            session.account("a")
            .history.list(entity_type=HistoryEntityType.CAMPAIGN, entity_id="e", start_time=moment, end_time=NOW)
            .collect()
        ),
    ),
    "keywords": (
        "end_time",
        lambda session, moment: session.keyword_insights.search(
            granularity=KeywordGranularity.DAY, keywords=["k"], start_time=NOW, end_time=moment
        ),
    ),
}


@pytest.mark.parametrize("moment", WRONG, ids=lambda moment: type(moment).__name__)
@pytest.mark.parametrize("call", CALLS)
async def test_a_time_that_is_no_datetime_is_refused_by_its_name(
    session: Session, sandbox: Sandbox, call: str, moment: Any
) -> None:
    name, make_call = CALLS[call]
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        await make_call(session, moment)
    assert sandbox.requests.count("*") == 0


async def test_a_time_without_a_zone_is_refused(session: Session) -> None:
    naive = datetime(2027, 1, 1)  # noqa: DTZ001 - without a zone on purpose
    with pytest.raises(InvalidArgument, check=has(parameter="expires_at")):
        await users(session).upload([{"email": "a"}], expires_at=naive)


@pytest.mark.parametrize("moment", WRONG, ids=lambda moment: type(moment).__name__)
def test_the_time_of_a_checkpoint_is_a_datetime(moment: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="at")):
        Checkpoint(at=moment)
