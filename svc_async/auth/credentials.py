"""The kinds of credentials. Secrets never appear in a repr, a log or an error."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc_async.errors import InvalidArgument
from svc_async.value_rules import MOMENT, ValueRule, hides_values, or_none

__all__ = [
    "CREDENTIALS",
    "NEEDS_USER",
    "WITH_USER",
    "AppCredentials",
    "BearerToken",
    "Credentials",
    "OAuth2UserCredentials",
    "UserCredentials",
]

NEEDS_USER = "the advertising API needs the token of a user"


def _check_text(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """Reject what can only be a mistake: an empty variable, a pasted line break."""
    if not isinstance(value, str) or not value or value != value.strip() or not value.isprintable():
        raise InvalidArgument(field.name, "must be a non-empty string without surrounding white space")


def _check_token(instance: object, field: "attrs.Attribute[Any]", value: object) -> None:
    """Reject a token with what belongs around it in a header, such as the word Bearer."""
    _check_text(instance, field, value)
    if " " in str(value) or not str(value).isascii():
        raise InvalidArgument(field.name, "must be the token alone: in ASCII, without white space and the word Bearer")


def _split_scopes(value: Any) -> Any:
    return tuple(value.split() if isinstance(value, str) else value) if isinstance(value, Iterable) else value


_SCOPES = ValueRule(
    lambda value: isinstance(value, tuple) and all(isinstance(each, str) for each in value), "a sequence of strings"
)


def _secret(*, default: Any = attrs.NOTHING) -> Any:
    validator = _check_text if default is attrs.NOTHING else attrs.validators.optional(_check_text)
    return attrs.field(default=default, repr=False, validator=validator)


@hides_values
@attrs.frozen(kw_only=True)
class AppCredentials:
    """An app without a user: the consumer key and secret, and the OAuth 2.0 client if it has one.

    Attributes:
        consumer_key: the key of the app.
        consumer_secret: its secret.
        client_id: the id of its OAuth 2.0 client.
        client_secret: the secret of that client, if it is a confidential one.
    """

    consumer_key: str = attrs.field(validator=_check_text)
    consumer_secret: str = _secret()
    client_id: str | None = attrs.field(default=None, validator=attrs.validators.optional(_check_text))
    client_secret: str | None = _secret(default=None)


@hides_values
@attrs.frozen(kw_only=True)
class UserCredentials:
    """A user who granted access to an app: OAuth 1.0a, which the advertising API requires.

    Attributes:
        consumer_key: the key of the app, `SVC_CONSUMER_KEY` in the environment.
        consumer_secret: its secret.
        token: the access token of the user, `SVC_ACCESS_TOKEN` in the environment.
        token_secret: its secret.
    """

    consumer_key: str = attrs.field(validator=_check_text)
    consumer_secret: str = _secret()
    token: str = _secret()
    token_secret: str = _secret()

    @property
    def app(self) -> AppCredentials:
        """The app that these credentials imply."""
        return AppCredentials(consumer_key=self.consumer_key, consumer_secret=self.consumer_secret)


@hides_values
@attrs.frozen
class BearerToken:
    """An app-only OAuth 2.0 token as the service issued it: already percent-encoded, never encoded again.

    Attributes:
        token: the token alone, without the word Bearer.
    """

    token: str = attrs.field(repr=False, validator=_check_token)


@hides_values
@attrs.frozen(kw_only=True)
class OAuth2UserCredentials:
    """A user who granted scopes to an app: OAuth 2.0 with PKCE.

    Attributes:
        access_token: the bearer token of calls.
        refresh_token: exchanged for the next access token; granted with `offline.access`.
        client_id: the OAuth 2.0 client that the token was issued to.
        expires_at: when the access token expires, if known; it is refreshed one minute earlier.
        scopes: the granted scopes, if known: a sequence, or one string separated by spaces.
    """

    access_token: str = attrs.field(repr=False, validator=_check_token)
    refresh_token: str | None = _secret(default=None)
    client_id: str | None = attrs.field(default=None, validator=attrs.validators.optional(_check_text))
    expires_at: datetime | None = attrs.field(default=None, validator=or_none(MOMENT))
    scopes: Sequence[str] = attrs.field(default=(), converter=_split_scopes, validator=_SCOPES)


Credentials = UserCredentials | AppCredentials | BearerToken | OAuth2UserCredentials
"""Any kind of credentials."""

CREDENTIALS: Final = "UserCredentials(...), OAuth2UserCredentials(...), AppCredentials(...) or BearerToken(...)"
"""The kinds of credentials, in messages."""

WITH_USER: Final = (UserCredentials, OAuth2UserCredentials)
"""The kinds that have a user, whom the advertising API requires (contract AUTH-27)."""
