"""Finds the credentials that a command works with, and opens its session."""

import os

from svc_async import profiles
from svc_async.auth.credentials import Credentials
from svc_async.errors import InvalidArgument
from svc_async.session import Session
from svc_async.wire.hmac_sha256 import SigningKey
from svc_async.wire.route import Surface

__all__ = ["find_signing_key", "open_session", "session_from"]


def open_session(profile: str | None, surface: Surface = Surface.ADS) -> Session:
    """Return a session with the settings of the profile, SVC_PROFILE, the SVC_* variables or the profile `default`.

    Args:
        profile: the profile's name.
        surface: the host that the command calls; its proxy is used.

    Raises:
        InvalidArgument: names what is missing.
    """
    return session_from(profiles.find(profile), surface=surface)


def session_from(
    source: profiles.ConnectionSettings, *, surface: Surface, credentials: Credentials | None = None
) -> Session:
    """Return a session with the settings of a source, over the proxy of the host that is called."""
    proxy = profiles.find_proxies(source.endpoints).get(surface)
    return Session(credentials or source.credentials, app=source.app, endpoints=source.endpoints, proxy=proxy)


def find_signing_key(profile: str | None) -> SigningKey:
    """Return the consumer secret of the profile, SVC_PROFILE, SVC_CONSUMER_SECRET or the profile `default`."""
    name = profile or os.environ.get("SVC_PROFILE")
    secret = None if name else os.environ.get("SVC_CONSUMER_SECRET")
    if secret:
        return SigningKey(secret)
    if not name and not profiles.default_path().exists():
        raise InvalidArgument("credentials", "need SVC_CONSUMER_SECRET, the secret of your app")
    source = profiles.from_profile(name or "default")
    if source.app is None:
        raise InvalidArgument("credentials", f"need consumer_secret, which is not in {source.origin}")
    return SigningKey(source.app.consumer_secret)
