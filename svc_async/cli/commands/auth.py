"""Logs a user in and out, and says who calls."""

import asyncio
import json
import os
import sys
import webbrowser
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import attrs
from aiohttp import web

from svc_async import profiles
from svc_async.auth.credentials import AppCredentials, BearerToken, UserCredentials
from svc_async.cli.console import stderr, stdout
from svc_async.cli.exit_codes import Exit
from svc_async.cli.sessions import session_with
from svc_async.cli.signals import Interrupted, until_stopped
from svc_async.errors import InvalidArgument, Unauthorized
from svc_async.platform.oauth1_flow import OUT_OF_BAND, AccessToken, OAuth1Flow, RequestToken
from svc_async.profiles import Source
from svc_async.session import Session
from svc_async.wire.route import Surface

__all__ = ["login", "logout", "whoami"]

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_TOKENS = ("access_token", "access_token_secret", "bearer_token")


def login(profile: str | None, *, callback: str | None, browser: bool, as_json: bool) -> int:
    """Walk a user through the three-legged flow, store the profile, and give the exit code."""
    name = _named(profile)
    source = _source_of_app(profile or os.environ.get("SVC_PROFILE"))
    app = source.app
    if app is None:
        raise InvalidArgument("credentials", "must hold consumer_key and consumer_secret to log a user in")
    profiles.check(name)  # a token that cannot be stored is not asked for
    try:
        steps = _Steps(source, app, browser)
        token = steps.with_callback(callback) if callback else steps.with_pin()
    except (Interrupted, KeyboardInterrupt):
        return Exit.INTERRUPTED
    path = profiles.write(name, _settings(source, token.credentials(app)))
    if as_json:
        told = {"profile": name, "path": str(path), "user_id": token.user_id, "screen_name": token.screen_name}
        stdout().print(json.dumps(told))
    else:
        stderr().print(f"You are logged in as {token.screen_name}; the profile {name!r} in {path} holds the token.")
    return Exit.DONE


def whoami(profile: str | None, *, check: bool, as_json: bool) -> int:
    """Say which credentials a command would use and where they came from, and give the exit code."""
    source = profiles.find(profile)
    told = _described(source)
    try:
        told |= asyncio.run(until_stopped(_checked(source))) if check else {}
    except Interrupted:
        return Exit.INTERRUPTED
    if as_json:
        stdout().print(json.dumps(told))
    else:
        for heading, value in told.items():
            shown = ", ".join(value) if isinstance(value, list) else value
            stdout().print(f"{heading.replace('_', ' '):<16}{shown or 'none'}")
    return Exit.DONE


def logout(profile: str | None, *, as_json: bool) -> int:
    """Make the token of a profile stop working, take it out of the profile, and give the exit code."""
    name = _named(profile)
    source = profiles.from_profile(name)
    if isinstance(source.credentials, AppCredentials):
        raise InvalidArgument("token", f"is not in the profile {name!r}: nobody is logged in")
    try:
        invalidated = asyncio.run(until_stopped(_invalidated(source)))
    except Interrupted:
        return Exit.INTERRUPTED
    path = profiles.remove(name, _TOKENS)
    if as_json:
        stdout().print(json.dumps({"profile": name, "path": str(path), "invalidated": invalidated}))
    else:
        fate = "does not work any more" if invalidated else "still works, for the profile names no app to revoke it"
        stderr().print(f"The token {fate}; it is gone from the profile {name!r} in {path}.")
    return Exit.DONE


def _named(profile: str | None) -> str:
    return profile or os.environ.get("SVC_PROFILE") or "default"


def _source_of_app(name: str | None) -> Source:
    """Find the app and the hosts: in the profile that is to be written if it is there, else as every command does."""
    if name and not profiles.is_stored(name):
        return profiles.from_environment()
    return profiles.find(name)


def _settings(source: Source, credentials: UserCredentials) -> Mapping[str, str]:
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
    """Where the browser comes back to, on this machine."""

    host: str
    port: int
    path: str


def _address(callback: str) -> _Address:
    try:
        parts = urlsplit(callback)
        if parts.scheme == "http" and parts.hostname in _LOOPBACK and parts.port:
            return _Address(parts.hostname, parts.port, parts.path or "/")
    except ValueError:  # of a port that is none
        pass
    raise InvalidArgument("callback", "must be http:// on loopback with a port, such as http://127.0.0.1:8766/done")


