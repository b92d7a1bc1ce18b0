"""`svc-async auth`: log a user in and out, and show the credentials in use."""

import asyncio
import os
import shlex
import sys
import webbrowser
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import attrs
from aiohttp import web
from cyclopts import App

from svc_async import profiles
from svc_async.auth.credentials import AppCredentials, BearerToken, UserCredentials
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import Flag, JsonFlag
from svc_async.cli.output.console import say, show, show_json, stderr
from svc_async.cli.sessions import find_shadowed_profile, find_state, session_from
from svc_async.cli.signals import run_coroutine
from svc_async.errors import Forbidden, InvalidArgument, Unauthorized
from svc_async.platform.oauth1_flow import OUT_OF_BAND, AccessToken, OAuth1Flow, RequestToken
from svc_async.printable import clean
from svc_async.profiles import ConnectionSettings
from svc_async.session import Session
from svc_async.webhooks.server import open_server
from svc_async.wire.route import Surface

__all__ = ["app"]

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_TOKENS = ("access_token", "access_token_secret", "bearer_token")
_APP_VARIABLES = ("SVC_CONSUMER_KEY", "SVC_CONSUMER_SECRET")
_TO_LOG_IN = "to log a user in"
_KINDS: Mapping[type, str] = {
    UserCredentials: "a user",
    AppCredentials: "an app",
    BearerToken: "an app, by its bearer token",
}


app = App(name="auth")


@app.command
def login(
    *, profile: str | None = None, callback: str | None = None, no_browser: Flag = False, as_json: JsonFlag = False
) -> int:
    """Have a user grant access to your app, and store the token in a profile that only you can read.

    The app and the hosts are taken from the profile if it exists, else from SVC_* variables. The page shows a PIN,
    which is read from stdin, unless there is a callback.

    Args:
        profile: The profile to store. [default: SVC_PROFILE, or "default"]
        callback: Listen for the user's return here, such as http://127.0.0.1:8766/done. Configure it in the app's
            settings.
        no_browser: Only print the URL of the page.
        as_json: Print only JSON; the URL of the page goes to stderr.
    """
    name = _name_of(profile)
    source = _find_app(profile or os.environ.get("SVC_PROFILE"))
    if source.app is None:
        needed = "set SVC_CONSUMER_KEY and SVC_CONSUMER_SECRET, or add both to the profile"
        raise InvalidArgument("app", f"must contain consumer_key and consumer_secret {_TO_LOG_IN}; {needed}")
    profiles.check(name)  # a token that cannot be stored is not requested
    flow = _LoginFlow(source, source.app, browser=not no_browser)
    token = flow.run_with_callback(callback) if callback else flow.run_with_pin()
    path = profiles.write(name, _settings(source, token.credentials(source.app)))
    if as_json:
        stored = {"profile": name, "path": str(path), "user_id": token.user_id, "screen_name": token.screen_name}
        show_json(stored)
    else:
        say(f"You are logged in as {token.screen_name}; the profile {name!r} in {path} holds the token.")
        if os.environ.get("SVC_PROFILE") != name and (name != "default" or profiles.set_variables()):
            unset = "unset the SVC_* variables, " if profiles.set_variables() else ""
            say(f"To use it, {unset}add --profile {shlex.quote(name)} to a command, or set SVC_PROFILE.")
    return Exit.DONE


