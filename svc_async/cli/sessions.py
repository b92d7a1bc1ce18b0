"""Finds the credentials that a command works with, and opens its session."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from svc_async import profiles
from svc_async.auth.credentials import Credentials
from svc_async.cli.signals import run_coroutine
from svc_async.drift import DriftReport
from svc_async.errors import InvalidArgument
from svc_async.session import Session
from svc_async.state import SharedState
from svc_async.webhooks.verification import rename_headers
from svc_async.wire.dialect import Dialect
from svc_async.wire.hmac_sha256 import SigningKey
from svc_async.wire.route import Surface

__all__ = [
    "find_shadowed_profile",
    "find_signing_key",
    "find_state",
    "open_embedded_state",
    "open_session",
    "require_state",
    "run_in",
    "session_from",
]


S = TypeVar("S")
T = TypeVar("T")


def run_in(opening: AbstractAsyncContextManager[S], work: Callable[[S], Awaitable[T]]) -> T:
    """Open a session, a shared state or a journal, and return the result of the work in it.

    Raises:
        Interrupted: a signal arrived.
    """

    async def do() -> T:
        async with opening as opened:
            return await work(opened)

    return run_coroutine(do())


def open_session(profile: str | None, *, state_url: str | None = None, drift: DriftReport | None = None) -> Session:
    """Return a session with the settings of the profile, SVC_PROFILE, the SVC_* variables or the profile `default`.

    Args:
        profile: the profile's name.
        state_url: the URL of the shared state; by default, what `profiles.find_state_url` finds.
        drift: compares the answers of the session with the contract.

    Raises:
        InvalidArgument: names what is missing.
    """
    source = profiles.find(profile)
    try:
        state = find_state(state_url, profile)
    finally:
        del state_url  # its password must not be among the locals of a traceback
    if source.profile is None:
        return Session.from_env(state=state, drift=drift)
    return Session.from_profile(source.profile, state=state, drift=drift)


def find_state(state_url: str | None, profile: str | None, *, migrate: bool = True) -> SharedState | None:
    """Return the shared state of the option, the profile or the environment, in this order; None if none is set."""
    url = state_url or profiles.find_state_url(profile)
    try:
        return SharedState.open(url, migrate=migrate) if url else None
    finally:
        del url, state_url  # the password must not be among the locals of a traceback


def require_state(
    state_url: str | None, profile: str | None, *, embedded: bool | None = None, purpose: str | None = None
) -> SharedState:
    """Return the shared state of the option, the profile or the environment, or the embedded one.

    Args:
        state_url: the value of --state-url.
        profile: the profile's name.
        embedded: whether --embedded is given; None if the command does not take it.
        purpose: what --state-url must name, for a command that is not about one job.

    Raises:
        InvalidArgument: none of them names one, or two do.
    """
    try:
        if embedded:
            return open_embedded_state(state_url)
        state = find_state(state_url, profile)
    finally:
        del state_url  # its password must not be among the locals of a traceback
    if state is None:
        ways = "give --state-url, set SVC_STATE_URL, or add state_url to a profile"
        embedded_one = "; --embedded names the embedded PostgreSQL, which --cluster local uses if none is set"
        more = "" if embedded is None else embedded_one
        name, what = ("--state-url", purpose) if purpose else ("--job", "names a job in the shared state")
        raise InvalidArgument(name, f"{what}: {ways}{more}")
    return state


def open_embedded_state(state_url: str | None) -> SharedState:
    """Return the embedded shared state of this user.

    Raises:
        InvalidArgument: another one is given as well.
    """
    is_given = bool(state_url)
    del state_url  # its password must not be among the locals of a traceback
    if is_given:
        raise InvalidArgument("--embedded", "must not be given with --state-url")
    return SharedState.embedded()


def find_shadowed_profile(profile: str | None) -> str | None:
    """Return the stored profile that would be used if no SVC_* variables were set, None if none is shadowed."""
    is_chosen = profile or os.environ.get("SVC_PROFILE")
    return "default" if not is_chosen and profiles.set_variables() and profiles.is_stored("default") else None


def session_from(
    source: profiles.ConnectionSettings,
    *,
    surface: Surface,
    credentials: Credentials | None = None,
) -> Session:
    """Return a session with the settings of a source, over the proxy of the host that is called."""
    proxy = profiles.find_proxies(source.endpoints).get(surface)
    return Session(credentials or source.credentials, app=source.app, endpoints=source.endpoints, proxy=proxy)


def find_signing_key(profile: str | None) -> tuple[SigningKey, Dialect | None]:
    """Return the consumer secret of the profile, SVC_PROFILE, SVC_CONSUMER_SECRET or the profile `default`.

    Its `key_id` says where it was found, for messages. With it comes the dialect of the same place, if there is one,
    whose header it has.
    """
    chosen = profiles.from_profile(profile) if profile else profiles.from_variable()
    secret = None if chosen else os.environ.get("SVC_CONSUMER_SECRET")
    if secret:
        return _rename(SigningKey(secret, key_id="SVC_CONSUMER_SECRET"), os.environ.get("SVC_DIALECT"))
    if not chosen and not profiles.has_file():
        raise InvalidArgument("credentials", "need SVC_CONSUMER_SECRET, the secret of your app")
    source = chosen or profiles.from_profile("default")
    if source.app is None:
        raise InvalidArgument("credentials", f"need consumer_secret, which is not in {source.origin}")
    return _rename(SigningKey(source.app.consumer_secret, key_id=f"consumer_secret of {source.origin}"), source.dialect)


def _rename(key: SigningKey, path: Path | str | None) -> tuple[SigningKey, Dialect | None]:
    if not path:
        return key, None
    dialect = Dialect.load(path)
    (renamed,) = rename_headers([key], dialect)
    return renamed, dialect
