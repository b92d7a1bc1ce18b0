"""Rate-limit windows on the sandbox's clock, and their headers."""

from collections import deque
from collections.abc import Iterable
from math import ceil

import attrs

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.config import RATE_RULES, RateRule, SandboxConfig
from svc_async.sandbox.refusal import Basis, Problem, Refusal

__all__ = ["Gauge", "RateLimits"]

_RULE_IDS = {
    "audience_users": ("CAU-03", Basis.SPEC),
    "total_count": ("GEN-10", Basis.SPEC),
    "request_tokens": ("AUTH-09", Basis.SPEC),
    "bearer_tokens": ("AUTH-22", Basis.SPEC),
}


@attrs.define
class _Window:
    """The count of the requests of one rule and scope."""

    rule: RateRule
    kind: str
    opened: float | None = None
    used: int = 0
    moments: deque[float] = attrs.field(factory=deque[float])

    def roll(self, now: float) -> None:
        """Discard requests that have left the window."""
        if self.kind == "sliding":
            while self.moments and self.moments[0] + self.rule.seconds <= now:
                self.moments.popleft()
            self.used = len(self.moments)
        elif self.opened is None or self.opened + self.rule.seconds <= now:
            self.opened = now - now % self.rule.seconds if self.kind == "fixed" else None
            self.used = 0

    def take(self, now: float) -> None:
        """Count one request."""
        self.used += 1
        if self.kind == "sliding":
            self.moments.append(now)
        elif self.opened is None:
            self.opened = now

    @property
    def remaining(self) -> int:
        return max(self.rule.requests - self.used, 0)

    def reset(self, now: float) -> int:
        start = self.moments[0] if self.moments else self.opened
        return ceil((now if start is None else start) + self.rule.seconds)


@attrs.frozen(kw_only=True)
class Gauge:
    """The present count of one limit for one account, user or app.

    Attributes:
        name: of the rule.
        scope: the account, the user's token or the app's key that it counts.
        reset: the Unix time at which requests leave the window.
    """

    name: str
    scope: str
    used: int
    rule: RateRule
    reset: int


class RateLimits:
    """All windows of a sandbox."""

    def __init__(self, clock: Clock, config: SandboxConfig) -> None:
        self._clock = clock
        self._config = config
        self._rules = {**RATE_RULES, **config.rate_rules}
        self._windows: dict[tuple[str, str], _Window] = {}

    def take(self, names: Iterable[str], *, user: str, account: str | None) -> dict[str, str]:
        """Count a request in all its windows and return the rate-limit headers of the tightest.

        Raises:
            Refusal: one of them is full; then it is counted in none.
        """
        if not self._config.rate_limits or not (names := tuple(names)):
            return {}
        now = self._clock.now().timestamp()
        windows = {name: self._find_window(name, user, account) for name in names}
        for window in windows.values():
            window.roll(now)
        for name, window in windows.items():
            if not window.remaining:
                rule, basis = _RULE_IDS.get(name, ("ASM-11", Basis.PUBLIC))
                problem = Problem("TOO_MANY_REQUESTS", f"the limit {name} is used up")
                raise Refusal(429, problem, rule=rule, basis=basis, headers=self._make_headers([window], now))
        for window in windows.values():
            window.take(now)
        return self._make_headers(windows.values(), now)

    def count(self, name: str, *, user: str = "", account: str | None = None) -> int:
        """Return how many requests a window has counted."""
        window = self._find_window(name, user, account)
        window.roll(self._clock.now().timestamp())
        return window.used

    def list_gauges(self) -> list[Gauge]:
        """Return the windows that have counted requests."""
        now = self._clock.now().timestamp()
        for window in self._windows.values():
            window.roll(now)
        return [
            Gauge(name=name, scope=scope, used=window.used, rule=window.rule, reset=window.reset(now))
            for (name, scope), window in self._windows.items()
            if window.used
        ]

    def _find_window(self, name: str, user: str, account: str | None) -> _Window:
        rule = self._rules[name]
        scope = account if rule.scope == "account" and account is not None else user
        return self._windows.setdefault((name, scope), _Window(rule, self._config.rate_windows))

    def _make_headers(self, windows: Iterable[_Window], now: float) -> dict[str, str]:
        tightest = min(windows, key=lambda window: window.remaining)
        headers = _make_headers("x-rate-limit", tightest, now)
        if self._config.account_rate_headers and tightest.rule.scope == "account":
            headers |= _make_headers("x-account-rate-limit", tightest, now)
        return headers


def _make_headers(prefix: str, window: _Window, now: float) -> dict[str, str]:
    return {
        f"{prefix}-limit": str(window.rule.requests),
        f"{prefix}-remaining": str(window.remaining),
        f"{prefix}-reset": str(window.reset(now)),
    }