@app.command
def whoami(*, profile: str | None = None, check: Flag = False, as_json: JsonFlag = False) -> int:
    """Show which credentials a command would use and where they come from. Secrets are not shown.

    Args:
        profile: Show this profile, not SVC_* variables.
        check: Call the service too: list the accounts of a user, or the webhooks of an app.
        as_json: Print only JSON.
    """
    source = profiles.find(profile)
    state = find_state(None, profile)
    facts: dict[str, str | list[str] | None] = {
        "source": source.origin,
        "credentials": _KINDS[type(source.credentials)],
        "consumer_key": source.app.consumer_key if source.app else None,
        "base_url": source.endpoints.base_url,
        "ads_url": source.endpoints.ads_url,
        "ads_sandbox_url": source.endpoints.ads_sandbox_url,
        "shared_state": state.name if state is not None else None,
    }
    if shadowed := find_shadowed_profile(profile):
        facts["not_used"] = f"the profile {shadowed!r}, since SVC_* variables are set"
    facts |= run_coroutine(_fetch_access(source)) if check else {}
    if as_json:
        show_json(facts)
    else:
        for heading, value in facts.items():
            shown = ", ".join(value) if isinstance(value, list) else value
            show(f"{heading.replace('_', ' '):<16}{shown or 'none'}")
    return Exit.DONE


