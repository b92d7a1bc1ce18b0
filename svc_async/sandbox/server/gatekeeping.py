"""What a request must pass before its operation runs.

host → route → https → credentials and permission → account → gate → rate limit → content type.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from math import ceil

import attrs

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.config import RATE_RULES, RateRule, SandboxConfig
from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.server.auth import AuthRequest, Caller, Scheme, Verifier
from svc_async.sandbox.server.operations import Operation, Routes, Surface, no_access
from svc_async.sandbox.server.reading import Pairs, read_boolean
from svc_async.sandbox.server.rendering import Format
from svc_async.sandbox.state.store import Collection

__all__ = [
    "Gatekeeper",
    "Gauge",
    "RateLimits",
    "check_content",
    "default_format",
    "is_loopback",
    "parse_host",
    "split_surface",
]

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
                raise Refusal(429, problem, rule=rule, basis=basis, headers=_make_headers([window], now))
        for window in windows.values():
            window.take(now)
        return _make_headers(windows.values(), now)

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


def _make_headers(windows: Iterable[_Window], now: float) -> dict[str, str]:
    tightest = min(windows, key=lambda window: window.remaining)
    # Unspecified: the headers, and that there are none for an account besides (ASM-103).
    return {
        "x-rate-limit-limit": str(tightest.rule.requests),
        "x-rate-limit-remaining": str(tightest.remaining),
        "x-rate-limit-reset": str(tightest.reset(now)),
    }


_PREFIXES: tuple[tuple[str, Surface], ...] = (("/ads-sandbox", "ads_sandbox"), ("/ads", "ads"), ("", "base"))
_JSON = "application/json"
_CONTENT_TYPES: Mapping[str, str] = {
    "array": _JSON,
    "object": _JSON,
    "form": "application/x-www-form-urlencoded",
}


@attrs.frozen
class Gatekeeper:
    """Finds the operation of a request and decides whether the caller may use it now."""

    _config: SandboxConfig
    _accounts: Collection
    _routes: Routes
    _verifier: Verifier
    _limits: RateLimits

    def check_host(self, given: Sequence[str], address: str) -> None:
        """Check that `Host` is there once and names this server, so that no page of another site can reach it.

        Args:
            given: the values of the header.
            address: the address that the connection was made to.

        Raises:
            Refusal: it is missing, malformed, or names another server.
        """
        host = parse_host(given)
        if not (is_loopback(host) or host == address or host in self._config.hosts):
            # Unspecified: that other names are refused, and how (ASM-94).
            raise Refusal(421, Problem("ROUTE_NOT_FOUND", "Host names another server", "Host"), rule="ASM-94")

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Find the operation of a request and the decoded ids of its path.

        Raises:
            Refusal: there is none.
        """
        surface, rest = split_surface(path)
        return self._routes.find(surface, method, rest)

    def format_of(self, method: str, path: str) -> Format:
        """Return the format of refusals that have nothing to do with credentials."""
        try:
            found = self.find(method, path)[0].format
        except Refusal:
            return default_format(path)
        return Format.V1 if found is Format.CREDENTIALS else found

    def identify(self, operation: Operation, request: AuthRequest) -> Caller:
        """Return the authenticated caller.

        Raises:
            Refusal: it is not https where it must be, the credentials are wrong, or they do not allow this operation.
        """
        self._check_https(operation, request)
        caller = self._verifier.identify(request, self._list_schemes(operation))
        _check_permission(operation, caller)
        return caller

    def admit(
        self, operation: Operation, caller: Caller, ids: Mapping[str, str], *, path: str, query: Pairs
    ) -> dict[str, str]:
        """Count a request of an identified caller and return the rate-limit headers.

        Raises:
            Refusal: the account is not the caller's, the gate is closed, or a rate limit is exceeded.
        """
        account = self._check_account(caller, ids, path)
        if operation.gate in self._config.closed_gates:
            raise no_access(str(operation.gate))
        return self._limits.take(self._list_limits(operation, query), user=caller.counted_as, account=account)

    def _check_https(self, operation: Operation, request: AuthRequest) -> None:
        # Unspecified: that plain http is accepted here, and the answer where it is not (ASM-84).
        if self._config.require_https and not request.is_https and operation.surface == "base":
            raise Refusal(403, Problem("HTTPS_REQUIRED", "HTTPS is required"), rule="AUTH-10", basis=Basis.SPEC)

    def _list_schemes(self, operation: Operation) -> tuple[Scheme, ...]:
        scoped: tuple[Scheme, ...] = (
            ("oauth2_user",) if operation.may_be_scoped and self._config.scoped_activity else ()
        )
        return (*operation.schemes, *scoped)

    def _check_account(self, caller: Caller, ids: Mapping[str, str], path: str) -> str | None:
        """Return the account in the path, which must be the caller's (GEN-02b)."""
        account_id = ids.get("account_id")
        if account_id is None:
            return None
        account = self._accounts.get(account_id, with_deleted=True)
        if account is None or account.owner != caller.user:
            problem = Problem("ACCOUNT_NOT_FOUND", "the account is not associated with the user", "account_id")
            raise Refusal(403, problem, rule="GEN-02b", basis=Basis.SPEC)
        if account.deleted and not path.endswith(f"/{account_id}"):
            # Unspecified: the answer for records of a deleted account (ASM-100).
            problem = Problem("ACCOUNT_NOT_FOUND", "the account is deleted", "account_id")
            raise Refusal(404, problem, rule="ASM-100", basis=Basis.PUBLIC)
        return account_id

    def _list_limits(self, operation: Operation, query: Pairs) -> tuple[str, ...]:
        if operation.limit is None:
            return ()
        # Unspecified: a list with a total count is counted in its own window too, not in the lower one only.
        counted = any(name == "with_total_count" and read_boolean(value, self._config) for name, value in query)
        return (operation.limit, "total_count") if counted else (operation.limit,)


