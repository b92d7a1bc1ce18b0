"""Requests for a governor without a network, and the headers that answer them."""

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import attrs

from svc_async.clock import Clock
from svc_async.governor.governor import BucketState, Governor, Priority, Slot
from svc_async.governor.limits import LIMITS
from svc_async.wire.route import Request, Surface
from tests.support.clock import EPOCH

__all__ = [
    "ACCOUNTS",
    "USERS",
    "build_request",
    "card_list",
    "find_bucket",
    "hold_slot",
    "line_item_list",
    "make_governor",
    "rate_limit_headers",
    "request_slot",
    "send",
    "users_batch",
]

USERS = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users"
_TOTAL = (("with_total_count", "true"),)


def make_governor(clock: Clock, **requests: int) -> Governor:
    """Return a governor without guesses and with some limits changed; in their names every dot is an underscore."""
    limits = tuple(
        attrs.evolve(row, requests=requests.pop(row.name.replace(".", "_"), row.requests), documented=True)
        for row in LIMITS
    )
    assert not requests
    return Governor(limits=limits, clock=clock, rng=random.Random(5))


def build_request(
    method: str,
    template: str,
    *,
    surface: Surface = Surface.ADS,
    query: Iterable[tuple[str, str]] = (),
    **scope: str,
) -> Request[Any]:
    return Request(
        method=method,
        surface=surface,
        template=template,
        path=template.format(**scope),
        query=tuple(query),
        scope=scope,
    )


ACCOUNTS = build_request("GET", "/12/accounts")
"""Five in a quarter of an hour."""


def users_batch(account: str = "a1") -> Request[Any]:
    return build_request("POST", USERS, account_id=account, custom_audience_id="c1")


def card_list(account: str = "a1", *, total: bool = False) -> Request[Any]:
    query = _TOTAL if total else ()
    return build_request("GET", "/12/accounts/{account_id}/cards", query=query, account_id=account)


def line_item_list(account: str = "a1", *, total: bool = False) -> Request[Any]:
    query = _TOTAL if total else ()
    return build_request("GET", "/12/accounts/{account_id}/line_items", query=query, account_id=account)


def request_slot(
    governor: Governor,
    request: Request[Any],
    *,
    user: str = "ann",
    bulk: bool = False,
    max_wait: float | None = None,
) -> Slot:
    priority = Priority.BULK if bulk else Priority.INTERACTIVE
    return governor.slot(request, user=user, priority=priority, max_wait=max_wait)


async def hold_slot(governor: Governor, request: Request[Any] = ACCOUNTS) -> Slot:
    """Take a slot, and leave its request in flight."""
    slot = await request_slot(governor, request).__aenter__()
    slot.mark_sent()
    return slot


async def send(
    governor: Governor,
    request: Request[Any],
    headers: Mapping[str, str] | None = None,
    *,
    status: int = 200,
    bulk: bool = False,
    max_wait: float | None = None,
    on_answer: Callable[[], object] = lambda: None,
) -> None:
    """Send a request that is answered at once, and call `on_answer`."""
    async with request_slot(governor, request, bulk=bulk, max_wait=max_wait) as slot:
        slot.mark_sent()
        slot.learn(status, headers or {})
        on_answer()


def find_bucket(governor: Governor, name: str = "ads.reads.global") -> BucketState:
    return next(bucket for bucket in governor.snapshot() if bucket.name == name)


def rate_limit_headers(
    limit: int | str | None = None,
    remaining: int | str | None = None,
    reset: float | str | None = None,
    *,
    account: bool = False,
    retry_after: str | None = None,
    at: datetime = EPOCH,
) -> Mapping[str, str]:
    """Return the headers that are not None; a number for `reset` is in seconds from `at`."""
    prefix = "x-account-rate-limit-" if account else "x-rate-limit-"
    if isinstance(reset, int | float):
        reset = str(int(at.timestamp() + reset))
    headers = {
        f"{prefix}limit": limit,
        f"{prefix}remaining": remaining,
        f"{prefix}reset": reset,
        "retry-after": retry_after,
    }
    return {name: str(value) for name, value in headers.items() if value is not None}
