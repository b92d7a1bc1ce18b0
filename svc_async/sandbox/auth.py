"""Verifies OAuth 1.0a, HMAC-SHA1, as RFC 5849 has it: the sandbox's own reading, shared with no client.

Only the `Authorization` header is read for protocol parameters. The signature covers the method, the address without
query, and the parameters of header, query and form body; a JSON body is no part of it.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import attrs

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.dialects import Basis, Problem, Refusal

__all__ = ["App", "Token", "Verifier", "parse_header", "signature", "signature_base"]

_HEADER_PART = re.compile(r'\s*([A-Za-z0-9_%.~-]+)="([^"]*)"\s*')
_REQUIRED = (
    "oauth_consumer_key",
    "oauth_nonce",
    "oauth_signature",
    "oauth_signature_method",
    "oauth_timestamp",
    "oauth_token",
    "oauth_version",
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@attrs.frozen
class App:
    """A registered application."""

    consumer_key: str
    consumer_secret: str = attrs.field(repr=False)


@attrs.define
class Token:
    """An access token: a user's consent to one app."""

    token: str
    secret: str = attrs.field(repr=False)
    user_id: str
    consumer_key: str
    valid: bool = True


def escape(text: str) -> str:
    """Percent-encode as RFC 5849 3.6 does."""
    return quote(text, safe="~")


def parse_header(header: str) -> list[tuple[str, str]]:
    """Read the parameters of an `OAuth ...` header, decoded, without the realm.

    Raises:
        ValueError: it is not such a header.
    """
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "oauth":
        raise ValueError("not an OAuth header")
    pairs = [_header_part(part) for part in rest.split(",")]
    return [(name, value) for name, value in pairs if name != "realm"]


def _header_part(part: str) -> tuple[str, str]:
    if (found := _HEADER_PART.fullmatch(part)) is None:
        raise ValueError("malformed OAuth header")
    return unquote(found[1]), unquote(found[2])


def signature_base(method: str, url: str, parameters: Iterable[tuple[str, str]]) -> str:
    """Write the signature base string (RFC 5849 3.4.1) of a request to `url` with all its decoded `parameters`.

    The query of `url` is left out here: it is among the parameters.
    """
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), parts.netloc.lower()
    address = f"{scheme}://{host.removesuffix(_DEFAULT_PORTS.get(scheme, ''))}{parts.path or '/'}"
    encoded = sorted((escape(name), escape(value)) for name, value in parameters if name != "oauth_signature")
    joined = "&".join(f"{name}={value}" for name, value in encoded)
    return f"{method.upper()}&{escape(address)}&{escape(joined)}"


def signature(base: str, consumer_secret: str, token_secret: str = "") -> str:
    """Sign a base string with HMAC-SHA1 (RFC 5849 3.4.2)."""
    key = f"{escape(consumer_secret)}&{escape(token_secret)}".encode()
    return base64.b64encode(hmac.new(key, base.encode(), hashlib.sha1).digest()).decode()


def form_pairs(text: str) -> list[tuple[str, str]]:
    """Decode a query string or a form body."""
    return parse_qsl(text, keep_blank_values=True)


@attrs.define
class Verifier:
    """Knows the apps and tokens and decides who is calling.

    Attributes:
        skew: seconds that `oauth_timestamp` may differ from the clock.
    """

    clock: Clock
    skew: float
    apps: dict[str, App] = attrs.field(factory=dict[str, App])
    tokens: dict[str, Token] = attrs.field(factory=dict[str, Token])
    _nonces: dict[tuple[str, str], float] = attrs.field(factory=dict[tuple[str, str], float])

    def user(self, method: str, url: str, query: str, header: str | None, form: str = "") -> Token:
        """Tell whose token signed a request.

        Raises:
            Refusal: it is not signed, or not well.
        """
        given = self._parameters(header)
        parameters = dict(given)
        if len(parameters) != len(given):
            raise _refused("a parameter of the Authorization header is given twice")
        if missing := [name for name in _REQUIRED if not parameters.get(name)]:
            raise _refused(f"the Authorization header lacks {', '.join(missing)}", rule="AUTH-01f")
        self._check_constants(parameters)
        app = self.apps.get(parameters["oauth_consumer_key"])
        if app is None:
            raise _refused("unknown consumer key")
        token = self._token(parameters["oauth_token"], app)
        base = signature_base(method, url, [*given, *form_pairs(query), *form_pairs(form)])
        expected = signature(base, app.consumer_secret, token.secret)
        if not hmac.compare_digest(expected.encode(), parameters["oauth_signature"].encode()):
            raise _refused("the signature does not match the request")
        self._check_once(token, parameters["oauth_nonce"], int(parameters["oauth_timestamp"]))
        return token

    def _parameters(self, header: str | None) -> list[tuple[str, str]]:
        if header is None:
            raise _refused("the Authorization header is missing", rule="AUTH-01f")
        if header.lower().startswith("bearer "):
            # Unspecified: what a bearer token is answered where user context is needed (ASM-73).
            raise Refusal(403, Problem(220, "Your credentials do not allow access to this resource"), rule="ASM-73")
        try:
            return parse_header(header)
        except ValueError as error:
            raise _refused(str(error), rule="AUTH-01f") from None

    def _check_constants(self, parameters: Mapping[str, str]) -> None:
        if parameters["oauth_signature_method"] != "HMAC-SHA1":
            raise _refused("oauth_signature_method must be HMAC-SHA1", rule="AUTH-01c")
        if parameters["oauth_version"] != "1.0":
            raise _refused("oauth_version must be 1.0", rule="AUTH-01c")
        if not parameters["oauth_nonce"].isascii():
            raise _refused("oauth_nonce must be ASCII", rule="AUTH-01b")
        if not re.fullmatch(r"[1-9][0-9]{0,11}", parameters["oauth_timestamp"]):
            raise _refused("oauth_timestamp must be Unix seconds", rule="AUTH-01b")

    def _token(self, value: str, app: App) -> Token:
        token = self.tokens.get(value)
        if token is None or not token.valid or token.consumer_key != app.consumer_key:
            raise Refusal(401, Problem(89, "Invalid or expired token"), rule="ERR-01", basis=Basis.SPEC)
        return token

    def _check_once(self, token: Token, nonce: str, timestamp: int) -> None:
        now = self.clock.now().timestamp()
        if abs(now - timestamp) > self.skew:
            raise _refused("oauth_timestamp is too far from the time of the service", rule="ASM-10")
        self._forget_before(now - 2 * self.skew)
        if (token.token, nonce) in self._nonces:
            raise _refused("oauth_nonce was used before", rule="ASM-75")
        self._nonces[token.token, nonce] = now

    def _forget_before(self, moment: float) -> None:
        while self._nonces and next(iter(self._nonces.values())) < moment:
            del self._nonces[next(iter(self._nonces))]


def _refused(message: str, *, rule: str = "ASM-75") -> Refusal:
    # Unspecified: code and words of a signature that does not verify on the advertising API (ASM-75, ASM-91).
    basis = Basis.SPEC if rule.startswith("AUTH") else Basis.ASSUMED
    return Refusal(401, Problem("UNAUTHORIZED_ACCESS", message), rule=rule, basis=basis)