_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", re.ASCII)


def parse_host(given: Sequence[str]) -> str:
    """Return the name or address in the values of the header `Host`, in lower case.

    Raises:
        Refusal: there is not one value, or it is malformed (RFC 9112, 3.2).
    """
    found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        raise Refusal(400, Problem("INVALID_PARAMETER", "the request needs one valid Host", "Host"), rule="ASM-94")
    return str(found[1] or found[2]).lower()


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's own."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def split_surface(path: str) -> tuple[Surface, str]:
    """Return the host that a path stands for, and the path there."""
    for prefix, surface in _PREFIXES:
        if path.startswith(f"{prefix}/"):
            return surface, path.removeprefix(prefix)
    return "base", path


def default_format(path: str) -> Format:
    """Return the format of that part of the service, for a path without an operation."""
    if split_surface(path)[0] != "base":
        return Format.ADS
    return Format.V2 if path.startswith("/2/") else Format.V1


def _check_permission(operation: Operation, caller: Caller) -> None:
    """Check what the user allows: with OAuth 1.0a, which takes precedence over scopes (AUTH-26b), or with scopes."""
    if caller.access == "read" and not operation.reads:
        # Unspecified: the answer to a write with a read-only token (ASM-78).
        code = 220 if operation.surface == "base" else "READONLY_CLIENT_APPLICATION"
        raise Refusal(403, Problem(code, "The access token is read-only"), rule="ASM-78", basis=Basis.PUBLIC)
    if caller.access is None and caller.scheme == "oauth2_user" and not {*operation.scopes} <= {*caller.scopes}:
        problem = Problem("INSUFFICIENT_SCOPE", f"this call needs {' '.join(operation.scopes)}")
        raise Refusal(403, problem, rule="AUTH-26", basis=Basis.SPEC)


def check_content(operation: Operation, content_type: str, body: bytes) -> None:
    """Check that the body is of the type that the operation takes.

    Raises:
        Refusal: it is not.
    """
    if operation.body == "none":
        if body:
            problem = Problem("INVALID_PARAMETER", "the parameters of this call go in the query string")
            raise Refusal(400, problem, rule="GEN-15", basis=Basis.SPEC)
        return
    expected = _CONTENT_TYPES[operation.body]
    if (body or operation.body != "form") and content_type.partition(";")[0].strip().lower() != expected:
        # Unspecified: status and code (ASM-96).
        problem = Problem("INVALID_PARAMETER", f"the body needs Content-Type: {expected}", "Content-Type")
        raise Refusal(400, problem, rule="GEN-16", basis=Basis.SPEC)
