"""Builds the `Authorization` header of each kind of credentials."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import attrs

from svc_async.auth.credentials import (
    AppCredentials,
    BearerToken,
    Credentials,
    UserCredentials,
)
from svc_async.auth.oauth1 import OAuth1Signer, SigningClock
from svc_async.clock import Clock
from svc_async.wire.params import quote

__all__ = ["Authorization", "anonymous", "authorization", "basic", "bearer", "identity"]


Authorization = Callable[[str, str, Sequence[tuple[str, str]], Mapping[str, str] | None], str]
"""Takes a method, a URL without query, the quoted query and further OAuth 1.0a parameters, and returns a header.

An empty one is not sent.
"""


def authorization(credentials: Credentials, clock: Clock | SigningClock) -> Authorization:
    """Return the builder of the header for these credentials."""
    if isinstance(credentials, UserCredentials | AppCredentials):
        return OAuth1Signer(credentials, clock).header
    return bearer(credentials.token if isinstance(credentials, BearerToken) else credentials.access_token)


def bearer(token: str) -> Authorization:
    """Send a token as received: it is percent-encoded already (contract AUTH-25)."""
    return _constant(f"Bearer {token}")


def basic(name: str, password: str) -> Authorization:
    """Identify a client by name and password, each percent-encoded (contract AUTH-20)."""
    # Unspecified: that both are percent-encoded (contract UNS-oauth2-credentials-error).
    pair = f"{quote(name)}:{quote(password)}"
    return _constant(f"Basic {b64encode(pair.encode('ascii')).decode('ascii')}")


def anonymous() -> Authorization:
    """Send no header: the call names its client in the body."""
    return _constant("")


def _constant(header: str) -> Authorization:
    return lambda _method, _url, _query, _oauth: header


def identity(credentials: Credentials) -> str:
    """Return a name for the token whose rate limits a call uses; it reveals nothing about the token.

    It is the same in all processes, which may count these limits together, and only who has the token can compute it.
    """
    values = attrs.astuple(credentials)
    digest = blake2b(repr(values).encode(), digest_size=16, person=b"svc-async")
    return f"{type(credentials).__name__}:{digest.hexdigest()}"
