"""Reads and writes credentials and endpoints outside a program: in the environment, or as a named profile in a file.

Settings are taken from one place and never mixed with another. The variable `SVC_CONSUMER_KEY` and the profile's
`consumer_key` are the same setting:

    consumer_key  consumer_secret  access_token  access_token_secret     a user, as the advertising API requires
    consumer_key  consumer_secret                                        an app, which fetches its bearer token itself
    bearer_token                                                         an app, as the webhook API requires
    client_id  client_secret                                             the OAuth 2.0 client of the app, beside these
    base_url  ads_url  ads_sandbox_url                                   the hosts; the last is optional
    state_url                                                            the shared state, if there is one
    dialect                                                              the file of a dialect, if there is one
"""

import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs

from svc_async.auth.credentials import AppCredentials, BearerToken, Credentials, UserCredentials
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import Hint, InvalidArgument, UnusableFile
from svc_async.printable import clean, shorten
from svc_async.private_files import (
    check_replaceable,
    create_folder,
    is_exposed,
    report_os_error,
    user_folder,
    write_private,
)
from svc_async.store.database_url import DatabaseUrl
from svc_async.value_rules import NAME, TEXT_BY_TEXT, instance_of, or_none
from svc_async.wire.base_urls import Endpoints, bypasses_proxy, proxy_url
from svc_async.wire.route import Surface

__all__ = [
    "APP",
    "CLIENT",
    "HOSTS",
    "SETTINGS",
    "TOKEN",
    "ConnectionSettings",
    "check",
    "check_state_url",
    "default_path",
    "find",
    "find_proxies",
    "find_state_url",
    "from_environment",
    "from_profile",
    "from_variable",
    "has_file",
    "is_stored",
    "remove",
    "set_variables",
    "write",
]

T = TypeVar("T")

APP = ("consumer_key", "consumer_secret")
CLIENT = ("client_id", "client_secret")
TOKEN = ("access_token", "access_token_secret")
HOSTS = ("base_url", "ads_url")

_APP_FIELDS: Mapping[str, str] = {name: name for name in (*APP, *CLIENT)}
_USER_FIELDS: Mapping[str, str] = {
    **{name: name for name in APP},
    "token": "access_token",
    "token_secret": "access_token_secret",
}
_BEARER_FIELDS: Mapping[str, str] = {"token": "bearer_token"}
_HOST_FIELDS: Mapping[str, str] = {name: name for name in (*HOSTS, "ads_sandbox_url")}
"""The setting of each field of the credentials and of the endpoints."""


@attrs.frozen(kw_only=True)
class ConnectionSettings:
    """The settings of a session from the environment or a profile.

    Attributes:
        origin: where they were found, for messages.
        profile: the name of the profile; None is the environment.
        credentials: the credentials of the user or app.
        app: the app of the credentials, if it is known.
        endpoints: the base URLs.
        state_url: the URL of a shared state, if there is one; it may contain a password.
        dialect: the file of a dialect, if there is one.
    """

    origin: str
    profile: str | None
    credentials: Credentials
    app: AppCredentials | None
    endpoints: Endpoints
    state_url: str | None = attrs.field(default=None, repr=False)
    dialect: Path | None = None


