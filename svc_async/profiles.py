"""Where credentials and endpoints come from outside a program: the environment, or a named profile in a file.

A source is taken whole and never mixed with another. The environment's `SVC_CONSUMER_KEY` and the profile's
`consumer_key` are the same setting:

    consumer_key  consumer_secret  access_token  access_token_secret     a user, what the advertising API takes
    bearer_token                                                         an app, what the webhook API takes
    base_url  ads_url  ads_sandbox_url                                   the hosts; the last one is optional
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs

from svc_async.auth.credentials import AppCredentials, BearerToken, Credentials, UserCredentials
from svc_async.errors import InvalidArgument
from svc_async.wire.endpoint import Surface
from svc_async.wire.hosts import Endpoints, proxy_url

__all__ = ["Source", "default_path", "find", "from_environment", "from_profile", "proxies"]

_ADVICE = "; or try without credentials: Session.sandbox()"
_APP = ("consumer_key", "consumer_secret")
_TOKEN = ("access_token", "access_token_secret")
_HOSTS = ("base_url", "ads_url")
_ALL = (*_APP, *_TOKEN, "bearer_token", *_HOSTS, "ads_sandbox_url")


@attrs.frozen(kw_only=True)
class Source:
    """Everything that a session needs from outside.

    Attributes:
        name: where it was found, to tell people.
        credentials: who calls.
        app: the app behind the credentials, if it is known.
        endpoints: the hosts.
    """

    name: str
    credentials: Credentials
    app: AppCredentials | None
    endpoints: Endpoints


def default_path() -> Path:
    """Give the profile file of this user: `svc_async/profiles.toml` in the folder for configuration."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "svc_async" / "profiles.toml"


def from_environment(environ: Mapping[str, str] | None = None) -> Source:
    """Read `SVC_*` variables.

    Raises:
        InvalidArgument: names the variables that are missing.
    """
    environ = os.environ if environ is None else environ
    settings = {name: environ[_variable(name)] for name in _ALL if environ.get(_variable(name))}
    return _source("the environment", settings, _variable)


def from_profile(name: str = "default", *, path: Path | None = None) -> Source:
    """Read one profile.

    Raises:
        InvalidArgument: there is no such file or profile, or names what is missing in it.
    """
    path = path or default_path()
    profiles = _load(path)
    profile = profiles.get(name)
    if not isinstance(profile, Mapping):
        raise InvalidArgument("profile", f"{name!r} is not in {path}")
    unknown = sorted(set(profile) - set(_ALL))
    if unknown:
        raise InvalidArgument("profile", f"{name!r} has unknown settings: {', '.join(unknown)}")
    if not all(isinstance(value, str) for value in profile.values()):
        raise InvalidArgument("profile", f"{name!r} must hold strings only")
    return _source(f"the profile {name!r}", profile, lambda setting: setting)


def find(profile: str | None = None, *, environ: Mapping[str, str] | None = None) -> Source:
    """Choose one whole source: the named profile, `SVC_PROFILE`, the `SVC_*` variables, the profile `default`."""
    environ = os.environ if environ is None else environ
    name = profile or environ.get("SVC_PROFILE")
    if name:
        return from_profile(name)
    if any(environ.get(_variable(setting)) for setting in _ALL) or not default_path().exists():
        return from_environment(environ)
    return from_profile()


def proxies(endpoints: Endpoints) -> dict[Surface, str]:
    """Resolve the proxy variables (`HTTPS_PROXY`, `NO_PROXY` and their like) for each host, once.

    Raises:
        InvalidArgument: a proxy is not an HTTP proxy.
    """
    known = getproxies()
    found: dict[Surface, str] = {}
    for surface, url in zip(Surface, (endpoints.base_url, endpoints.ads_url, endpoints.ads_sandbox_url), strict=True):
        parts = urlsplit(url or "")
        proxy = known.get(parts.scheme) or known.get("all")
        if proxy and parts.hostname and not proxy_bypass(parts.hostname):
            found[surface] = proxy_url(proxy)
    return found


def _variable(setting: str) -> str:
    return f"SVC_{setting.upper()}"


def _load(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidArgument("profile", f"needs the file {path}, which does not exist{_ADVICE}") from None
    except (OSError, ValueError):  # the error of a TOML parser may quote a secret
        raise InvalidArgument("profile", f"cannot be read from {path}: it must be TOML in UTF-8") from None


def _source(where: str, settings: Mapping[str, str], spell: Callable[[str], str]) -> Source:
    has_user = any(name in settings for name in _TOKEN) or "bearer_token" not in settings
    has_app = has_user or any(name in settings for name in _APP)
    wanted = (*_HOSTS, *(_APP if has_app else ()), *(_TOKEN if has_user else ()))
    missing = [spell(name) for name in wanted if name not in settings]
    if missing:
        raise InvalidArgument("credentials", f"are not complete in {where}: {', '.join(missing)} missing{_ADVICE}")
    return Source(
        name=where,
        credentials=_user(settings) if has_user else BearerToken(settings["bearer_token"]),
        app=_app(settings) if has_app else None,
        endpoints=Endpoints(
            base_url=settings["base_url"],
            ads_url=settings["ads_url"],
            ads_sandbox_url=settings.get("ads_sandbox_url"),
        ),
    )


def _app(settings: Mapping[str, str]) -> AppCredentials:
    return AppCredentials(consumer_key=settings["consumer_key"], consumer_secret=settings["consumer_secret"])


def _user(settings: Mapping[str, str]) -> UserCredentials:
    return UserCredentials(
        consumer_key=settings["consumer_key"],
        consumer_secret=settings["consumer_secret"],
        token=settings["access_token"],
        token_secret=settings["access_token_secret"],
    )