@attrs.frozen
class _Steps:
    """The three legs."""

    source: Source
    app: AppCredentials
    browser: bool

    def with_pin(self) -> AccessToken:
        token, page = asyncio.run(until_stopped(self._begun()))
        self._show(page)
        if sys.stdin.isatty():
            stderr().print("The PIN that the page shows: ", end="")
        # Read outside the loop: a thread that waits for a line could not be stopped.
        pin = sys.stdin.readline().strip()
        if not pin:
            raise InvalidArgument("PIN", "must be given: type it, or pass it as a line on stdin")
        return asyncio.run(until_stopped(self._exchanged(token, pin)))

    def with_callback(self, callback: str) -> AccessToken:
        return asyncio.run(until_stopped(self._listened(callback, _address(callback))))

    async def _begun(self) -> tuple[RequestToken, str]:
        async with self._session() as session:
            token = await session.oauth1.request_token(callback=OUT_OF_BAND)
            return token, session.oauth1.authorize_url(token)

    async def _exchanged(self, token: RequestToken, verifier: str) -> AccessToken:
        async with self._session() as session:
            return await session.oauth1.access_token(token, verifier=verifier)

    async def _listened(self, callback: str, address: _Address) -> AccessToken:
        async with self._session() as session:
            token = await session.oauth1.request_token(callback=callback)
            async with _returned(session.oauth1, token, address) as verifier:
                await asyncio.to_thread(self._show, session.oauth1.authorize_url(token))  # some browsers block
                found = await verifier
            return await session.oauth1.access_token(token, verifier=found)

    def _session(self) -> Session:
        return session_with(self.source, surface=Surface.BASE, credentials=self.app)

    def _show(self, page: str) -> None:
        stderr().print("Open this page, and approve:")
        stderr().print(f"  {page}", soft_wrap=True)
        if self.browser:
            webbrowser.open(page)


@asynccontextmanager
async def _returned(flow: OAuth1Flow, token: RequestToken, callback: _Address) -> AsyncGenerator["asyncio.Future[str]"]:
    """Listen for the browser that comes back; whoever brings another token is sent away."""
    verifier: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handle(request: web.Request) -> web.Response:
        try:
            found = flow.verifier(token, request.query_string)
        except InvalidArgument as problem:
            if "denied" in request.query and request.query["denied"] == token.oauth_token and not verifier.done():
                verifier.set_exception(problem)
            return web.Response(status=400, text=f"This is no way to log in: {problem}.")
        if not verifier.done():
            verifier.set_result(found)
        return web.Response(text="You are logged in. This window can be closed.")

    app = web.Application()
    app.router.add_get(callback.path, handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await _listen(web.TCPSite(runner, callback.host, callback.port))
        yield verifier
    finally:
        await runner.cleanup()


async def _listen(site: web.TCPSite) -> None:
    try:
        await site.start()
    except OSError as error:
        reason = error.strerror or "not possible"
        raise InvalidArgument("callback", f"must be an address that can be listened on: {reason}") from None


# --- who calls


_KINDS: Mapping[type, str] = {
    UserCredentials: "a user",
    AppCredentials: "an app",
    BearerToken: "an app, by its bearer token",
}


def _described(source: Source) -> dict[str, str | list[str] | None]:
    return {
        "source": source.name,
        "credentials": _KINDS[type(source.credentials)],
        "consumer_key": source.app.consumer_key if source.app else None,
        "base_url": source.endpoints.base_url,
        "ads_url": source.endpoints.ads_url,
        "ads_sandbox_url": source.endpoints.ads_sandbox_url,
    }


async def _checked(source: Source) -> dict[str, str | list[str] | None]:
    """Ask the service for what the credentials may use: the accounts of a user, the webhooks of an app."""
    if isinstance(source.credentials, UserCredentials):
        async with session_with(source, surface=Surface.ADS) as session:
            accounts = await session.accounts.list().collect()
            return {"accounts": [account.id for account in accounts]}
    async with session_with(source, surface=Surface.BASE) as session:
        webhooks = await session.webhooks.list().collect()
        return {"webhooks": [webhook.url for webhook in webhooks]}


# --- logging out


async def _invalidated(source: Source) -> bool:
    if source.app is None:
        return False
    async with session_with(source, surface=Surface.BASE) as session:
        is_user = isinstance(source.credentials, UserCredentials)
        call = session.oauth1.invalidate_token if is_user else session.oauth2.invalidate_token
        try:
            await call()
        except Unauthorized as refusal:
            if not refusal.has_code(89):  # else it did not work any more
                raise
    return True