def parse_settings(
    name: str | None, settings: Mapping[str, str], spell: Callable[[str], str], *, hint: Hint = Hint.SET_CREDENTIALS
) -> ConnectionSettings:
    """Return the settings of a connection.

    Args:
        name: the profile; None is the environment.
        settings: the settings by name.
        spell: returns the name of a setting in messages.
        hint: what to do if settings are missing.

    Raises:
        InvalidArgument: names the settings that are missing, or the one that cannot be used.
    """
    origin = str(SessionOrigin(name))
    has_app = any(name in settings for name in (*APP, *CLIENT))
    # Without any setting, the message names those of a user, the most common case.
    has_user = any(name in settings for name in TOKEN) or not (has_app or "bearer_token" in settings)
    has_app = has_app or has_user
    required = (*HOSTS, *(APP if has_app else ()), *(TOKEN if has_user else ()))
    missing = [spell(name) for name in required if name not in settings]
    if missing:
        rule = f"are not complete in {origin}: {', '.join(missing)} missing"
        raise InvalidArgument("credentials", rule, hint=hint)
    place = _describe_place(name)
    build = partial(_build, settings=settings, spell=spell, place=place)
    app = build(AppCredentials, _APP_FIELDS) if has_app else None
    user = build(UserCredentials, _USER_FIELDS) if has_user else None
    bearer = build(BearerToken, _BEARER_FIELDS) if "bearer_token" in settings else None
    credentials = user or bearer or app
    assert credentials is not None  # noqa: S101 - what is missing was named above
    return ConnectionSettings(
        origin=origin,
        profile=name,
        credentials=credentials,
        app=app,
        endpoints=build(Endpoints, _HOST_FIELDS),
        state_url=settings.get("state_url"),
        dialect=Path(settings["dialect"]) if "dialect" in settings else None,
    )


def check_state_url(name: str | None, url: str | None) -> str | None:
    """Return the URL of the shared state, None if there is none.

    Args:
        name: the profile that has it; None is the environment.
        url: the setting.

    Raises:
        InvalidArgument: it is not the URL of a PostgreSQL database; the message names the setting.
    """
    try:
        if url is not None:
            DatabaseUrl.parse(url)
    except InvalidArgument as error:
        setting = "SVC_STATE_URL" if name is None else "state_url"
        problem = InvalidArgument(setting, _describe_place(name) + error.rule)
    else:
        return url
    del url  # its password must not be among the locals of a traceback
    raise problem


def _describe_place(name: str | None) -> str:
    """Return what a message adds to the name of a setting; the name of a variable says its place."""
    return "" if name is None else f"of {SessionOrigin(name)} "


def _build(
    kind: Callable[..., T],
    fields: Mapping[str, str],
    *,
    settings: Mapping[str, str],
    spell: Callable[[str], str],
    place: str,
) -> T:
    """Build a value from settings; a message about one of its fields names the setting."""
    try:
        return kind(**{field: settings[name] for field, name in fields.items() if name in settings})
    except InvalidArgument as error:
        problem = InvalidArgument(spell(fields[error.parameter]), f"{place}{error.rule}", rule_ids=error.rule_ids)
    raise problem  # outside of the handler: the frames of its cause hold secrets


def edit_table(text: str, name: str, added: Mapping[str, str], removed: Iterable[str]) -> str:
    """Return the text with settings of a table added or removed.

    Args:
        text: the file, which is TOML.
        name: the table, which is added at the end if it is not there.
        added: strings by key; a key that is there gets the new value.
        removed: keys.

    Raises:
        InvalidArgument: the library that edits such files is not installed.
    """
    try:
        import tomlkit  # noqa: PLC0415 - of the extra "cli"; profiles are read without it
    except ImportError:
        raise InvalidArgument("profile", 'can be changed with the extra "cli": pip install "svc-async[cli]"') from None
    document = tomlkit.parse(text)
    if name not in document:
        document[name] = tomlkit.table()
    table = document[name]
    for key, value in added.items():
        table[key] = value
    for key in removed:
        table.pop(key, None)
    return tomlkit.dumps(document)


_SERVICE = (*APP, *CLIENT, *TOKEN, "bearer_token", *HOSTS, "ads_sandbox_url")
SETTINGS = (*_SERVICE, "state_url", "dialect")

_LONGEST_SETTING = 8_192
_LARGEST_FILE = 65_536
_MOST_NAMED = 10
_LONGEST_NAMED = 100
_MOST_DOTS = 1_000  # in a line: the time to parse a key in TOML grows with the square of its parts


_FILE = or_none(instance_of(Path, "a pathlib.Path"), "the file of this user")


