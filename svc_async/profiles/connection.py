"""Builds the settings of a connection from those of the environment or of a profile."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import attrs

from svc_async.auth.credentials import AppCredentials, BearerToken, Credentials, UserCredentials
from svc_async.errors import InvalidArgument
from svc_async.store.database_url import DatabaseUrl
from svc_async.wire.base_urls import Endpoints

__all__ = ["APP", "CLIENT", "HOSTS", "TOKEN", "TRY", "ConnectionSettings", "check_state_url", "parse_settings"]

T = TypeVar("T")

TRY = "or try without credentials: Session.sandbox()"
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
    """

    origin: str
    profile: str | None
    credentials: Credentials
    app: AppCredentials | None
    endpoints: Endpoints
    state_url: str | None = attrs.field(default=None, repr=False)


def parse_settings(
    name: str | None, settings: Mapping[str, str], spell: Callable[[str], str], *, advice: str = ""
) -> ConnectionSettings:
    """Return the settings of a connection.

    Args:
        name: the profile; None is the environment.
        settings: the settings by name.
        spell: returns the name of a setting in messages.
        advice: what the message adds if settings are missing.

    Raises:
        InvalidArgument: names the settings that are missing, or the one that cannot be used.
    """
    origin = _describe_origin(name)
    has_app = any(name in settings for name in (*APP, *CLIENT))
    # Without any setting, the message names those of a user, the most common case.
    has_user = any(name in settings for name in TOKEN) or not (has_app or "bearer_token" in settings)
    has_app = has_app or has_user
    required = (*HOSTS, *(APP if has_app else ()), *(TOKEN if has_user else ()))
    missing = [spell(name) for name in required if name not in settings]
    if missing:
        raise InvalidArgument(
            "credentials", f"are not complete in {origin}: {', '.join(missing)} missing; set them{advice}, {TRY}"
        )
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


def _describe_origin(name: str | None) -> str:
    return "the environment" if name is None else f"the profile {name!r}"


def _describe_place(name: str | None) -> str:
    """Return what a message adds to the name of a setting; the name of a variable says its place."""
    return "" if name is None else f"of {_describe_origin(name)} "


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
