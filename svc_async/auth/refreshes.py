"""The refreshes of users' tokens, shared by all sessions over the same connections.

A refresh token may be used once: a service that sees it again revokes the grant, and the user must approve again. So
sessions with the same refresh token share one refresh, and one that is made with a refresh token that was used already,
because the new credentials are not stored yet, finds those that followed.
"""

import asyncio
import copy
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from functools import partial

import attrs

from svc_async.auth.credentials import OAuth2UserCredentials
from svc_async.auth.single_flight import SingleFlight
from svc_async.clock import Clock
from svc_async.errors import ApiError
from svc_async.wire.outcome import repeat_refusal

__all__ = ["Refreshes"]

_MOST = 10_000
"""How many results are kept: refreshes of the last hours, in a few megabytes."""
_REFUSED_BEFORE = "a refresh token that was refused is not sent again; the user must approve again"

_Request = Callable[[OAuth2UserCredentials], Awaitable[OAuth2UserCredentials]]


@attrs.define(eq=False)
class Refreshes:
    """Sends each refresh token once, and knows what followed it. Refresh tokens are looked up by a keyed hash.

    Args:
        most: how many results are kept; the oldest are forgotten first.
    """

    _most: int = _MOST
    _key: bytes = attrs.field(init=False, repr=False, factory=lambda: secrets.token_bytes(32))
    _flights: dict[bytes, SingleFlight[OAuth2UserCredentials]] = attrs.field(init=False, repr=False, factory=dict)
    _results: dict[bytes, OAuth2UserCredentials | ApiError] = attrs.field(init=False, repr=False, factory=dict)

    def find_latest(self, credentials: OAuth2UserCredentials) -> OAuth2UserCredentials:
        """Return the last credentials that are known to have followed these; these if none are."""
        while isinstance(successor := self._results.get(self._digest(credentials)), OAuth2UserCredentials):
            credentials = successor
        return credentials

    async def refresh(self, credentials: OAuth2UserCredentials, request: _Request) -> OAuth2UserCredentials:
        """Return the credentials that follow these: of a refresh in progress, or else request them.

        Raises:
            ApiError: the service refused; a refresh token that was refused is not sent again.
        """
        digest = self._digest(credentials)
        if isinstance(refusal := self._results.get(digest), ApiError):
            raise copy.copy(refusal)  # each has a traceback of its own
        if digest not in self._flights:
            self._flights[digest] = SingleFlight(partial(self._fetch, digest, credentials, request))
        return await self._flights[digest].result()

    async def close(self, clock: Clock) -> None:
        """Wait for the refreshes in progress, also those whose session was closed before."""
        await asyncio.gather(*(flight.close(clock) for flight in self._flights.values()))

    async def _fetch(
        self, digest: bytes, credentials: OAuth2UserCredentials, request: _Request
    ) -> OAuth2UserCredentials:
        try:
            renewed = await request(credentials)
        except ApiError as refusal:
            if refusal.has_code("invalid_grant"):
                self._keep(digest, repeat_refusal(refusal, _REFUSED_BEFORE))
            raise
        finally:
            self._flights.pop(digest, None)
        if renewed.refresh_token != credentials.refresh_token:  # one that stays the same may be used again
            self._results.pop(self._digest(renewed), None)  # nothing follows it yet: no chain ends where it began
            self._keep(digest, renewed)
        return renewed

    def _keep(self, digest: bytes, result: OAuth2UserCredentials | ApiError) -> None:
        self._results[digest] = result
        if len(self._results) > self._most:
            del self._results[next(iter(self._results))]

    def _digest(self, credentials: OAuth2UserCredentials) -> bytes:
        token = credentials.refresh_token or ""
        return hashlib.blake2b(token.encode(), key=self._key, digest_size=16).digest()
