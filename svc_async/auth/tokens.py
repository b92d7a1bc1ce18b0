"""Bearer tokens of calls: cached, fetched single-flight, refreshed once on rejection.

Theory of operation.

`call_with_token(call)` makes a call with the cached token. If the service rejects the token, it gets the next one and
makes the call once more; that second answer is final. Of several calls rejected with the same token, the first starts
the renewal and the others join it; a call that finds another token in the cache than the rejected one just uses it.

If the service gives a token that it rejects, or none because it was asked too often, it is not asked for a while.
Calls meanwhile are not sent: they fail with that refusal, and with the time when the next token is requested.

The token of a user is refreshed once for all sessions over the same connections (`Refreshes`). Each of these tells its
own `on_token`, before its calls use the token.

How tokens are fetched is passed in: these classes know neither the service nor a connection.
"""

import asyncio
import copy
import hashlib
import inspect
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import attrs

from svc_async.auth.authorization import Authorization, bearer
from svc_async.auth.credentials import OAuth2UserCredentials
from svc_async.clock import Clock
from svc_async.errors import AccessDenied, ApiError, Hint, Unauthorized
from svc_async.wire.outcome import repeat_refusal

__all__ = ["AppTokens", "Refreshes", "SingleFlight", "Token", "Tokens", "UserTokens"]

T = TypeVar("T")

_CLOSE_TIMEOUT = 5.0
"""Seconds that a fetch has to finish when its session closes."""


