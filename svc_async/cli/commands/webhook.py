"""Receives webhooks on this machine, and finds out what is wrong with a webhook URL."""

import asyncio
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import attrs

from svc_async import profiles
from svc_async._version import __version__
from svc_async.cli.console import complain, stderr, stdout
from svc_async.cli.exit_codes import Exit
from svc_async.cli.signals import Interrupted, until_stopped
from svc_async.clock import SystemClock
from svc_async.engine.transport import Timeouts, Transport
from svc_async.errors import InvalidArgument, SvcError
from svc_async.events.models import Event
from svc_async.webhooks.adapters.aiohttp import serve
from svc_async.webhooks.delivery import DeliveryContext
from svc_async.webhooks.diagnosis import crc_problem, signature_problem
from svc_async.webhooks.receiver import WebhookReceiver
from svc_async.webhooks.stats import Stats
from svc_async.wire.envelope import Answer
from svc_async.wire.hmac_sha256 import SigningKey, sign

__all__ = ["check", "listen", "sign_file", "verify_file"]

_HIGHEST_PORT = 65_535
_SECONDS = 10.0  # Unspecified: how long the service waits for a CRC answer (UNS-crc-timeout)
_FORGED = '{"data":{"event_type":"svc-async.check"}}'


# --- listen


def listen(*, host: str, port: int, save: Path | None, profile: str | None, as_json: bool) -> int:
    """Print deliveries until it is stopped, and give the exit code: 0, as stopping is its usual end."""
    if not 0 <= port <= _HIGHEST_PORT:
        raise InvalidArgument("--port", f"must be from 0 to {_HIGHEST_PORT}; 0 takes a free one")
    key = _key(profile)
    if save:
        _make_folder(save)
    receiver = WebhookReceiver(keys=[key], workers=1, on_error=_tell_failure)
    printer = _Printer(save=save, as_json=as_json)
    receiver.on("*")(printer)
    try:
        asyncio.run(_listen(receiver, printer, host, port))
    except BrokenPipeError:
        raise
    except Interrupted:
        pass
    except OSError as error:
        reason = error.strerror or "not possible"
        raise InvalidArgument("webhook", f"cannot listen on {host} port {port}: {reason}") from None
    if not as_json:
        stderr().print(_summary(receiver.stats))
    return Exit.DONE


async def _listen(receiver: WebhookReceiver, printer: "_Printer", host: str, port: int) -> None:
    async with serve(receiver, host=host, port=port, path="/{path:.*}") as taken:
        url = f"http://{host}:{taken}/"
        if printer.as_json:
            _print_line(json.dumps({"listening": url}))
        else:
            stderr().print(f"Listening on {url} and every path below. Ctrl-C stops it.")
        await until_stopped(printer.unread.wait())
        raise BrokenPipeError


@attrs.frozen(kw_only=True)
class _Printer:
    """Prints events, and saves the deliveries that they came in, until nobody reads what is printed."""

    save: Path | None
    as_json: bool
    unread: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    def __call__(self, event: Event, context: DeliveryContext) -> None:
        if self.save:
            name = hashlib.sha256(context.body).hexdigest()[:16]
            (self.save / f"{name}.json").write_bytes(context.body)
        try:
            _print_line(json.dumps(_described(event, context)) if self.as_json else _line(event, context))
        except BrokenPipeError:
            self.unread.set()


def _described(event: Event, context: DeliveryContext) -> Mapping[str, object]:
    return {
        "event_type": str(event.event_type),
        "key": event.key,
        "replayed": event.replayed,
        "received_at": context.received_at.isoformat(),
        "event": event.raw,
    }


def _line(event: Event, context: DeliveryContext) -> str:
    parts = (f"{context.received_at:%H:%M:%S}", event.event_type, event.key, *(["replayed"] if event.replayed else []))
    return "  ".join(_printable(part) for part in parts)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # not by rich, which ends the process when nobody reads
    sys.stdout.flush()


def _tell_failure(_: Event | None, error: BaseException) -> None:
    reason = error.strerror if isinstance(error, OSError) else None
    complain(f"a delivery could not be kept: {reason or type(error).__name__}")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument("--save", f"cannot be {folder}: {error.strerror}") from None


def _summary(stats: Stats) -> str:
    refused = ", ".join(f"{count} {reason}" for reason, count in stats.rejected.items())
    return f"Events: {stats.handled}. CRC checks: {stats.crc_answered}. Refused: {refused or 'none'}."


# --- check


@attrs.frozen(kw_only=True)
class _Finding:
    """What a CRC check of a URL came to; without a problem it is good."""

    problem: str | None
    status: int | None = None
    seconds: float | None = None


