"""Finds the buckets of a request, without I/O: which limits count it, and for whom."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import attrs

from svc_async.governor.fair_queue import Bucket
from svc_async.governor.limits import Limit, Scope
from svc_async.governor.ticks import SECOND
from svc_async.governor.window_store import WindowSpec, WindowStore
from svc_async.wire.route import Request, Surface

__all__ = ["BucketTable", "RequestKind"]

W = TypeVar("W")

_MAX_KINDS = 4_096
_MAX_IDLE = 1_000
_WITH_TOTAL_COUNT = ("with_total_count", "true")


@attrs.frozen(eq=False)
class RequestKind(Generic[W]):
    """What all requests of one endpoint, user and account have in common.

    Attributes:
        buckets: what each of them takes, all at once.
        account: the ad account; empty if the path names none.
        is_read: whether it is a read.
    """

    buckets: tuple[Bucket[W], ...]
    account: str
    is_read: bool


class BucketTable(Generic[W]):
    """The buckets in use: one for each limit, and each app, user or account that it counts.

    Attributes:
        windows: where the windows of further buckets come from.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        *,
        headroom: float,
        windows: WindowStore,
        is_idle: Callable[[Bucket[W]], bool],
        on_change: Callable[[Bucket[W]], object],
    ) -> None:
        """Start without buckets.

        Args:
            limits: the known limits.
            headroom: the share of a limit that is used.
            windows: where the windows come from.
            is_idle: whether nothing is lost by forgetting a bucket.
            on_change: called when the store has changed a window.
        """
        self._limits = tuple(limits)
        self._headroom = headroom
        self.windows = windows
        self._is_idle = is_idle
        self._on_change = on_change
        self._buckets: dict[WindowSpec, Bucket[W]] = {}
        self._kinds: dict[tuple[Any, ...], RequestKind[W]] = {}
        self._sweep_above = _MAX_IDLE

    def __iter__(self) -> Iterator[Bucket[W]]:
        return iter(self._buckets.values())

    def classify(self, request: Request[Any], user: str) -> RequestKind[W]:
        """Return the kind of a request of a user."""
        account = request.scope.get("account_id", "")
        total = _WITH_TOTAL_COUNT in request.query
        key = (request.method, request.surface, request.template, user, account, total)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            self._sweep()
            buckets = self._buckets_of(request, user, account, total=total)
            kind = self._kinds[key] = RequestKind(buckets, account, request.method == "GET")
        return kind

    def find_pace(self, request: Request[Any]) -> float | None:
        """Return how many requests like this one a second the table of limits admits; None if it has no limit."""
        own = next((row for row in self._find_rows(request) if not row.with_total_count), None)
        return None if own is None else own.requests * self._headroom / own.period

    def _find_rows(self, request: Request[Any]) -> list[Limit]:
        return [row for row in self._limits if row.matches(request.method, request.surface, request.template)]

    def _buckets_of(self, request: Request[Any], user: str, account: str, *, total: bool) -> tuple[Bucket[W], ...]:
        rows = self._find_rows(request)
        own = next((row for row in rows if not row.with_total_count), None)
        specs = [self._spec(own, request.surface, user, account) if own else self._unknown(request, user, account)]
        specs += [self._spec(row, request.surface, user, account) for row in rows if row.with_total_count and total]
        return tuple(map(self._find_or_add, specs))

    def _spec(self, row: Limit, surface: Surface, user: str, account: str) -> WindowSpec:
        return WindowSpec(
            name=row.name,
            surface=surface,
            scope=_describe_scope(row.scope, user, account),
            limit=row.requests,
            period=round(row.period * SECOND),
            headroom=self._headroom,
            documented=row.documented,
        )

    def _unknown(self, request: Request[Any], user: str, account: str) -> WindowSpec:
        return WindowSpec(
            name=f"{request.method} {request.template}",
            surface=request.surface,
            scope=_describe_scope(Scope.ACCOUNT, user, account),
            limit=None,
            period=SECOND,
            headroom=self._headroom,
            documented=False,
        )

    def _find_or_add(self, spec: WindowSpec) -> Bucket[W]:
        bucket = self._buckets.get(spec)
        if bucket is None:
            scope = f"sandbox {spec.scope}" if spec.surface is Surface.ADS_SANDBOX else spec.scope
            window = self.windows.window(spec, partial(self._forward_change, spec))
            bucket = self._buckets[spec] = Bucket(spec.name, scope, window)
        return bucket

    def _forward_change(self, spec: WindowSpec) -> None:
        bucket = self._buckets.get(spec)
        if bucket is not None:
            self._on_change(bucket)

    def _sweep(self) -> None:
        if len(self._buckets) <= self._sweep_above:
            return
        self._buckets = {spec: bucket for spec, bucket in self._buckets.items() if not self._is_idle(bucket)}
        self._kinds.clear()  # they hold the buckets that were swept
        self._sweep_above = max(_MAX_IDLE, 2 * len(self._buckets))


def _describe_scope(scope: Scope, user: str, account: str) -> str:
    if scope is Scope.ACCOUNT and account:
        return f"account {account}"
    return "app" if scope is Scope.APP else f"user {user}"
