"""Which `Authorization` header proves which credentials."""

from collections.abc import Callable, Sequence

from svc_async.auth.credentials import (
    AppCredentials,
    BearerToken,
    Credentials,
    UserCredentials,
)
from svc_async.auth.oauth1 import OAuth1Signer
from svc_async.clock import Clock

__all__ = ["Authorization", "authorization", "identity"]

Authorization = Callable[[str, str, Sequence[tuple[str, str]]], str]
"""Makes the header of one attempt from its method, its URL without query and its quoted query."""


def authorization(credentials: Credentials, clock: Clock) -> Authorization:
    """Give what makes the header for these credentials."""
    if isinstance(credentials, UserCredentials | AppCredentials):
        return OAuth1Signer(credentials, clock).header
    return _bearer(credentials.token if isinstance(credentials, BearerToken) else credentials.access_token)


def _bearer(token: str) -> Authorization:
    header = f"Bearer {token}"
    return lambda _method, _url, _query: header


def identity(credentials: Credentials) -> str:
    """Name whose rate limits a call uses: one name for one token, telling nothing of it."""
    return f"{type(credentials).__name__}:{hash(credentials):x}"