class _Values(dict[str, Any]):
    """Settings by name; tracebacks with locals show the names only."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"


def default_path() -> Path:
    """Return the profile file of this user: `svc_async/profiles.toml` in the configuration folder.

    Raises:
        UnusableFile: this user has no home folder.
    """
    return user_folder("config") / "profiles.toml"


def has_file() -> bool:
    """Whether this user has a file of profiles."""
    try:
        path = default_path()
    except UnusableFile:  # without a home folder
        return False
    return _exists(path)


def from_environment(environ: Mapping[str, str] | None = None) -> ConnectionSettings:
    """Return the settings in `SVC_*` variables.

    Raises:
        InvalidArgument: names the variables that are missing, too long or cannot be used.
    """
    settings = _read_variables(environ)
    hint = Hint.NAME_THE_PROFILE if _read_chosen_name(environ) else Hint.SET_CREDENTIALS
    del environ  # its values must not be among the locals of a traceback
    return parse_settings(None, settings, _variable_name, hint=hint)


def _read_variables(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    environ = os.environ if environ is None else environ
    found = _Values({name: environ[_variable_name(name)] for name in SETTINGS if environ.get(_variable_name(name))})
    for name, value in found.items():
        if len(value) > _LONGEST_SETTING:
            del environ, value  # they must not be among the locals of a traceback
            raise InvalidArgument(_variable_name(name), f"must have at most {_LONGEST_SETTING:,} characters")
    return found


def from_profile(name: str = "default", *, path: Path | None = None) -> ConnectionSettings:
    """Return the settings of one profile.

    Raises:
        InvalidArgument: there is no such profile, or settings are missing in it or cannot be used; the message names
            them.
        UnusableFile: the file does not exist or cannot be read.
    """
    path = _locate(path)
    return _use_profile(name, _read_profile(name, path), path)


def is_stored(name: str, *, path: Path | None = None) -> bool:
    """Whether there is a profile of this name."""
    NAME.check("profile", name)
    if path is None and not has_file():
        return False
    path = _locate(path)
    return _exists(path) and name in _load(path)


def check(name: str, *, path: Path | None = None) -> None:
    """Check whether a profile can be written; a missing folder is created.

    Args:
        name: the profile.
        path: the file; by default the user's.

    Raises:
        InvalidArgument: the profile has unknown settings.
        UnusableFile: the file cannot be changed safely.
    """
    path = _locate(path)
    _edit_file(name, {}, (), path)
    with report_os_error("file", path, "cannot be written"):
        create_folder(path.parent)
        check_replaceable(path)


def write(name: str, settings: Mapping[str, str], *, path: Path | None = None) -> Path:
    """Add settings to a profile; only the user can read the file.

    Other settings and profiles, comments and the order of lines are kept.

    Args:
        name: the profile, which is created if it does not exist.
        settings: those listed at the top of this module.
        path: the file; by default the user's.

    Raises:
        UnusableFile: the file cannot be changed safely; it is left unchanged.
    """
    try:
        TEXT_BY_TEXT.check("settings", settings)
        added = _Values(settings)
    finally:
        del settings  # they must not be among the locals of a traceback
    return _change(name, added, (), _locate(path))


def remove(name: str, settings: Iterable[str], *, path: Path | None = None) -> Path:
    """Remove settings from a profile; the others are kept.

    Args:
        name: the profile.
        settings: the names of the settings.
        path: the file; by default the user's.

    Raises:
        InvalidArgument: there is no such profile.
        UnusableFile: the file cannot be changed safely.
    """
    NAME.check("profile", name)
    path = _locate(path)
    _select(_load(path), name, path)
    return _change(name, {}, settings, path)


def find(profile: str | None = None, *, environ: Mapping[str, str] | None = None) -> ConnectionSettings:
    """Return the first of these: the given profile, `SVC_PROFILE`, the `SVC_*` variables, the profile `default`."""
    if profile:
        return from_profile(profile)
    if chosen := from_variable(environ):
        return chosen
    variables = set_variables(environ)
    if not variables and has_file():
        return from_profile()
    try:
        return from_environment(environ)
    except InvalidArgument as error:
        if error.parameter != "credentials" or not variables or not _has_default():
            raise
        hide, are = ("hides", "it is") if len(variables) == 1 else ("hide", "they are")
        hidden = f"{', '.join(variables)} {hide} the profile 'default' while {are} set"
        raise InvalidArgument("credentials", f"{error.rule}, and {hidden}", hint=error.hint) from None


def _has_default() -> bool:
    """Whether the profile `default` would be used without variables."""
    try:
        return is_stored("default")
    except UnusableFile:
        return False


def from_variable(environ: Mapping[str, str] | None = None) -> ConnectionSettings | None:
    """Return the settings of the profile that `SVC_PROFILE` names, None if it names none.

    Raises:
        InvalidArgument: there is no such profile, or settings are missing in it.
        UnusableFile: the file does not exist or cannot be read.
    """
    chosen = _read_chosen(environ)
    return _use_profile(*chosen, default_path()) if chosen else None


def find_state_url(profile: str | None = None, *, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the URL of the shared state, None if none is set.

    The first of these that has one: the given profile, else the one that `SVC_PROFILE` names; `SVC_STATE_URL`; and the
    profile `default`, unless another profile is named or `SVC_*` variables come before it.

    Raises:
        InvalidArgument: there is no such profile, or it is not the URL of a PostgreSQL database.
        UnusableFile: the file of profiles cannot be read.
    """
    chosen = (profile, _read_profile(profile)) if profile else _read_chosen(environ)
    found = check_state_url(chosen[0], chosen[1].get("state_url")) if chosen else None
    found = found or check_state_url(None, _read_variables(environ).get("state_url"))
    if found or chosen or set_variables(environ) or not is_stored("default"):
        return found
    return check_state_url("default", _read_profile("default").get("state_url"))


