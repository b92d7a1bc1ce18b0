"""Which `Authorization` header proves which credentials."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Protocol

from svc_async.auth.credentials import (
    AppCredentials,
    BearerToken,
    Credentials,
    UserCredentials,
)
from svc_async.auth.oauth1 import OAuth1Signer
from svc_async.clock import Clock
from svc_async.wire.params import quote

__all__ = ["Authorization", "authorization", "basic", "bearer", "identity", "nobody"]


class Authorization(Protocol):
    """Makes the header of one attempt."""

    def __call__(
        self, method: str, url: str, query: Sequence[tuple[str, str]] = (), oauth: Mapping[str, str] | None = None, /
    ) -> str:
        """Make it from the method, the URL without query, the quoted query and further OAuth 1.0a parameters.

        An empty one is not sent.
        """
        ...


def authorization(credentials: Credentials, clock: Clock) -> Authorization:
    """Give what makes the header for these credentials."""
    if isinstance(credentials, UserCredentials | AppCredentials):
        return OAuth1Signer(credentials, clock).header
    return bearer(credentials.token if isinstance(credentials, BearerToken) else credentials.access_token)


def bearer(token: str) -> Authorization:
    """Carry a token as it came: it is percent-encoded already (contract AUTH-25)."""
    return _standing(f"Bearer {token}")


def basic(name: str, password: str) -> Authorization:
    """Present a client by its name and password, each percent-encoded (contract AUTH-20)."""
    # Unspecified: that both are percent-encoded (contract UNS-oauth2-credentials-error).
    pair = f"{quote(name)}:{quote(password)}"
    return _standing(f"Basic {b64encode(pair.encode('ascii')).decode('ascii')}")


def nobody() -> Authorization:
    """Prove nothing: the call names its client in the body."""
    return _standing("")


def _standing(header: str) -> Authorization:
    return lambda _method, _url, _query=(), _oauth=None, /: header


def identity(credentials: Credentials) -> str:
    """Name whose rate limits a call uses: one name for one token, telling nothing of it."""
    return f"{type(credentials).__name__}:{hash(credentials):x}"
