"""Signs a request with OAuth 1.0a, HMAC-SHA1 (RFC 5849; contract AUTH-01b, AUTH-01c, AUTH-01f).

Names and values of the query are passed in quoted, as sent on the wire, so that base string and wire agree byte for
byte. A JSON body is not part of the signature. What never changes is sorted and quoted once, when the signer is
created.
"""

import hmac
import logging
import secrets
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import attrs

from svc_async.auth.credentials import AppCredentials, UserCredentials
from svc_async.clock import Clock
from svc_async.errors import Unauthorized
from svc_async.wire.envelope import parse_http_date
from svc_async.wire.params import quote

__all__ = ["OAuth1Signer", "SigningClock", "base_string", "key_hash", "signature"]

Pairs = Sequence[tuple[str, str]]
# Unspecified: how a service refuses a time that is too far from its own (contract ASM-10): by a code of its own, 135,
# or as any wrong signature.
_MAY_BE_THE_CLOCK: Final[Sequence[str | int]] = (135, 32, "UNAUTHORIZED_ACCESS")
_TOLERATED: Final = 60.0
"""Seconds that clocks may differ: `Date` counts whole ones, and the answer has been on the way."""
_log = logging.getLogger("svc_async")


@attrs.define(eq=False)
class SigningClock:
    """The clock of all signatures of a session and of those made of it.

    It shows the time of this machine until a service refuses that time, and the time of the service from then on.

    Attributes:
        ahead: the seconds that it is ahead of this machine.
    """

    _clock: Clock
    ahead: float = attrs.field(default=0.0, init=False)

    def now(self) -> datetime:
        """Return the time of a signature that is made now."""
        now = self._clock.now()
        return now + timedelta(seconds=self.ahead) if self.ahead else now

    def learn(self, refusal: Unauthorized, *, ahead: float, is_secure: bool) -> bool:
        """Note in a refusal by how much the clocks differ, if that may explain it; return whether to sign again.

        Args:
            refusal: the refusal of a signed call, which had no effect.
            ahead: what `ahead` was when the call was signed.
            is_secure: whether the answer came over TLS. Otherwise whoever changes it on its way would choose the time
                of signatures, and could use them later.
        """
        theirs = parse_http_date(refusal.headers.get("date", ""))
        if theirs is None or not any(map(refusal.has_code, _MAY_BE_THE_CLOCK)):
            return False
        difference = (theirs - self._clock.now()).total_seconds()
        if abs(difference - ahead) <= _TOLERATED:
            return False
        refusal.blame_clock(difference)
        if not is_secure:
            return False
        _log.warning("the service's clock is %+.0f s from this machine's; calls are signed with its time", difference)
        self.ahead = difference
        return True


def _make_nonce() -> str:
    return secrets.token_hex(16)  # ASCII only: contract AUTH-06


@attrs.frozen
class OAuth1Signer:
    """Builds `Authorization` headers for one app, and for one user if the credentials have a token.

    Args:
        credentials: the user's, or the app's for calls before a user is known (contract AUTH-01e).
        clock: the source of `oauth_timestamp`.
        nonce: returns a new string of unreserved characters for every call.
    """

    credentials: UserCredentials | AppCredentials
    clock: Clock | SigningClock
    nonce: Callable[[], str] = _make_nonce

    _keyed_hash: hmac.HMAC = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: key_hash(self.credentials), takes_self=True)
    )
    _constant_parameters: Pairs = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: _quote_constants(self.credentials), takes_self=True)
    )
    _template: "_Template" = attrs.field(
        init=False,
        repr=False,
        default=attrs.Factory(lambda self: _make_template(self._constant_parameters), takes_self=True),
    )

    def header(self, method: str, url: str, query: Pairs = (), oauth: Mapping[str, str] | None = None) -> str:
        """Return the header of one attempt; every attempt has its own nonce and timestamp.

        Args:
            method: the HTTP method in capitals.
            url: the URL without its query, as sent on the wire.
            query: quoted names and values, as sent on the wire.
            oauth: further protocol parameters by their full names, such as `oauth_callback`; not quoted.
        """
        nonce, timestamp = self.nonce(), str(int(self.clock.now().timestamp()))
        further = [(quote(name), quote(value)) for name, value in oauth.items()] if oauth else ()
        others = [*query, *further]
        if others:
            base = base_string(method, url, [*self._constant_parameters, *_list_changing(nonce, timestamp), *others])
        else:
            base = _prefix(method, url) + self._template.base_string % (nonce, timestamp)
        signed = signature(self._keyed_hash, base).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
        listed = "".join(f', {name}="{value}"' for name, value in further) if further else ""
        return self._template.header % (nonce, timestamp, listed, signed)


@attrs.frozen
class _Template:
    """The parameters of the protocol, to be formatted with what changes from request to request.

    Attributes:
        base_string: takes nonce and timestamp.
        header: takes nonce, timestamp, further parameters and signature.
    """

    base_string: str
    header: str


def _make_template(constants: Pairs) -> _Template:
    parameters = [*constants, *_list_changing("\0", "\0")]
    listed = ", ".join(f'{name}="{value}"' for name, value in parameters)
    return _Template(
        *(
            text.replace("%", "%%").replace("\0", "%s")
            for text in (_quote_pairs(parameters), f'OAuth {listed}\0, oauth_signature="\0"')
        )
    )


def _list_changing(nonce: str, timestamp: str) -> Pairs:
    return ("oauth_nonce", nonce), ("oauth_timestamp", timestamp)


def key_hash(credentials: UserCredentials | AppCredentials) -> hmac.HMAC:
    """Return an HMAC keyed with the secrets (RFC 5849, 3.4.2)."""
    token_secret = credentials.token_secret if isinstance(credentials, UserCredentials) else ""
    return hmac.new(f"{quote(credentials.consumer_secret)}&{quote(token_secret)}".encode("ascii"), digestmod="sha1")


def _quote_constants(credentials: UserCredentials | AppCredentials) -> Pairs:
    fixed = [
        ("oauth_consumer_key", quote(credentials.consumer_key)),
        ("oauth_signature_method", "HMAC-SHA1"),
        ("oauth_version", "1.0"),
    ]
    if isinstance(credentials, UserCredentials):
        fixed.append(("oauth_token", quote(credentials.token)))
    return tuple(fixed)


def base_string(method: str, url: str, parameters: Pairs) -> str:
    """Return the string to sign (RFC 5849, 3.4.1) for quoted names and values."""
    return _prefix(method, url) + _quote_pairs(parameters)


def signature(keyed_hash: hmac.HMAC, base: str) -> str:
    """Sign a base string with HMAC-SHA1 (RFC 5849, 3.4.2); `keyed_hash` stays unchanged."""
    mac = keyed_hash.copy()
    mac.update(base.encode("ascii"))
    return b2a_base64(mac.digest(), newline=False).decode("ascii")


@lru_cache(maxsize=4096)
def _prefix(method: str, url: str) -> str:
    return f"{method}&{quote(url)}&"


def _quote_pairs(parameters: Pairs) -> str:
    text = "&".join(f"{name}={value}" for name, value in sorted(parameters))
    # Only the three characters that quoting and joining produce are reserved.
    return text.replace("%", "%25").replace("&", "%26").replace("=", "%3D")