def check(url: str, *, profile: str | None, as_json: bool) -> int:
    """Ask a URL as the service does, say what is wrong, and give the exit code."""
    _check_url(url)
    key = _key(profile)
    try:
        finding = asyncio.run(_found(url, key))
    except Interrupted:
        return Exit.INTERRUPTED
    notes = _notes(url)
    if as_json:
        stdout().print(json.dumps({"url": url, "ok": not finding.problem, **attrs.asdict(finding), "notes": notes}))
    else:
        _print_finding(finding, notes)
    return Exit.FAILURE if finding.problem else Exit.DONE


async def _found(url: str, key: SigningKey) -> _Finding:
    transport = Transport.open(
        user_agent=f"svc-async/{__version__}", clock=SystemClock(), timeouts=Timeouts(total=_SECONDS)
    )
    try:
        return await until_stopped(_checked(transport, url, key))
    finally:
        await transport.close()


async def _checked(transport: Transport, url: str, key: SigningKey) -> _Finding:
    token = f"{secrets.token_urlsafe(24)}="  # whose last letter must be quoted in a query
    clock = SystemClock()
    began = clock.monotonic()
    try:
        answer = await _ask(transport, url, token)
    except SvcError as error:
        return _Finding(problem=str(error), seconds=clock.monotonic() - began)
    seconds = clock.monotonic() - began
    problem = crc_problem(key, token, status=answer.status, body=answer.body)
    if problem is None and await _signs_anything(transport, url, key):
        problem = "it signs whatever stands in crc_token, forged events too; it must refuse tokens with other letters"
    return _Finding(problem=problem, status=answer.status, seconds=seconds)


async def _ask(transport: Transport, url: str, token: str) -> Answer:
    joint = "&" if urlsplit(url).query else "?"
    whole = f"{url}{joint}crc_token={quote(token, safe='')}"
    return await transport.exchange("GET", whole, headers={}, on_sent=lambda: None)


async def _signs_anything(transport: Transport, url: str, key: SigningKey) -> bool:
    try:
        answer = await _ask(transport, url, _FORGED)
    except SvcError:
        return False
    return crc_problem(key, _FORGED, status=answer.status, body=answer.body) is None


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or any(letter in url for letter in " #@"):
        raise InvalidArgument("URL", "must be an absolute URL in ASCII without user and fragment")


def _notes(url: str) -> list[str]:
    parts = urlsplit(url)
    notes = {
        "the service accepts https:// only (WH-01)": parts.scheme != "https",
        "the service accepts no port (WH-02)": parts.port is not None,
    }
    return [note for note, holds in notes.items() if holds]


def _print_finding(finding: _Finding, notes: list[str]) -> None:
    took = f" after {finding.seconds:.2f} s" if finding.seconds is not None else ""
    stdout().print(_printable(finding.problem or "The CRC check is answered rightly") + took + ".")
    for note in notes:
        stderr().print(f"Note: {note}.")


# --- sign, verify


def sign_file(file: Path, *, profile: str | None, as_json: bool) -> int:
    """Print the signature of a file's bytes."""
    key = _key(profile)
    signature = sign(key, _bytes_of(file))
    stdout().print(json.dumps({"header": key.header, "signature": signature}) if as_json else signature)
    return Exit.DONE


def verify_file(file: Path, *, signature: str, profile: str | None, as_json: bool) -> int:
    """Say whether a signature is that of a file's bytes."""
    problem = signature_problem(_key(profile), _bytes_of(file), signature)
    if as_json:
        stdout().print(json.dumps({"ok": problem is None, "problem": problem}))
    else:
        stdout().print(f"The signature {problem or 'is good'}.")
    return Exit.FAILURE if problem else Exit.DONE


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidArgument("FILE", f"cannot be read: {error.strerror}") from None


def _key(profile: str | None) -> SigningKey:
    """Take the consumer secret from the named profile, SVC_PROFILE, SVC_CONSUMER_SECRET or the profile `default`."""
    name = profile or os.environ.get("SVC_PROFILE")
    secret = None if name else os.environ.get("SVC_CONSUMER_SECRET")
    if secret:
        return SigningKey(secret)
    if not name and not profiles.default_path().exists():
        raise InvalidArgument("credentials", "need SVC_CONSUMER_SECRET, the secret of your app")
    source = profiles.from_profile(name or "default")
    if source.app is None:
        raise InvalidArgument("credentials", f"need consumer_secret, which is not in {source.name}")
    return SigningKey(source.app.consumer_secret)
