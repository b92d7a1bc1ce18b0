"""No identifier of a row is in a text that is kept, whatever the service repeats of it and wherever it does."""

import re
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Failure
from svc_async.errors import ApiError, BatchError, ErrorDetail, Forbidden
from svc_async.lists.audience_users import AudienceUsers
from tests.support.errors import because
from tests.support.fake_service import FakeService, Operations, make_error, make_members
from tests.support.journaled_uploads import create_users

ROW = {"email": "ada@example.org", "partner_user_id": "Partner-77"}
HASH = sha256(b"ada@example.org").hexdigest()

WRITTEN: dict[str, Callable[[str], str]] = {
    "as sent": str,
    "in capitals": str.upper,
    "mixed": lambda value: value[:20].upper() + value[20:],
    "in a word": lambda value: f"x{value}y",
    "within digits": lambda value: f"00{value}ff",
    "in quotes": lambda value: f"'{value}'",
    "twice": lambda value: f"{value},{value}",
}


async def refuse(make_refusal: Callable[[], Exception], path: Path | None = None) -> list[Failure]:
    """Upload a row that is refused, and return its failure."""
    service = FakeService()
    service.always = make_refusal()
    report = await create_users(service).upload([ROW], users_per_operation=1, journal=path)
    assert report.failed == 1
    return [*report.failures]


def is_clean(text: str) -> bool:
    return not re.search("[0-9a-fA-F]{64}", text) and "partner-77" not in text.lower()


PARTS_OF_WORDS = ("in a word", "within digits")  # a code is not searched for parts of words, apart from hashes
SHORT = {"as sent", "mixed", "in a word"}
CASES = [
    pytest.param(
        *(written, field, value, named),
        marks=() if written in SHORT and (named or written != "mixed") else pytest.mark.long,
        id=f"{written} {field} {'hash' if value == HASH else 'id'} {'named' if named else 'not named'}",
    )
    for named in (True, False)
    for written in WRITTEN
    for field in ("code", "message", "parameter")
    for value in (HASH, ROW["partner_user_id"])
    if value == HASH or field == "message" or written not in PARTS_OF_WORDS
]


@pytest.mark.parametrize(("written", "field", "value", "named"), CASES)
async def test_what_the_service_repeats_of_a_row_is_removed(
    tmp_path: Path, written: str, field: str, value: str, *, named: bool
) -> None:
    details: dict[str, Any] = {"code": "BAD", "message": "no", field: f"before {WRITTEN[written](value)} after"}
    reason = ErrorDetail(**details)
    where: dict[str, Any] = {"operation_errors": {0: (reason,)}} if named else {"errors": [reason]}

    (failure,) = await refuse(lambda: make_error(400, **where), tmp_path / "journal")

    kept = {"code": failure.code, "message": failure.reason, "parameter": failure.attribute or ""}
    assert all(map(is_clean, kept.values()))
    assert (kept[field].split(" ")[0], kept[field].split(" ")[-1]) == ("before", "after")
    assert "…" in kept[field]
    written_bytes = b"".join(path.read_bytes() for path in tmp_path.iterdir()).lower()
    assert HASH.encode() not in written_bytes
    assert b"partner-77" not in written_bytes


async def test_a_short_identifier_is_removed_from_a_code_only_where_it_stands_alone() -> None:
    service = FakeService()
    service.always = make_error(400, errors=[ErrorDetail(code="E1_1", message="1 is bad", parameter="users[1]")])

    report = await create_users(service).upload([{"partner_user_id": "1"}], users_per_operation=1)

    (failure,) = report.failures
    assert (failure.code, failure.reason, failure.attribute) == ("E1_1", "… is bad", "users[…]")


@pytest.mark.long("hundreds of requests are accepted until a row is given up")
async def test_no_hash_is_in_the_reason_for_giving_up() -> None:
    busy = make_error(503, headers={"retry-after": "1"}, errors=[ErrorDetail(code=f"BUSY_{HASH.upper()}")])

    def turn_away(operations: Operations) -> None:
        if HASH in str(operations):
            raise busy

    service = FakeService(always=turn_away, latency=5)  # other requests are accepted until the row is given up
    users = AudienceUsers(service.pipeline, "a1", "c1", limits=Limits(operations=1))
    report = await users.upload([ROW, *make_members(300)], users_per_operation=1, concurrency=2)

    (failure,) = report.failures
    assert failure.reason == "gave up after 4 attempts: HTTP 503 BUSY_…"


@pytest.mark.parametrize("status", [403, 503])
async def test_no_hash_is_in_the_error_of_the_job(status: int) -> None:
    service = FakeService()
    service.always = make_error(status, errors=[ErrorDetail(code=f"BUSY_{HASH.upper()}")])
    with pytest.raises(BatchError, check=because(ApiError, status=status)) as caught:
        await create_users(service).upload([ROW])
    assert is_clean(str(caught.value))


@pytest.mark.parametrize("field", ["code", "message", "parameter"])
async def test_the_cause_of_a_job_that_ends_early_holds_no_hash(field: str) -> None:
    reason = ErrorDetail(**{"code": "BAD", "message": "no", field: f"before {HASH.upper()} after"})
    service = FakeService()
    details: dict[str, Any] = {"operation_errors": {0: (reason,)}, "request_id": "r-1", "retry_after": 30.0}
    service.always = make_error(403, errors=[reason], **details)
    with pytest.raises(BatchError) as caught:
        await create_users(service).upload([ROW])

    cause = caught.value.__cause__

    assert isinstance(cause, Forbidden)
    assert (cause.request_id, len(cause.errors), list(cause.operation_errors)) == ("r-1", 1, [0])
    assert cause.retry_after == 30
    assert is_clean("".join(traceback.format_exception(caught.value)))
    assert is_clean(f"{cause.errors} {cause.operation_errors}")
