"""Uploads with a journal, in many small requests."""

import random
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Report
from svc_async.batch.settings import JobSizes
from svc_async.lists.audience_users import AudienceUsers
from tests.support.fake_service import FakeService
from tests.support.journals import Death, hold_clock

__all__ = ["SMALL", "Row", "create_users", "find_expected", "hash_id", "make_repeated_rows", "read_values", "upload"]

Row = dict[str, str]

SMALL = JobSizes(slice_rows=3, partition_rows=7)
"""Lets a few rows be a long source of many requests, most of which are sent before it has ended."""


def create_users(service: FakeService, audience: str = "c1", *, operations: int = 4) -> AudienceUsers:
    """Return users of an audience, sent a few operations at a time."""
    limits = Limits(operations=operations)
    return AudienceUsers(service.pipeline, "a1", audience, limits=limits, sizes=SMALL)


def make_repeated_rows(count: int = 60, keys: int = 12, seed: int = 1) -> list[Row]:
    """Return rows of a few keys, in which each key has several values."""
    dice = random.Random(seed)
    return [
        {"partner_user_id": f"p{dice.randrange(keys)}", "svc_id": str(dice.randrange(count) + 1)} for _ in range(count)
    ]


def hash_id(row: Row) -> str:
    """Return the identifier of a row that shows which of its key it is, as it is sent."""
    return sha256(row["svc_id"].encode()).hexdigest()


def find_expected(rows: Sequence[Row]) -> dict[str, str]:
    """Return the last value of each key."""
    return {row["partner_user_id"]: hash_id(row) for row in rows}


def read_values(service: FakeService) -> dict[str, str]:
    """Return the value of each key that the service has."""
    return {user["partner_user_id"][0]: user["svc_id"][0] for user in service.users}


async def upload(
    service: FakeService,
    rows: Any,
    journal: JournalPath,
    *,
    operations: int = 4,
    death: Death | None = None,
    **settings: Any,
) -> Report:
    """Upload rows, one user in each operation, until the journal dies, if it does."""
    journal = hold_clock(journal, service.clock)
    users = create_users(service, operations=operations)
    return await users.upload(
        rows, journal=death.wrap(journal) if death else journal, **{"users_per_operation": 1, **settings}
    )
