"""Where credentials and endpoints come from outside a program: the environment, or a named profile in a file.

A source is taken whole and never mixed with another. The environment's `SVC_CONSUMER_KEY` and the profile's
`consumer_key` are the same setting:

    consumer_key  consumer_secret  access_token  access_token_secret     a user, what the advertising API takes
    consumer_key  consumer_secret                                        an app, which gets its bearer token itself
    bearer_token                                                         an app, what the webhook API takes
    base_url  ads_url  ads_sandbox_url                                   the hosts; the last one is optional
"""

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs

from svc_async.auth.credentials import AppCredentials, BearerToken, Credentials, UserCredentials
from svc_async.errors import InvalidArgument
from svc_async.wire.base_urls import Endpoints, proxy_url
from svc_async.wire.route import Surface

__all__ = [
    "Source",
    "check",
    "default_path",
    "find",
    "from_environment",
    "from_profile",
    "is_stored",
    "proxies",
    "remove",
    "write",
]

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
    profile = _profile(_load(path), name, path)
    return _source(f"the profile {name!r}", profile, lambda setting: setting)


def is_stored(name: str, *, path: Path | None = None) -> bool:
    """Whether there is a profile of this name."""
    path = path or default_path()
    return path.exists() and name in _load(path)


def check(name: str, *, path: Path | None = None) -> None:
    """Look whether a profile can be written.

    Args:
        name: the profile.
        path: the file; by default the user's.

    Raises:
        InvalidArgument: it cannot, and says why.
    """
    _changed(name, {}, (), path or default_path())


def write(name: str, settings: Mapping[str, str], *, path: Path | None = None) -> Path:
    """Store settings in a profile, beside those that it has; only the user of this machine can read the file.

    Other profiles, comments and the order of lines stay.

    Args:
        name: the profile, made if it is not there.
        settings: what the head of this module lists.
        path: the file; by default the user's.

    Raises:
        InvalidArgument: the file cannot be changed safely; it is left as it was.
    """
    return _change(name, settings, (), path or default_path())


def remove(name: str, settings: Iterable[str], *, path: Path | None = None) -> Path:
    """Take settings out of a profile; the others stay.

    Args:
        name: the profile.
        settings: the names of the settings.
        path: the file; by default the user's.

    Raises:
        InvalidArgument: there is no such profile, or the file cannot be changed safely.
    """
    path = path or default_path()
    _profile(_load(path), name, path)
    return _change(name, {}, settings, path)


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


def _profile(profiles: Mapping[str, object], name: str, path: Path) -> Mapping[str, str]:
    profile = profiles.get(name)
    if not isinstance(profile, Mapping):
        raise InvalidArgument("profile", f"{name!r} is not in {path}")
    unknown = sorted(set(profile) - set(_ALL))
    if unknown:
        raise InvalidArgument("profile", f"{name!r} has unknown settings: {', '.join(unknown)}")
    if not all(isinstance(value, str) for value in profile.values()):
        raise InvalidArgument("profile", f"{name!r} must contain strings only")
    return profile


def _change(name: str, given: Mapping[str, str], gone: Iterable[str], path: Path) -> Path:
    _replace(path, _changed(name, given, gone, path))
    return path


def _changed(name: str, given: Mapping[str, str], gone: Iterable[str], path: Path) -> str:
    """Give the file as it shall be, if it can be changed."""
    if path.is_symlink():
        raise InvalidArgument("path", f"must not be a link: {path} leads to another place than secrets are kept in")
    before = _load(path) if path.exists() else {}
    kept = _profile(before, name, path) if name in before else {}
    wanted = {**before, name: {key: value for key, value in {**kept, **given}.items() if key not in {*gone}}}
    text = _edited(path.read_text(encoding="utf-8") if path.exists() else "", name, given, gone)
    if not _reads_as(text, wanted):
        raise InvalidArgument("path", f"must be plain TOML to be changed: edit {path} by hand")
    return text


def _reads_as(text: str, wanted: Mapping[str, object]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def _replace(path: Path, text: str) -> None:
    """Write a file in one step, for the user's eyes only."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 0600
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(number)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink()
            raise
    except OSError as error:
        raise InvalidArgument("path", f"cannot be {path}: {error.strerror}") from None


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
    has_app = any(name in settings for name in _APP)
    # Where nothing is given, a user is what most people miss.
    has_user = any(name in settings for name in _TOKEN) or not (has_app or "bearer_token" in settings)
    has_app = has_app or has_user
    wanted = (*_HOSTS, *(_APP if has_app else ()), *(_TOKEN if has_user else ()))
    missing = [spell(name) for name in wanted if name not in settings]
    if missing:
        raise InvalidArgument("credentials", f"are not complete in {where}: {', '.join(missing)} missing{_ADVICE}")
    return Source(
        name=where,
        credentials=_user(settings) if has_user else _bearer(settings) or _app(settings),
        app=_app(settings) if has_app else None,
        endpoints=Endpoints(
            base_url=settings["base_url"],
            ads_url=settings["ads_url"],
            ads_sandbox_url=settings.get("ads_sandbox_url"),
        ),
    )


def _bearer(settings: Mapping[str, str]) -> BearerToken | None:
    return BearerToken(settings["bearer_token"]) if "bearer_token" in settings else None


def _app(settings: Mapping[str, str]) -> AppCredentials:
    return AppCredentials(consumer_key=settings["consumer_key"], consumer_secret=settings["consumer_secret"])


def _user(settings: Mapping[str, str]) -> UserCredentials:
    return UserCredentials(
        consumer_key=settings["consumer_key"],
        consumer_secret=settings["consumer_secret"],
        token=settings["access_token"],
        token_secret=settings["access_token_secret"],
    )


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"\s*\[")


def _edited(text: str, name: str, given: Mapping[str, str], gone: Iterable[str]) -> str:
    """Change a profile in the text of a file, line by line; the caller reads the result to see whether it is right."""
    lines = text.splitlines()
    start, end = _span(lines, name)
    old = {key: position for position in range(start, end) if (key := _key(lines[position]))}
    for key, value in given.items():
        if key in old:
            lines[old[key]] = _line(key, value)
    new = [_line(key, value) for key, value in given.items() if key not in old]
    after = max(old.values(), default=start - 1) + 1
    dropped = {old[key] for key in gone if key in old}
    head = [line for position, line in enumerate(lines[:after]) if position not in dropped]
    return "\n".join([*head, *new, *lines[after:]]) + "\n"


def _span(lines: list[str], name: str) -> tuple[int, int]:
    """Give the lines below the head of a profile; a new head goes to the end."""
    heads = [position for position, line in enumerate(lines) if _TABLE.match(line)]
    for position in heads:
        if _names(lines[position], name):
            return position + 1, next((other for other in heads if other > position), len(lines))
    lines += ["", f"[{_quoted(name)}]"] if lines else [f"[{_quoted(name)}]"]
    return len(lines), len(lines)


def _names(head: str, name: str) -> bool:
    return _reads_as(head, {name: {}})


def _key(line: str) -> str | None:
    key, equals, _ = line.partition("=")
    return key.strip().strip("\"'") if equals and not key.lstrip().startswith("#") else None


def _line(key: str, value: str) -> str:
    return f"{key} = {_string(value)}"


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
