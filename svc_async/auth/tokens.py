"""Tokens that calls carry: kept, asked for by one flight at a time, renewed once when the service refuses them.

Theory of operation.

`carry(call)` makes a call with the token that stands. If the service says that the token is no good, it gets the
next one and makes the call once more; that second answer is final. Of several calls that were refused with the same
token, the first starts the renewal, and the others find it under way or done: a token that differs from the refused
one is simply carried.

A flight belongs to nobody in particular: who waits for it may be cancelled, and the flight goes on for the others,
and for the token, which else would be lost on its way. All who wait share its outcome, a failure too.

How tokens are asked for is given: these classes know no service and no connection.
"""

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import attrs

from svc_async.auth.authorization import Authorization, bearer
from svc_async.auth.credentials import OAuth2UserCredentials
from svc_async.clock import Clock
from svc_async.errors import ApiError, InvalidArgument, SvcError, Unauthorized

__all__ = ["AppTokens", "Tokens", "UserTokens"]

T = TypeVar("T")

_NO_GOOD = 89
"""The code of an invalidated or expired token (contract ERR-01)."""
_TOO_OFTEN = 99
"""The code of a bearer token that is asked for too often (contract ERR-02)."""

# Unspecified: how often is too often (contract UNS-bearer-too-often). A refusal stands this long, unless it says more.
_COOL_DOWN = timedelta(minutes=15)
# Unspecified: the lifetime of tokens (contract UNS-token-lifetime). One that ends within this is renewed beforehand.
_MARGIN = timedelta(seconds=60)
_GRACE = 5.0
"""Seconds that a flight has to land when its session closes."""


class Tokens(Protocol):
    """Gives the token that calls carry, and renews it."""

    async def carry(self, call: Callable[[Authorization], Awaitable[T]], *, any_refusal: bool = False) -> T:
        """Make a call with the token, and once more with the next one if the service refuses the first.

        Args:
            call: makes it.
            any_refusal: a 401 that does not say why is about the token, too.
        """
        ...


@attrs.define(eq=False)
class _Flight(Generic[T]):
    """At most one call of a kind at a time: all who want its outcome wait for the same one."""

    _call: Callable[[], Coroutine[Any, Any, T]]
    _task: "asyncio.Task[T] | None" = None

    async def outcome(self) -> T:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._call())
            self._task.add_done_callback(_look)
        return await asyncio.shield(self._task)

    async def close(self, clock: Clock) -> None:
        """Let it land, for a while: what it brings may be all that is left of a token."""
        if self._task is None or self._task.done():
            return
        try:
            async with clock.timeout(_GRACE):
                await asyncio.wait({self._task})
        except TimeoutError:
            pass
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})


def _look(task: "asyncio.Task[object]") -> None:
    """Take note of a failure that nobody waited for."""
    if not task.cancelled():
        task.exception()


@attrs.frozen
class _Fetched:
    """A token on its way: the repr of a task shows its result, and asyncio's debug mode logs that."""

    token: str = attrs.field(repr=False)


