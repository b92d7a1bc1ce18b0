"""The apps, and the access that users granted them.

An app is found by its consumer key (OAuth 1.0a) and by its client id (OAuth 2.0).
"""

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import attrs

from svc_async.sandbox.kinds import WrongArgument
from svc_async.sandbox.state.store import Ids

__all__ = ["Access", "App", "Code", "Grant", "Grants", "RequestToken", "ScopedToken", "Token"]

Access = Literal["read", "write"]


@attrs.frozen(kw_only=True)
class App:
    """A registered application.

    Attributes:
        client_secret: None for a public client, which cannot keep one.
        access: the highest access that it may request.
        callback_urls: the URLs that users may be redirected to.
        sign_in: whether users who granted access before are redirected at once.
    """

    consumer_key: str
    consumer_secret: str = attrs.field(repr=False)
    client_id: str = ""
    client_secret: str | None = attrs.field(default=None, repr=False)
    name: str = "App"
    access: Access = "write"
    callback_urls: tuple[str, ...] = ()
    sign_in: bool = True


@attrs.define
class Token:
    """An access token: a user's consent to one app."""

    token: str
    secret: str = attrs.field(repr=False)
    user_id: str
    consumer_key: str
    access: Access = "write"
    valid: bool = True


@attrs.define
class RequestToken:
    """A request for a user's consent.

    Attributes:
        callback: the URL that the user is redirected to; `oob` shows a PIN.
        log_in: whether the approving user must log in first, because a page required it.
        user_id: the user who approved it.
        verifier: the proof of approval: a parameter of the callback, or the PIN.
    """

    token: str
    secret: str = attrs.field(repr=False)
    consumer_key: str
    callback: str
    access: Access
    expires: datetime
    log_in: bool = False
    user_id: str | None = None
    verifier: str | None = attrs.field(default=None, repr=False)


@attrs.define(eq=False)
class Grant:
    """One grant of OAuth 2.0, with all tokens that were issued for it.

    Attributes:
        refresh_token: the current one.
        valid: False once it was revoked, or one of its refresh tokens was reused.
    """

    client_id: str
    user_id: str
    scopes: tuple[str, ...]
    refresh_token: str | None = attrs.field(default=None, repr=False)
    valid: bool = True


@attrs.define(kw_only=True)
class Code:
    """An authorization code of OAuth 2.0, to be exchanged for tokens."""

    grant: Grant
    redirect_uri: str
    challenge: str
    expires: datetime
    used: bool = False


@attrs.define
class ScopedToken:
    """An access token of OAuth 2.0, with scopes."""

    grant: Grant
    scopes: tuple[str, ...]
    expires: datetime
    revoked: bool = False

    def valid(self, now: datetime) -> bool:
        """Return whether it is valid at this time."""
        return self.grant.valid and not self.revoked and now < self.expires


@attrs.define(repr=False)
class Grants:
    """All apps, grants and tokens.

    Attributes:
        apps: by consumer key.
        tokens: access tokens of OAuth 1.0a.
        bearers: the outstanding app-only token of each app, by consumer key.
        codes: authorization codes of OAuth 2.0, used ones included.
        scoped: access tokens of OAuth 2.0.
        by_refresh_token: the grants by their refresh tokens, used ones included.
        sessions: the logged-in user by the cookie of a browser; empty if there is none.
    """

    ids: Ids
    apps: dict[str, App] = attrs.field(factory=dict[str, App])
    tokens: dict[str, Token] = attrs.field(factory=dict[str, Token])
    request_tokens: dict[str, RequestToken] = attrs.field(factory=dict[str, RequestToken])
    bearers: dict[str, str] = attrs.field(factory=dict[str, str])
    codes: dict[str, Code] = attrs.field(factory=dict[str, Code])
    scoped: dict[str, ScopedToken] = attrs.field(factory=dict[str, ScopedToken])
    by_refresh_token: dict[str, Grant] = attrs.field(factory=dict[str, Grant])
    sessions: dict[str, str] = attrs.field(factory=dict[str, str])
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def secret(self, kind: str, length: int = 40) -> str:
        """Return a new token or secret."""
        return self.ids.secret(f"{kind}:{next(self._numbers)}", length)

    def find_client(self, client_id: str) -> App | None:
        """Find an app by its client id."""
        return next((app for app in self.apps.values() if client_id and app.client_id == client_id), None)

    def invalidate(self, token: str) -> None:
        """Invalidate an access token of a user.

        Raises:
            WrongArgument: the sandbox has not issued the token; the message does not repeat it.
        """
        if token in self.tokens:
            self.tokens[token].valid = False
        elif token in self.scoped:
            self.scoped[token].revoked = True
        else:
            raise WrongArgument("token", "must be an access token of a user that this sandbox has issued")

    def bearer(self, app: App) -> str:
        """Return the one bearer token of an app; issue it if there is none (AUTH-21)."""
        if app.consumer_key not in self.bearers:
            # It is percent-encoded, so that a client that encodes it again is refused (ASM-81).
            self.bearers[app.consumer_key] = f"{'A' * 22}{self.secret('bearer', 12)}%2B{self.secret('bearer', 24)}%3D"
        return self.bearers[app.consumer_key]

    def find_bearer_app(self, token: str) -> App | None:
        """Find the app whose bearer token this is."""
        return next((self.apps[key] for key, bearer in self.bearers.items() if bearer == token), None)

    def find_granted(self, app: App, user_id: str) -> Token | None:
        """Find the OAuth 1.0a token of a user and an app; of several, the one with the highest access."""
        found = [
            token
            for token in self.tokens.values()
            if token.valid and (token.consumer_key, token.user_id) == (app.consumer_key, user_id)
        ]
        return max(found, key=lambda token: token.access == "write", default=None)

    def grant(self, app: App, user_id: str, access: Access) -> Token:
        """Return the access token of a user and an app: the same one until it is invalidated."""
        # Unspecified: a read-only grant has a token of its own, besides the one that writes.
        for token in self.tokens.values():
            wanted = (token.consumer_key, token.user_id, token.access) == (app.consumer_key, user_id, access)
            if token.valid and wanted:
                return token
        value, secret = f"{user_id}-{self.secret('token', 30)}", self.secret("token_secret", 45)
        self.tokens[value] = token = Token(value, secret, user_id, app.consumer_key, access)
        return token
