"""`svc-async webhook`: register, receive and check webhooks."""

import asyncio
import hashlib
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

import attrs
from cyclopts import App, Parameter

from svc_async._version import __version__
from svc_async.cli.exit_codes import Exit, Interrupted
from svc_async.cli.options import JsonFlag, check_port, describe_listening
from svc_async.cli.output.console import print_error, say, show, show_item, show_json
from svc_async.cli.sessions import find_signing_key, open_session, run_in
from svc_async.cli.signals import run_coroutine
from svc_async.clock import SystemClock
from svc_async.engine.transport import Timeouts, Transport, WireRequest
from svc_async.errors import BadRequest, InvalidArgument, SvcError, TransportError
from svc_async.events.models import Event, EventFilter
from svc_async.platform.activity import Subscription, Subscriptions
from svc_async.platform.webhooks import Webhook, check_url
from svc_async.printable import clean
from svc_async.private_files import create_folder, write_private
from svc_async.session import Session
from svc_async.value_rules import is_loopback
from svc_async.webhooks.dispatch import DeliveryContext
from svc_async.webhooks.receiver import WebhookReceiver, serve
from svc_async.webhooks.verification import diagnose_crc, diagnose_signature
from svc_async.wire.envelope import Answer
from svc_async.wire.hmac_sha256 import SigningKey
from svc_async.wire.hmac_sha256 import sign as sign_body

__all__ = ["app"]

_OPTIONS = {"event_type": "--event", "user_id": "--user"}
"""The options by what the service calls their values."""
_SECONDS = 10.0  # Unspecified: how long the service waits for a CRC answer (UNS-crc-timeout)
_SECOND_REQUEST = (
    "a second request had a forged event as its token, which must be refused: crc_token_refused in a receiver's log"
)
_NO_ANSWER = (
    "; check that the receiver runs, and give the address at which this machine reaches it: with a sandbox, "
    "its own one, such as http://127.0.0.1:9000/svc"
)
_FORGED = '{"data":{"event_type":"svc-async.check"}}'

app = App(name="webhook")


