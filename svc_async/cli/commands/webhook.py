"""`svc-async webhook`: register, receive and check webhooks."""

import asyncio
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
from cyclopts import App

from svc_async.cli.commands.register import register
from svc_async.cli.commands.webhook_check import check, name_secret
from svc_async.cli.exit_codes import Exit, Interrupted
from svc_async.cli.options import JsonFlag, check_port, describe_listening
from svc_async.cli.output.console import print_error, say, show, show_item, show_json
from svc_async.cli.sessions import find_signing_key
from svc_async.cli.signals import run_until_stopped
from svc_async.errors import InvalidArgument
from svc_async.events.models import Event
from svc_async.printable import clean
from svc_async.private_files import create_folder, write_private
from svc_async.webhooks.dispatch import DeliveryContext
from svc_async.webhooks.receiver import WebhookReceiver, serve
from svc_async.webhooks.stats import Stats
from svc_async.webhooks.verification import diagnose_signature
from svc_async.wire.hmac_sha256 import sign as sign_body

__all__ = ["app"]

app = App(name="webhook")
app.command(register)
app.command(check)


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
    key = find_signing_key(profile)
    if save_dir:
        _make_folder(save_dir)
    receiver = WebhookReceiver(keys=[key], workers=1, on_error=_print_failure)
    printer = _Printer(folder=save_dir, as_json=as_json)
    receiver.on("*")(printer)
    try:
        asyncio.run(run_until_stopped(_listen(receiver, printer, host, port)))
    except BrokenPipeError:
        raise
    except Interrupted:
        pass
    except OSError as error:
        raise InvalidArgument("webhook", describe_listening(error, host, port)) from None
    if not as_json:
        say(_summarize(receiver.stats))
    return Exit.DONE


@app.command
def sign(file: Path, /, *, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """Print the value of the header x-svc-webhooks-signature of a delivery with this body.

    Args:
        file: The body, byte for byte.
        profile: Use the secret of this profile, not SVC_CONSUMER_SECRET.
        as_json: Print only JSON.
    """
    key = find_signing_key(profile)
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
    key = find_signing_key(profile)
    problem = name_secret(diagnose_signature(key, _read(file), signature), key)
    if as_json:
        show_json({"ok": problem is None, "problem": problem})
    else:
        show(f"The signature {problem or 'is good'}.")
    return Exit.FAILURE if problem else Exit.DONE


async def _listen(receiver: WebhookReceiver, printer: "_Printer", host: str, port: int) -> None:
    async with serve(receiver, host=host, port=port, path="/{path:.*}") as taken:
        url = f"http://{host}:{taken}/"
        if printer.as_json:
            show_item({"listening": url})
        else:
            say(f"Listening on {url} and every path below. Ctrl-C stops it.")
        await printer.closed_pipe.wait()
        raise BrokenPipeError


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
                _print_line(_write_line(event, context))
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


def _write_line(event: Event, context: DeliveryContext) -> str:
    parts = (f"{context.received_at:%H:%M:%S}", event.event_type, event.key, *(["replayed"] if event.replayed else []))
    return "  ".join(map(clean, parts))


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # not with rich, which exits when the pipe is closed
    sys.stdout.flush()


def _print_failure(_: Event | None, error: BaseException) -> None:
    reason = error.strerror if isinstance(error, OSError) else None
    print_error(f"a delivery could not be saved: {reason or type(error).__name__}")


def _make_folder(folder: Path) -> None:
    try:
        create_folder(folder)
    except OSError as error:
        raise InvalidArgument("--save-dir", f"cannot be {folder}: {error.strerror}") from None


def _summarize(stats: Stats) -> str:
    refused = ", ".join(f"{count} {reason}" for reason, count in stats.rejected.items())
    return f"Events: {stats.handled}. CRC checks: {stats.crc_answered}. Refused: {refused or 'none'}."


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidArgument("FILE", f"{file} cannot be read: {error.strerror}") from None