@app.command
def logout(*, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """Revoke the token of a profile and delete it from the profile; the app stays there.

    Args:
        profile: The profile. [default: SVC_PROFILE, or "default"]
        as_json: Print only JSON.
    """
    name = _name_of(profile)
    source = (None if profile else profiles.from_variable()) or profiles.from_profile(name)
    if isinstance(source.credentials, AppCredentials):
        raise InvalidArgument("token", f"is not in the profile {name!r}: nobody is logged in")
    invalidated = run_coroutine(_invalidate(source))
    path = profiles.remove(name, _TOKENS)
    if as_json:
        show_json({"profile": name, "path": str(path), "invalidated": invalidated})
    else:
        fate = "no longer works" if invalidated else "still works, since the profile names no app to revoke it"
        say(f"The token {fate}; it was deleted from the profile {name!r} in {path}.")
    return Exit.DONE


def _name_of(profile: str | None) -> str:
    return profile or os.environ.get("SVC_PROFILE") or "default"


def _find_app(name: str | None) -> ConnectionSettings:
    """Find the app and the hosts: in the profile to be stored if it exists, else where every command finds them."""
    is_stored = profiles.is_stored(name or "default")
    if not is_stored and set(_APP_VARIABLES).isdisjoint(profiles.set_variables()):
        needed = ", ".join((*_APP_VARIABLES, "SVC_BASE_URL")) + " and SVC_ADS_URL"
        raise InvalidArgument("app", f"and its hosts must be given {_TO_LOG_IN}: set {needed}")
    if name and not is_stored:
        return profiles.from_environment()
    return profiles.find(name)


def _settings(source: ConnectionSettings, credentials: UserCredentials) -> Mapping[str, str]:
    settings = {
        "consumer_key": credentials.consumer_key,
        "consumer_secret": credentials.consumer_secret,
        "access_token": credentials.token,
        "access_token_secret": credentials.token_secret,
        "base_url": source.endpoints.base_url,
        "ads_url": source.endpoints.ads_url,
        "ads_sandbox_url": source.endpoints.ads_sandbox_url,
    }
    return {name: value for name, value in settings.items() if value is not None}


@attrs.frozen
class _Address:
    """Where the browser returns to, on this machine."""

    host: str
    port: int
    path: str


def _parse_address(callback: str) -> _Address:
    try:
        parts = urlsplit(callback)
        if parts.scheme == "http" and parts.hostname in _LOOPBACK and parts.port:
            return _Address(parts.hostname, parts.port, parts.path or "/")
    except ValueError:  # an invalid port
        pass
    raise InvalidArgument("callback", "must be http:// on loopback with a port, such as http://127.0.0.1:8766/done")


@attrs.frozen
class _LoginFlow:
    """The three-legged flow."""

    source: ConnectionSettings
    app: AppCredentials
    browser: bool = attrs.field(kw_only=True)

    def run_with_pin(self) -> AccessToken:
        token, page = run_coroutine(self._begin())
        self._show(page)
        if sys.stdin.isatty():
            stderr().print("PIN shown on the page: ", end="")
        # Read outside the event loop: a thread that waits for a line could not be stopped.
        pin = sys.stdin.readline().strip()
        if not pin:
            raise InvalidArgument("PIN", "must be given: type it, or pass it as a line on stdin")
        return run_coroutine(self._exchange(token, pin))

    def run_with_callback(self, callback: str) -> AccessToken:
        return run_coroutine(self._wait_for_callback(callback, _parse_address(callback)))

    async def _begin(self) -> tuple[RequestToken, str]:
        async with self._session() as session:
            token = await session.oauth1.request_token(callback=OUT_OF_BAND)
            return token, session.oauth1.authorize_url(token)

    async def _exchange(self, token: RequestToken, verifier: str) -> AccessToken:
        async with self._session() as session:
            try:
                return await session.oauth1.access_token(token, verifier=verifier)
            except Unauthorized as refusal:
                refusal.add_note("approve the access in the browser, then enter the PIN that it shows")
                raise

    async def _wait_for_callback(self, callback: str, address: _Address) -> AccessToken:
        async with self._session() as session:
            try:
                token = await session.oauth1.request_token(callback=callback)
            except Forbidden as refusal:
                leave = "leave --callback out: the page shows a PIN then"
                refusal.add_note(f"add this callback URL to the settings of the app, or {leave}")
                raise
            async with _receive_verifier(session.oauth1, token, address) as verifier:
                await asyncio.to_thread(self._show, session.oauth1.authorize_url(token))  # opening some browsers blocks
                found = await verifier
            return await session.oauth1.access_token(token, verifier=found)

    def _session(self) -> Session:
        return session_from(self.source, surface=Surface.BASE, credentials=self.app)

    def _show(self, page: str) -> None:
        say("Open this page and approve:", needed=True)
        stderr().print(f"  {clean(page)}", soft_wrap=True)
        if self.browser:
            webbrowser.open(page)


@asynccontextmanager
async def _receive_verifier(
    flow: OAuth1Flow, token: RequestToken, callback: _Address
) -> AsyncGenerator["asyncio.Future[str]"]:
    """Listen for the browser to return; a request with another token is refused."""
    verifier: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handle(request: web.Request) -> web.Response:
        try:
            found = flow.verifier(token, request.rel_url.raw_query_string)
        except InvalidArgument as problem:
            if "denied" in request.query and request.query["denied"] == token.oauth_token and not verifier.done():
                verifier.set_exception(problem)
            return web.Response(status=400, text=f"The login failed: {problem}.")
        if not verifier.done():
            verifier.set_result(found)
        return web.Response(text="You are logged in. This window can be closed.")

    site = web.Application()
    site.router.add_get(callback.path, handle)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(open_server(site, host=callback.host, port=callback.port))
        except OSError as error:
            reason = error.strerror or "not possible"
            raise InvalidArgument("callback", f"must be an address that can be listened on: {reason}") from None
        yield verifier


async def _fetch_access(source: ConnectionSettings) -> dict[str, str | list[str] | None]:
    """Fetch what the credentials give access to: the accounts of a user, the webhooks of an app."""
    if isinstance(source.credentials, UserCredentials):
        async with session_from(source, surface=Surface.ADS) as session:
            accounts = await session.accounts.list().collect()
            return {"accounts": [account.id for account in accounts]}
    async with session_from(source, surface=Surface.BASE) as session:
        webhooks = await session.webhooks.list().collect()
        return {"webhooks": [webhook.url for webhook in webhooks]}


async def _invalidate(source: ConnectionSettings) -> bool:
    if source.app is None:
        return False
    async with session_from(source, surface=Surface.BASE) as session:
        is_user = isinstance(source.credentials, UserCredentials)
        call = session.oauth1.invalidate_token if is_user else session.oauth2.invalidate_token
        try:
            await call()
        except Unauthorized as refusal:
            if not refusal.has_code(89):  # 89: it was invalid already
                raise
    return True
