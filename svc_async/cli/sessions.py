"""Opens the session that a command works with."""

from svc_async import profiles
from svc_async.session import Session
from svc_async.wire.endpoint import Surface

__all__ = ["session_of"]


def session_of(profile: str | None) -> Session:
    """Make a session of one whole source: the named profile, SVC_PROFILE, SVC_* variables, the profile `default`.

    Raises:
        InvalidArgument: names what is missing.
    """
    source = profiles.find(profile)
    # All that the command calls is on the advertising API, so its host's proxy is the one that matters.
    proxy = profiles.proxies(source.endpoints).get(Surface.ADS)
    return Session(source.credentials, app=source.app, endpoints=source.endpoints, proxy=proxy)