@attrs.define(eq=False)
class AppTokens:
    """The app-only bearer token (contract AUTH-21, AUTH-22b, AUTH-25).

    Args:
        fetch: asks the service for the token; without it, the given one is all there is.
        clock: the time.
        token: the token that is known already.
    """

    _fetch: Callable[[], Awaitable[str]] | None
    _clock: Clock
    _token: str | None = attrs.field(default=None, repr=False)
    _refusal: SvcError | None = attrs.field(init=False, default=None)
    _closed_until: datetime | None = attrs.field(init=False, default=None)
    _flight: "_Flight[_Fetched]" = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: _Flight(self._ask), takes_self=True)
    )

    async def carry(self, call: Callable[[Authorization], Awaitable[T]], *, any_refusal: bool = False) -> T:
        """Make a call with the token; renew it once if the service says that it is no good (401, code 89)."""
        token = await self.current()
        try:
            return await call(bearer(token))
        except Unauthorized as refusal:
            is_no_good = refusal.has_code(_NO_GOOD)
            if self._fetch is None or not (is_no_good or any_refusal):
                raise
            renewed = await self.renewed(token)
            if renewed == token:
                if is_no_good:
                    self._close(refusal)
                raise
        return await call(bearer(renewed))

    async def current(self) -> str:
        """Give the token, and ask for it if there is none.

        Raises:
            Forbidden: it was asked for too often (code 99); nothing is asked for a while.
            ApiError: the service refused for another reason.
        """
        return self._token if self._token is not None else await self._asked()

    async def renewed(self, token: str) -> str:
        """Give the token that follows this one."""
        self.forget(token)
        return await self.current()

    def forget(self, token: str) -> None:
        """Drop a token that is no good any more, if it is the one that stands."""
        if self._token == token:
            self._token = None

    async def close(self) -> None:
        """Let a flight land."""
        await self._flight.close(self._clock)

    async def _asked(self) -> str:
        if self._refusal is not None and self._closed_until is not None and self._clock.now() < self._closed_until:
            raise copy.copy(self._refusal)  # each has a trace of its own
        return (await self._flight.outcome()).token

    async def _ask(self) -> _Fetched:
        assert self._fetch is not None  # noqa: S101 - a token that cannot be asked for is given, and never dropped
        try:
            self._token = await self._fetch()
        except ApiError as refusal:
            if refusal.has_code(_TOO_OFTEN):
                self._close(refusal)
            raise
        self._refusal = None
        return _Fetched(self._token)

    def _close(self, refusal: ApiError) -> None:
        self._token = None
        self._refusal = refusal
        self._closed_until = max(self._clock.now() + _COOL_DOWN, refusal.retry_at or self._clock.now())


@attrs.define(eq=False)
class UserTokens:
    """The scoped token of a user (contract AUTH-26): refreshed before it ends, and when the service refuses it.

    Args:
        credentials: the token, and what buys the next one.
        refresh: asks the service for the next one; the refresh token in the answer replaces the one it was bought
            with.
        clock: the time.
        on_token: told of each new token, before any call carries it. Plain, or a coroutine function.
    """

    credentials: OAuth2UserCredentials
    _refresh: Callable[[OAuth2UserCredentials], Awaitable[OAuth2UserCredentials]]
    _clock: Clock
    _on_token: Callable[[OAuth2UserCredentials], object] | None = None
    _refusal: ApiError | None = attrs.field(init=False, default=None)
    _flight: "_Flight[OAuth2UserCredentials]" = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: _Flight(self._ask), takes_self=True)
    )

    async def carry(self, call: Callable[[Authorization], Awaitable[T]], *, any_refusal: bool = False) -> T:
        """Make a call with the token; refresh it once if the service refuses it (401), whatever it says."""
        del any_refusal
        token = await self.current()
        try:
            return await call(bearer(token))
        except Unauthorized:
            if self.credentials.access_token == token:
                if self.credentials.refresh_token is None:
                    raise
                await self.refreshed()
        return await call(bearer(self.credentials.access_token))

    async def current(self) -> str:
        """Give the token, refreshed if it is about to end."""
        if self._is_ending:
            await self.refreshed()
        return self.credentials.access_token

    async def refreshed(self) -> OAuth2UserCredentials:
        """Refresh the token now.

        Raises:
            InvalidArgument: there is no refresh token: `offline.access` was not granted.
            ApiError: the service refused; a refresh token that was refused is not sent again.
        """
        if self.credentials.refresh_token is None:
            raise InvalidArgument("refresh_token", "must be there: it is given with the scope `offline.access`")
        if self._refusal is not None:
            raise copy.copy(self._refusal)
        return await self._flight.outcome()

    async def close(self) -> None:
        """Let a flight land."""
        await self._flight.close(self._clock)

    @property
    def _is_ending(self) -> bool:
        ends = self.credentials.expires_at
        return ends is not None and self.credentials.refresh_token is not None and self._clock.now() >= ends - _MARGIN

    async def _ask(self) -> OAuth2UserCredentials:
        try:
            renewed = await self._refresh(self.credentials)
        except ApiError as refusal:
            if refusal.has_code("invalid_grant"):
                self._refusal = refusal
            raise
        try:
            await self._tell(renewed)
        finally:
            self.credentials = renewed  # whatever came of telling: the one before is worth nothing
        return renewed

    async def _tell(self, renewed: OAuth2UserCredentials) -> None:
        told = None if self._on_token is None else self._on_token(renewed)
        if inspect.isawaitable(told):
            await told
