"""Measures how a page of 1,000 records becomes models: against msgspec, with a report of drift, and with a dialect."""

import gc
import json
import statistics
from datetime import datetime
from enum import StrEnum

import msgspec

from benchmarks import sink
from benchmarks.measure import Figure, Scale, at_most, measure_cost, measure_pairs
from svc_async import Dialect, DriftReport
from svc_async.ads.accounts import Account
from svc_async.wire.envelope import Answer, Page
from svc_async.wire.reading import Reader
from svc_async.wire.route import Reply, Request, Surface

__all__ = ["measure"]

_RECORDS = 1_000


class _Approval(StrEnum):
    ACCEPTED = "ACCEPTED"


class _Industry(StrEnum):
    RETAIL = "RETAIL"


class _Account(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    business_name: str | None = None
    business_id: str | None = None
    timezone: str
    timezone_switch_at: datetime | None = None
    approval_status: _Approval
    industry_type: _Industry | None = None
    created_at: datetime
    updated_at: datetime
    deleted: bool


class _Page(msgspec.Struct):
    data: list[_Account]
    next_cursor: str | None = None
    total_count: int | None = None


_DIALECT = Dialect(
    name="acme",
    names={"business_name": "firm", "svc_id": "acme_id", "post_mode": "note_mode", "timezone": "zone"},
    values={
        "RETAIL": "SHOPS",
        "PROMOTED_POSTS": "PROMOTED_NOTES",
        "ALL_ON_SVC": "ALL_ON_ACME",
        "post.read": "note.read",
    },
)


def measure(scale: Scale) -> list[Figure]:
    """Measure the reading of one answer."""
    body = json.dumps({"data": [sink.ACCOUNT] * _RECORDS, "next_cursor": "c-1", "request": {"params": {}}}).encode()
    answer = Answer(status=200, headers={"content-type": "application/json"}, body=body)
    request: Request[Page[Account]] = Request(
        method="GET",
        surface=Surface.ADS,
        template="/12/accounts",
        path="/12/accounts",
        reply=Reply.PAGE,
        into=Account,
    )
    reader = Reader()
    decoder = msgspec.json.Decoder(_Page)
    times = scale.pick(3, 100)

    def ours() -> None:
        for _ in range(times):
            assert reader.read(request, answer).next_cursor

    def floor() -> None:
        for _ in range(times):
            assert decoder.decode(body).next_cursor

    def with_drift() -> None:
        drift = DriftReport()  # its first answer is compared in any case
        for _ in range(times):
            drift.see(request, answer)
            assert reader.read(request, answer).next_cursor

    spoken = _DIALECT.write_json(body)
    assert spoken != body

    def with_dialect(came: bytes) -> None:
        for _ in range(times):
            read = _DIALECT.read_answer(request, Answer(status=200, headers=answer.headers, body=came))
            assert reader.read(request, read).next_cursor

    gc.collect()
    pairs = measure_pairs(lambda: measure_cost(ours), lambda: measure_cost(floor), scale)
    return [
        pairs.report_cost(
            f"a page of {_RECORDS:,} records, tolerant reading",
            at_most(1.6),
            floor="msgspec structs",
            notes={"milliseconds": 1e3 * statistics.median(pairs.ours) / times},
        ),
        measure_pairs(lambda: measure_cost(with_drift), lambda: measure_cost(ours), scale).report_cost(
            f"{times} such pages, with a report of drift", at_most(1.1), floor="without"
        ),
        measure_pairs(lambda: measure_cost(lambda: with_dialect(body)), lambda: measure_cost(ours), scale).report_cost(
            "such a page, with a dialect of which it has no word", at_most(1.5), floor="without"
        ),
        measure_pairs(
            lambda: measure_cost(lambda: with_dialect(spoken)), lambda: measure_cost(ours), scale
        ).report_cost("such a page, with a dialect of which each record has three words", at_most(2), floor="without"),
    ]
