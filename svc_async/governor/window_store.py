"""Where windows come from: the seam between the scheduler, which queues, and the counts, which may be shared.

A governor asks its `WindowStore` for one `CountingWindow` per bucket. The store itself counts in this
process; one that shares its counts with other processes keeps three promises:

- The scheduler calls a window between two awaits, so a window answers from memory: from leases that the store fetched
  in the background. `request_capacity` says how many requests wait; the store's `on_change` makes the scheduler look
  again, after a lease has arrived or the gate has closed elsewhere.
- A grant is taken from a lease (`take`), returned if nothing was sent (`refund`), and reported once when it has been
  answered (`settle`, then one of the `on_` methods). Governors drop windows that are idle, so a store that knows its
  windows refers to them weakly.
- A window never fails a request because its store is out of reach: it goes on with this process's share of the limit,
  and says so in its state.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from svc_async.governor.windows import Demand, FirmLimit, RateLimitHeaders, Window, WindowState
from svc_async.wire.route import Surface

__all__ = ["CountingWindow", "WindowSpec", "WindowStore"]


@attrs.frozen(kw_only=True)
class WindowSpec:
    """What a window counts; equal specs share one count.

    Attributes:
        name: the limit's name; for an unknown endpoint, its method and path template.
        surface: the host.
        scope: whose requests are counted.
        limit: requests per period; None if it is to be learned.
        period: in ticks.
        headroom: the share of the limit that is used, where it is paced evenly.
        documented: the reference states the limit.
    """

    name: str
    surface: Surface
    scope: str
    limit: int | None
    period: int
    headroom: float
    documented: bool


class CountingWindow(Protocol):
    """The count of one bucket, as the scheduler uses it; times are ticks of this process's clock."""

    @property
    def limit(self) -> int | None:
        """Requests per period; None while it is unknown."""
        ...

    @property
    def documented(self) -> bool:
        """Whether the reference states the limit."""
        ...

    @property
    def firm_limit(self) -> FirmLimit:
        """What is certain of the limit; when it has changed, every waiting request is judged by its place."""
        ...

    @property
    def reserve(self) -> int:
        """What bulk leaves to interactive requests."""
        ...

    @property
    def spacing(self) -> int:
        """The ticks from one request to the next, if all of the limit is used evenly."""
        ...

    def admits(self, cost: int, now: int) -> bool:
        """Return whether this cost may go now."""
        ...

    def opens_at(self, cost: int, now: int) -> int:
        """Return the tick from which time alone does not forbid this cost; it may have passed."""
        ...

    def firm_opens_at(self, cost: int, now: int) -> int:
        """Return what `opens_at` does, apart from what only a guessed limit forbids."""
        ...

    def admits_beyond_guess(self, cost: int, now: int) -> bool:
        """Return whether at most a guessed limit forbids that this cost goes now."""
        ...

    def next_check_at(self, cost: int, now: int) -> int:
        """Return the next tick at which time alone may change what `admits` returns; NEVER if it cannot."""
        ...

    def request_capacity(self, demand: Callable[[], Demand], now: int) -> None:
        """Note that requests wait; called whenever the scheduler could not grant them all.

        Args:
            demand: counts them, at some cost; to be called at once or not at all.
            now: the current tick.
        """

    def take(self, cost: int, now: int) -> None:
        """Grant a cost that `admits` has just admitted."""

    def refund(self, cost: int, granted_at: int) -> None:
        """Take back a grant of which nothing was sent."""

    def restore(self, sent_at: Sequence[int]) -> None:
        """Count requests that an earlier process sent at these ticks, unless the store has counted them already."""

    def settle(self, cost: int, now: int, headers: RateLimitHeaders | None = None) -> None:
        """End a request that was sent: with what its answer says about this limit, or with nothing."""

    def on_success(self, granted_at: int) -> None:
        """Note, after `settle`, that the service did its work."""

    def retire_guess(self, now: int) -> None:
        """Note, after `settle`, a success without rate-limit headers: a guessed limit is counted no more."""

    def on_overload(self, granted_at: int, now: int) -> None:
        """Note, after `settle`, an overload or a lost answer."""

    def on_rate_limited(self, headers: RateLimitHeaders, granted_at: int, now: int, jitter: float) -> None:
        """Note, after `settle`, a 429 that concerns this limit; `jitter` is from 0 to 1."""

    def is_idle(self, now: int) -> bool:
        """Return whether the governor may forget this window: a new one would decide the same."""
        ...

    def state(self, now: int) -> WindowState:
        """Return what a snapshot shows."""
        ...


class WindowStore:
    """Hands out windows in the memory of this process; one that shares its counts overrides all three methods."""

    async def open(self) -> None:
        """Connect; a governor calls this when it is entered.

        Raises:
            SvcError: the store cannot be reached.
        """

    async def close(self) -> None:
        """Return what is leased and disconnect; a governor calls this when it is left."""

    def window(self, spec: WindowSpec, on_change: Callable[[], object]) -> CountingWindow:
        """Return a new window for a bucket.

        Args:
            spec: what it counts.
            on_change: to be called when something other than time and this governor has changed what the window
                admits; on the governor's loop, and not from within a call of the governor.
        """
        del on_change
        return Window(spec.limit, spec.period, spec.headroom, spec.documented)