@attrs.define(eq=False, repr=False)  # a task shows what it has raised
class SingleFlight(Generic[T]):
    """At most one fetch at a time: all callers wait for the same one."""

    _fetch: Callable[[], Coroutine[Any, Any, T]]
    _task: "asyncio.Task[T] | None" = None

    async def result(self) -> T:
        """Return the result of the fetch in progress, or of a new one."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._fetch())
            self._task.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._task)

    async def close(self, clock: Clock) -> None:
        """Wait a while for the fetch: its result may be all that is left of a token. Then cancel it."""
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            return
        try:
            async with clock.timeout(_CLOSE_TIMEOUT):
                await asyncio.wait({self._task})
        except TimeoutError:
            pass
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})


def _retrieve_exception(task: "asyncio.Task[object]") -> None:
    """Keep asyncio from logging a failure that no caller waited for."""
    if not task.cancelled():
        task.exception()


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


_INVALID_TOKEN = 89
"""The code of an invalidated or expired token (contract ERR-01)."""
_TOKEN_REQUESTED_TOO_OFTEN = 99
"""The code of a bearer token that is requested too often (contract ERR-02)."""

# Unspecified: how often is too often (contract UNS-bearer-too-often). After such a refusal no token is requested for
# this long, or until its `retry-after`.
_COOL_DOWN = timedelta(minutes=15)
_NONE_GIVEN = "nothing was sent: until then no bearer token is requested, as the service refused to give one"
_SAME_GIVEN = "nothing was sent: until then no bearer token is requested, as the service gave one again that it rejects"
# Unspecified: the lifetime of tokens (contract UNS-token-lifetime). One that expires within this is refreshed first.
_EXPIRY_MARGIN = timedelta(seconds=60)


@attrs.frozen
class Token:
    """Carries a token; its repr hides it from tracebacks with locals, and from the task that asyncio logs."""

    text: str = attrs.field(repr=False)

    @property
    def authorization(self) -> Authorization:
        """The header of a call with this token."""
        return bearer(self.text)


@attrs.define(eq=False)
class AppTokens:
    """The app-only bearer token (contract AUTH-21, AUTH-22b, AUTH-25).

    Args:
        fetch: requests the token from the service; without it, only the given token is used.
        clock: the source of time.
        token: the token, if it is known already.
    """

    _fetch: Callable[[], Awaitable[str]] | None
    _clock: Clock
    _token: Token | None = None
    _refusal: ApiError | None = attrs.field(init=False, default=None)
    _fetching: "SingleFlight[Token]" = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: SingleFlight(self._fetch_token), takes_self=True)
    )

    async def call_with_token(self, call: Callable[[Authorization], Awaitable[T]], *, any_refusal: bool = False) -> T:
        """Make a call with the token; renew it once if the service rejects it (401, code 89).

        Args:
            call: makes the call.
            any_refusal: a 401 without a reason is about the token as well.
        """
        token = await self.current()
        try:
            return await call(token.authorization)
        except Unauthorized as refusal:
            if self._fetch is None or not (any_refusal or refusal.has_code(_INVALID_TOKEN)):
                raise
            if self._find_wait() > 0:
                raise  # this call was sent, and there is no other token for it
            renewed = await self.renew(token)
        try:
            return await call(renewed.authorization)
        except Unauthorized as refusal:
            if renewed == token and refusal.has_code(_INVALID_TOKEN):
                self._start_cool_down(refusal, _SAME_GIVEN)
            raise

    async def current(self) -> Token:
        """Return the token; fetch it if there is none.

        Raises:
            Forbidden: it was requested too often (code 99).
            ApiError: the service refused for another reason, or no token is requested until the cool-down ends.
        """
        if self._token is not None:
            return self._token
        wait = self._find_wait()
        if self._refusal is not None and wait > 0:
            error = copy.copy(self._refusal)  # each has a traceback of its own
            error.retry_after = wait
            raise error
        return await self._fetching.result()

    async def renew(self, token: Token) -> Token:
        """Return the token that follows this one."""
        self.forget(token)
        return await self.current()

    def forget(self, token: Token) -> None:
        """Drop a token that no longer works, if it is the cached one."""
        if self._token == token:
            self._token = None

    async def close(self) -> None:
        """Wait for a fetch in progress."""
        await self._fetching.close(self._clock)

    def _find_wait(self) -> float:
        """Return the seconds until the cool-down ends; without one, they are not greater than 0."""
        ends = None if self._refusal is None else self._refusal.retry_at
        return 0.0 if ends is None else (ends - self._clock.now()).total_seconds()

    async def _fetch_token(self) -> Token:
        assert self._fetch is not None  # noqa: S101 - a token that cannot be fetched was given, and is never dropped
        try:
            token = self._token = Token(await self._fetch())
        except ApiError as refusal:
            if refusal.has_code(_TOKEN_REQUESTED_TOO_OFTEN):
                self._start_cool_down(refusal, _NONE_GIVEN)
            raise
        self._refusal = None
        return token

    def _start_cool_down(self, refusal: ApiError, reason: str) -> None:
        now = self._clock.now()
        self._token = None
        ends = max(now + _COOL_DOWN, refusal.retry_at or now)
        self._refusal = repeat_refusal(refusal, reason, retry_at=ends)


@attrs.define(eq=False)
class UserTokens:
    """The scoped token of a user (contract AUTH-26): refreshed before it expires, and when the service rejects it.

    Args:
        credentials: the token and its refresh token.
        refresh: requests the next token; the refresh token in the answer replaces the one that was used.
        clock: the source of time.
        on_token: called with each new token before any call of this session uses it, and again before the next call if
            it failed. Plain, or a coroutine function.
        refreshes: those of all sessions over the same connections.
    """

    credentials: OAuth2UserCredentials
    _refresh: Callable[[OAuth2UserCredentials], Awaitable[OAuth2UserCredentials]]
    _clock: Clock
    _on_token: Callable[[OAuth2UserCredentials], object] | None = None
    _refreshes: Refreshes = attrs.field(repr=False, factory=Refreshes)
    _is_announced: bool = attrs.field(init=False, default=True)
    """Whether `on_token` has taken the credentials, which would otherwise be lost with this process."""
    _refreshing: "SingleFlight[OAuth2UserCredentials]" = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: SingleFlight(self._fetch_token), takes_self=True)
    )

    async def call_with_token(self, call: Callable[[Authorization], Awaitable[T]], *, any_refusal: bool = False) -> T:
        """Make a call with the token; refresh it once if the service rejects it (401), whatever the reason."""
        del any_refusal
        token = await self.current()
        try:
            return await call(token.authorization)
        except Unauthorized:
            if self._token == token:
                if self.credentials.refresh_token is None:
                    raise
                await self.refresh()
        token = await self.current()
        return await call(token.authorization)

    async def current(self) -> Token:
        """Return the token; refresh it first if it is about to expire."""
        if self._expires_soon(self.credentials) or not self._is_announced:
            await self._refreshing.result()
        return self._token

    async def refresh(self) -> OAuth2UserCredentials:
        """Refresh the token now; if another session has done so with the same refresh token, take what it was given.

        Raises:
            AccessDenied: there is no refresh token: `offline.access` was not granted.
            ApiError: the service refused; a refresh token that was refused is not sent again.
        """
        if self.credentials.refresh_token is None:
            raise AccessDenied("the credentials have no refresh token", hint=Hint.REQUEST_OFFLINE_ACCESS)
        return await self._refreshing.result()

    async def close(self) -> None:
        """Wait for a refresh in progress."""
        await self._refreshing.close(self._clock)

    @property
    def _token(self) -> Token:
        return Token(self.credentials.access_token)

    def _expires_soon(self, credentials: OAuth2UserCredentials) -> bool:
        expiry = credentials.expires_at
        if expiry is None or credentials.refresh_token is None:
            return False
        return self._clock.now() >= expiry - _EXPIRY_MARGIN

    async def _fetch_token(self) -> OAuth2UserCredentials:
        if self._is_announced or self._expires_soon(self.credentials):
            renewed = self._refreshes.find_latest(self.credentials)
            if renewed is self.credentials or self._expires_soon(renewed):
                renewed = await self._refreshes.refresh(renewed, self._refresh)
            self.credentials, self._is_announced = renewed, False
        pending = None if self._on_token is None else self._on_token(self.credentials)
        if inspect.isawaitable(pending):
            await pending
        self._is_announced = True
        return self.credentials


Tokens = AppTokens | UserTokens
"""Provides the token of calls, and renews it."""