def set_variables(environ: Mapping[str, str] | None = None) -> Sequence[str]:
    """Return which `SVC_*` variables of credentials and hosts are set; they come before the profile `default`."""
    environ = os.environ if environ is None else environ
    return [name for name in map(_variable_name, _SERVICE) if environ.get(name)]


def find_proxies(endpoints: Endpoints) -> dict[Surface, str]:
    """Return the proxy of each host, from the usual variables (`HTTPS_PROXY`, `NO_PROXY`).

    Raises:
        InvalidArgument: names the variable that is not the URL of an HTTP proxy.
    """
    variables = _Values(getproxies())
    proxies: dict[Surface, str] = {}
    for surface, url in zip(Surface, (endpoints.base_url, endpoints.ads_url, endpoints.ads_sandbox_url), strict=True):
        parts = urlsplit(url or "")
        name = parts.scheme if variables.get(parts.scheme) else "all"
        if not variables.get(name) or not parts.hostname:
            continue
        # Without the variable, the settings of the system may say.
        excluded = variables.get("no")
        if not (proxy_bypass(parts.hostname) if excluded is None else bypasses_proxy(str(url), excluded)):
            proxies[surface] = proxy_url(variables[name], f"{name.upper()}_PROXY")
    return proxies


def _read_chosen_name(environ: Mapping[str, str] | None) -> str | None:
    return (os.environ if environ is None else environ).get("SVC_PROFILE")


def _read_chosen(environ: Mapping[str, str] | None) -> tuple[str, Mapping[str, str]] | None:
    """Return the profile that `SVC_PROFILE` names; messages name the variable."""
    name = _read_chosen_name(environ)
    if not name:
        return None
    try:
        return name, _read_profile(name, chosen_by=", which SVC_PROFILE names")
    except InvalidArgument as error:
        raise InvalidArgument("SVC_PROFILE", error.rule, hint=error.hint) from None


def _read_profile(name: str, path: Path | None = None, *, chosen_by: str = "") -> Mapping[str, str]:
    path = _locate(path)
    NAME.check("profile", name)
    if not _exists(path):
        problem = f"does not exist, so there is no profile {name!r}{chosen_by}"
        raise UnusableFile("file", path, problem, hint=Hint.STORE_A_PROFILE)
    return _select(_load(path), name, path)


