"""Opens the session that a command works with."""

from svc_async import profiles
from svc_async.auth.credentials import Credentials
from svc_async.session import Session
from svc_async.wire.route import Surface

__all__ = ["session_of", "session_with"]


def session_of(profile: str | None, surface: Surface = Surface.ADS) -> Session:
    """Make a session of one whole source: the named profile, SVC_PROFILE, SVC_* variables, the profile `default`.

    Args:
        profile: the profile's name.
        surface: the host that the command calls, whose proxy is the one that matters.

    Raises:
        InvalidArgument: names what is missing.
    """
    return session_with(profiles.find(profile), surface=surface)


def session_with(source: profiles.Source, *, surface: Surface, credentials: Credentials | None = None) -> Session:
    """Make a session of a source, by the proxy of the host that is called."""
    proxy = profiles.proxies(source.endpoints).get(surface)
    return Session(credentials or source.credentials, app=source.app, endpoints=source.endpoints, proxy=proxy)
