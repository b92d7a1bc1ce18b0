"""`svc-async webhook check`: send a CRC check as the service does, and find out what is wrong."""

import asyncio
import ipaddress
import secrets
from urllib.parse import quote, urlsplit

import attrs

from svc_async._version import __version__
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import say, show, show_json
from svc_async.cli.sessions import find_signing_key
from svc_async.cli.signals import run_until_stopped
from svc_async.clock import SystemClock
from svc_async.engine.transport import Timeouts, Transport, WireRequest
from svc_async.errors import InvalidArgument, SvcError, TransportError
from svc_async.webhooks.verification import OTHER_SECRET, diagnose_crc
from svc_async.wire.envelope import Answer
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = ["check", "name_secret"]

_SECONDS = 10.0  # Unspecified: how long the service waits for a CRC answer (UNS-crc-timeout)
_SECOND_REQUEST = (
    "a second request had a forged event as its token, which must be refused: crc_token_refused in a receiver's log"
)
_NO_ANSWER = (
    "; check that the receiver runs, and give the address at which this machine reaches it: with a sandbox, "
    "its own one, such as http://127.0.0.1:9000/svc"
)
_FORGED = '{"data":{"event_type":"svc-async.check"}}'


def check(url: str, /, *, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """Send a CRC check to a webhook URL as the service does, time the answer, and explain what is wrong with it.

    A second request has a forged event as its token, which must be refused: a receiver logs `crc_token_refused`, and
    counts it in `stats.rejected`.

    Args:
        url: The webhook URL.
        profile: Use the secret of this profile, not SVC_CONSUMER_SECRET.
        as_json: Print only JSON.
    """
    _check_url(url)
    key = find_signing_key(profile)
    finding = asyncio.run(_examine(url, key))
    notes = [*_notes(url), *([] if finding.problem else [_SECOND_REQUEST])]
    if as_json:
        show_json({"url": url, "ok": not finding.problem, **attrs.asdict(finding), "notes": notes})
    else:
        _print_finding(finding, notes)
    return Exit.FAILURE if finding.problem else Exit.DONE


@attrs.frozen(kw_only=True)
class _Finding:
    """The result of a CRC check; without a problem, the answer is right."""

    problem: str | None
    status: int | None = None
    seconds: float | None = None


async def _examine(url: str, key: SigningKey) -> _Finding:
    transport = Transport.open(
        user_agent=f"svc-async/{__version__}", clock=SystemClock(), timeouts=Timeouts(total=_SECONDS)
    )
    try:
        return await run_until_stopped(_send_checks(transport, url, key))
    finally:
        await transport.close()


async def _send_checks(transport: Transport, url: str, key: SigningKey) -> _Finding:
    token = f"{secrets.token_urlsafe(24)}="  # its last character must be quoted in a query
    clock = SystemClock()
    began = clock.monotonic()
    try:
        answer = await _ask(transport, url, token)
    except SvcError as error:
        advice = _NO_ANSWER if isinstance(error, TransportError) else ""
        return _Finding(problem=f"{error}{advice}", seconds=clock.monotonic() - began)
    seconds = clock.monotonic() - began
    location = answer.headers.get("location", "")
    problem = diagnose_crc(key, token, status=answer.status, body=answer.body, url=url, location=location)
    problem = name_secret(problem, key)
    if problem is None and await _signs_anything(transport, url, key):
        problem = "it signs any crc_token, even a forged event; it must refuse tokens with other characters"
    return _Finding(problem=problem, status=answer.status, seconds=seconds)


async def _ask(transport: Transport, url: str, token: str) -> Answer:
    joint = "&" if urlsplit(url).query else "?"
    whole = f"{url}{joint}crc_token={quote(token, safe='')}"
    return await transport.exchange(WireRequest(method="GET", url=whole), on_sent=lambda: None)


async def _signs_anything(transport: Transport, url: str, key: SigningKey) -> bool:
    try:
        answer = await _ask(transport, url, _FORGED)
    except SvcError:
        return False
    return diagnose_crc(key, _FORGED, status=answer.status, body=answer.body) is None


def name_secret(problem: str | None, key: SigningKey) -> str | None:
    """Return a problem with a signature; if the secret may be another one, say which one the command has used."""
    if problem is None or not problem.endswith(OTHER_SECRET):
        return problem
    return f"{problem}; it was compared with {key.key_id}: check that both sides have the consumer secret of one app"


def _check_url(url: str) -> None:
    if "://" not in url:
        raise InvalidArgument("URL", "must start with https:// or http://")
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or any(letter in url for letter in " #@"):
        raise InvalidArgument("URL", "must be an absolute URL in ASCII without user and fragment")


def _notes(url: str) -> list[str]:
    parts = urlsplit(url)
    if _is_loopback(parts.hostname or ""):
        return []  # no URL to register: that of a proxy or a tunnel before it, or of a sandbox
    notes = {
        "the service accepts https:// only": parts.scheme != "https",
        "the service accepts no port": parts.port is not None,
    }
    return [note for note, holds in notes.items() if holds]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _print_finding(finding: _Finding, notes: list[str]) -> None:
    took = f" (after {finding.seconds:.2f} s)" if finding.seconds is not None else ""
    show(finding.problem or "The CRC check was answered correctly", took, ".")
    for note in notes:
        say(f"Note: {note}.")