@app.command
def register(
    url: str,
    /,
    *,
    event: Annotated[list[str] | None, Parameter(negative=())] = None,
    user: str | None = None,
    move: bool = False,
    profile: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Register and validate a webhook URL, and subscribe it to events of a user.

    What exists already is left unchanged, so the command can be repeated. The receiver must be running: the service
    checks a URL that is new, or registered and invalid. One that is valid already is not checked again.

    Args:
        url: The webhook URL: https, without a port.
        event: A type of event to subscribe to, such as post.create. Repeatable.
        user: The id of the user whose events are sent.
        move: Take the events from another webhook to which they go.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    if bool(event) != bool(user):
        raise InvalidArgument("--event and --user", "go together: the events of a user")
    if user and not (user.isascii() and user.isdigit()):
        raise InvalidArgument("--user", "must be the id of a user, a string of digits")
    check_url(url)
    wanted = _Registration(url, tuple(dict.fromkeys(event or ())), user, move)
    webhook, was_checked, subscriptions = run_in(open_session(profile), wanted.ensure)
    if as_json:
        facts: dict[str, object] = {"webhook_id": webhook.id, "url": webhook.url, "valid": webhook.valid}
        facts["checked"] = was_checked
        facts["subscriptions"] = [
            {"subscription_id": each.subscription_id, "event_type": each.event_type, "user_id": each.filter.user_id}
            for each in subscriptions
        ]
        show_json(facts)
        return Exit.DONE
    if was_checked:
        say(f"The webhook {webhook.id} is valid; events for it go to {webhook.url}.")
    else:
        say(
            f"The webhook {webhook.id} was valid already and was not checked now; events for it go to {webhook.url}. "
            "`svc-async webhook check URL` checks the receiver; with a sandbox, give the receiver's own address."
        )
    for each in subscriptions:
        say(f"It is subscribed to {each.event_type} of user {each.filter.user_id}.")
    return Exit.DONE


@attrs.frozen
class _Registration:
    """A webhook, and the events to subscribe it to."""

    url: str
    events: Sequence[str]
    user: str | None
    move: bool

    async def ensure(self, session: Session) -> tuple[Webhook, bool, Sequence[Subscription]]:
        """Make it stand; return the webhook, whether its URL was checked for it, and the subscriptions."""
        subscriptions, existing = session.activity.subscriptions, dict[str, Subscription]()
        if self.events:
            whole = EventFilter(user_id=self.user)
            found = {
                str(each.event_type): each for each in await subscriptions.list().collect() if each.filter == whole
            }
            existing = {event: found[event] for event in self.events if event in found}
        webhooks = await session.webhooks.list().collect()
        if not self.move:
            others = {webhook.id: webhook.url for webhook in webhooks if webhook.url != self.url}
            for event, subscription in existing.items():
                if url := others.get(subscription.webhook_id or ""):
                    where = f"{event} of user {self.user} goes to {url} already"
                    raise InvalidArgument("--event", f"{where}, and to one webhook only; --move takes it from there")
        valid = next((each for each in webhooks if each.url == self.url and each.valid), None)
        webhook = valid or await session.webhooks.ensure(self.url)
        stand = [await self._subscribe(subscriptions, webhook, event, existing.get(event)) for event in self.events]
        return webhook, valid is None, stand

    async def _subscribe(
        self, subscriptions: Subscriptions, webhook: Webhook, event: str, existing: Subscription | None
    ) -> Subscription:
        """Subscribe to events; a refusal of a parameter says which option gives it."""
        if existing is not None and existing.webhook_id == webhook.id:
            return existing
        if existing is not None:
            return await subscriptions.update(existing.subscription_id, webhook_id=webhook.id)
        try:
            return await subscriptions.create(event_type=event, user_id=self.user, webhook_id=webhook.id)
        except BadRequest as error:
            said = " ".join(each.message for each in error.errors)  # the service has no field for it
            options = [option for name, option in _OPTIONS.items() if name in said]
            if options and not error.has_code("DuplicateSubscription"):
                error.add_note(f"check {' and '.join(options)}")
            raise


@app.command
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
    key, _ = find_signing_key(profile)
    finding = run_coroutine(_examine(url, key))
    notes = _list_what_the_service_refuses(url)
    if finding.problem is None:
        notes.append(_SECOND_REQUEST)
    elif finding.status is not None:
        notes.append(f"the secret is {key.key_id}")
    if as_json:
        show_json({"url": url, "ok": not finding.problem, **attrs.asdict(finding), "notes": notes})
    else:
        took = f" (after {finding.seconds:.2f} s)" if finding.seconds is not None else ""
        show(finding.problem or "The CRC check was answered correctly", took, ".")
        for note in notes:
            say(f"Note: {note}.")
    return Exit.FAILURE if finding.problem else Exit.DONE


@attrs.frozen(kw_only=True)
class _Finding:
    """The result of a CRC check; without a problem, the answer is right."""

    problem: str | None
    status: int | None = None
    seconds: float | None = None


async def _examine(url: str, key: SigningKey) -> _Finding:
    clock, token = SystemClock(), f"{secrets.token_urlsafe(24)}="  # its last character must be quoted in a query
    transport = Transport.open(user_agent=f"svc-async/{__version__}", clock=clock, timeouts=Timeouts(total=_SECONDS))
    began = clock.monotonic()
    try:
        answer = await _ask(transport, url, token)
        seconds = clock.monotonic() - began
        location = answer.headers.get("location", "")
        problem = diagnose_crc(key, token, status=answer.status, body=answer.body, url=url, location=location)
        if problem is None and await _signs_anything(transport, url, key):
            problem = "it signs any crc_token, even a forged event; it must refuse tokens with other characters"
        return _Finding(problem=problem, status=answer.status, seconds=seconds)
    except SvcError as error:
        advice = _NO_ANSWER if isinstance(error, TransportError) else ""
        return _Finding(problem=f"{error}{advice}", seconds=clock.monotonic() - began)
    finally:
        await transport.close()


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


def _list_what_the_service_refuses(url: str) -> list[str]:
    parts = urlsplit(url)
    if is_loopback(parts.hostname or ""):
        return []  # no URL to register: the receiver is behind a proxy or a tunnel, or beside a sandbox
    https = [] if parts.scheme == "https" else ["the service accepts https:// only"]
    return https if parts.port is None else [*https, "the service accepts no port"]


@app.command
def listen(
    *,
    host: str = "127.0.0.1",
    port: int = 9000,
    save_dir: Path | None = None,
    profile: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Receive deliveries, answer CRC checks and print events, until interrupted (Ctrl-C, exit code 0).

    The app's consumer secret is taken from SVC_CONSUMER_SECRET or a profile.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        save_dir: Write each delivery into this folder, byte for byte as it was signed.
        profile: Use the secret of this profile, not SVC_CONSUMER_SECRET.
        as_json: Print only JSON, one object a line: first the address, then the events.
    """
    check_port(port)
    key, dialect = find_signing_key(profile)
    if save_dir:
        try:
            create_folder(save_dir)
        except OSError as error:
            raise InvalidArgument("--save-dir", f"cannot be {save_dir}: {error.strerror}") from None
    receiver = WebhookReceiver(keys=[key], dialect=dialect, workers=1, on_error=_print_failure)
    printer = _Printer(folder=save_dir, as_json=as_json)
    receiver.on("*")(printer)

    async def listen_until_stopped() -> None:
        async with serve(receiver, host=host, port=port, path="/{path:.*}") as taken:
            url = f"http://{host}:{taken}/"
            if as_json:
                show_item({"listening": url})
            else:
                say(f"Listening on {url} and every path below. Ctrl-C stops it.")
            await printer.closed_pipe.wait()
            raise BrokenPipeError

    try:
        run_coroutine(listen_until_stopped())
    except BrokenPipeError:
        raise
    except Interrupted:
        pass
    except OSError as error:
        raise InvalidArgument("webhook", describe_listening(error, host, port)) from None
    if not as_json:
        stats = receiver.stats
        refused = ", ".join(f"{count} {reason}" for reason, count in stats.rejected.items())
        say(f"Events: {stats.handled}. CRC checks: {stats.crc_answered}. Refused: {refused or 'none'}.")
    return Exit.DONE


@app.command
def sign(file: Path, /, *, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """Print the value of the header x-svc-webhooks-signature of a delivery with this body.

    Args:
        file: The body, byte for byte.
        profile: Use the secret of this profile, not SVC_CONSUMER_SECRET.
        as_json: Print only JSON.
    """
    key, _ = find_signing_key(profile)
    signature = sign_body(key, _read(file))
    if as_json:
        show_json({"header": key.header, "signature": signature})
    else:
        show(signature)
    return Exit.DONE


@app.command
def verify(file: Path, /, *, signature: str, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """Verify the signature of a body, or explain what is wrong with it (exit code 1).

    Args:
        file: The body, byte for byte.
        signature: The value of the signature header.
        profile: Use the secret of this profile, not SVC_CONSUMER_SECRET.
        as_json: Print only JSON.
    """
    key, _ = find_signing_key(profile)
    problem = diagnose_signature(key, _read(file), signature)
    problem = problem and f"{problem}; it was compared with {key.key_id}"
    if as_json:
        show_json({"ok": problem is None, "problem": problem})
    else:
        show(f"The signature {problem or 'is good'}.")
    return Exit.FAILURE if problem else Exit.DONE


@attrs.frozen(kw_only=True)
class _Printer:
    """Prints events and saves their deliveries, until the reader closes the pipe."""

    folder: Path | None
    as_json: bool
    closed_pipe: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    def __call__(self, event: Event, context: DeliveryContext) -> None:
        if self.folder:
            name = hashlib.sha256(context.body).hexdigest()[:16]
            write_private(self.folder / f"{name}.json", context.body)
        try:
            if self.as_json:
                show_item(_describe(event, context))
            else:
                parts = (f"{context.received_at:%H:%M:%S}", event.event_type, event.key)
                line = "  ".join(map(clean, (*parts, "replayed") if event.replayed else parts))
                sys.stdout.write(f"{line}\n")  # not with rich, which exits when the pipe is closed
                sys.stdout.flush()
        except BrokenPipeError:
            self.closed_pipe.set()


def _describe(event: Event, context: DeliveryContext) -> Mapping[str, object]:
    return {
        "event_type": str(event.event_type),
        "key": event.key,
        "replayed": event.replayed,
        "received_at": context.received_at.isoformat(),
        "event": event.raw,
    }


def _print_failure(_: Event | None, error: BaseException) -> None:
    reason = error.strerror if isinstance(error, OSError) else None
    print_error(f"a delivery could not be saved: {reason or type(error).__name__}")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidArgument("FILE", f"{file} cannot be read: {error.strerror}") from None