def _use_profile(name: str, profile: Mapping[str, str], path: Path) -> ConnectionSettings:
    if is_exposed(path):
        _warn_of_exposure(path)
    if "dialect" in profile:  # its path begins where the file of profiles is
        profile = _Values({**profile, "dialect": str(path.parent / profile["dialect"])})
    return parse_settings(name, profile, lambda setting: setting)


@cache
def _warn_of_exposure(path: Path) -> None:
    """Log that all users can open a file, once in a process: a command reads it several times."""
    advice = "all users of this machine can open %s: make it private with chmod 600"
    logging.getLogger("svc_async").warning(advice, clean(str(path)))


def _locate(path: Path | None) -> Path:
    """Return the file of profiles: the given one, or the user's."""
    _FILE.check("path", path)
    return path or default_path()


def _select(profiles: Mapping[str, object], name: str, path: Path) -> Mapping[str, str]:
    profile = profiles.get(name)
    if not isinstance(profile, Mapping):
        names = [shorten(each, _LONGEST_NAMED) for each, found in profiles.items() if isinstance(found, Mapping)]
        more = len(names) - _MOST_NAMED
        listed = [*map(repr, names[:_MOST_NAMED]), *([f"{more:,} more"] if more > 0 else [])]
        rule = f"{name!r} is not in {path}, which has {', '.join(listed) or 'no profiles'}"
        raise InvalidArgument("profile", rule, hint=Hint.STORE_A_PROFILE)
    unknown = sorted(set(profile) - set(SETTINGS))
    if unknown:
        raise InvalidArgument("profile", f"{name!r} has unknown settings: {', '.join(unknown)}")
    if not all(isinstance(value, str) for value in profile.values()):
        raise InvalidArgument("profile", f"{name!r} must contain strings only")
    return profile


def _change(name: str, added: Mapping[str, str], removed: Iterable[str], path: Path) -> Path:
    text = _edit_file(name, added, removed, path)
    with report_os_error("file", path, "cannot be written"):
        create_folder(path.parent)
        write_private(path, text.encode())
    return path


def _edit_file(name: str, added: Mapping[str, str], removed: Iterable[str], path: Path) -> str:
    """Return the new content of the file, if it can be changed safely."""
    NAME.check("profile", name)
    exists = _exists(path)
    if path.is_symlink():
        raise UnusableFile("file", path, "is a symbolic link, through which no secrets are written")
    before = _load(path) if exists else {}
    if name in before:
        _select(before, name, path)
    text = edit_table(_read_text(path) if exists else "", name, added, removed)
    if len(text.encode()) > _LARGEST_FILE:
        del text  # it must not be among the locals of a traceback
        raise UnusableFile("file", path, f"must have at most {_LARGEST_FILE:,} bytes")
    return text


def _variable_name(setting: str) -> str:
    return f"SVC_{setting.upper()}"


def _exists(path: Path) -> bool:
    with report_os_error("file", path, "cannot be read"):
        return path.exists()


def _load(path: Path) -> Mapping[str, object]:
    try:
        found = tomllib.loads(_read_text(path))
        return _Values({name: _Values(value) if isinstance(value, dict) else value for name, value in found.items()})
    except FileNotFoundError:
        problem = "does not exist"
    except (OSError, ValueError, RecursionError):  # a TOML parser may quote a secret, so its error is no context
        problem = "cannot be read; it must be TOML in UTF-8"
    raise UnusableFile("file", path, problem)


def _read_text(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise UnusableFile("file", path, "is not a regular file")
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise UnusableFile("file", path, f"must have at most {_LARGEST_FILE:,} bytes")
    if max(line.count(b".") for line in content.split(b"\n")) > _MOST_DOTS:
        raise ValueError("no profile has such a line")
    return content.decode()
