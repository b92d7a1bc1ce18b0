"""What a request must pass before its operation runs.

route → https → credentials and permission → account → gate → rate limit → content type.
"""

from collections.abc import Mapping

import attrs

from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.server.auth import AuthRequest, Caller, Scheme, Verifier
from svc_async.sandbox.server.operations import Operation, Routes, Surface, no_access
from svc_async.sandbox.server.rate_limits import RateLimits
from svc_async.sandbox.server.rendering import Format
from svc_async.sandbox.state.store import Collection

__all__ = ["Gatekeeper", "check_content", "default_format"]

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

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Find the operation of a request and the decoded ids of its path.

        Raises:
            Refusal: there is none.
        """
        surface, rest = _split_surface(path)
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
        self, operation: Operation, caller: Caller, ids: Mapping[str, str], *, path: str, query: str
    ) -> dict[str, str]:
        """Count a request of an identified caller and return the rate-limit headers.

        Raises:
            Refusal: the account is not the caller's, the gate is closed, or a rate limit is exceeded.
        """
        account = self._check_account(caller, ids, path)
        if operation.gate in self._config.closed_gates:
            raise no_access(str(operation.gate))
        return self._limits.take(_list_limits(operation, query), user=caller.counted_as, account=account)

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


def _split_surface(path: str) -> tuple[Surface, str]:
    for prefix, surface in _PREFIXES:
        if path.startswith(f"{prefix}/"):
            return surface, path.removeprefix(prefix)
    return "base", path


def default_format(path: str) -> Format:
    """Return the format of that part of the service, for a path without an operation."""
    if _split_surface(path)[0] != "base":
        return Format.ADS
    return Format.V2 if path.startswith("/2/") else Format.V1


def _list_limits(operation: Operation, query: str) -> tuple[str, ...]:
    if operation.limit is None:
        return ()
    # Unspecified: a list with a total count is counted in its own window too, not in the lower one only.
    counted = "with_total_count=true" in query.split("&")
    return (operation.limit, "total_count") if counted else (operation.limit,)


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
