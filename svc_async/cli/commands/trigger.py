"""`svc-async trigger`: trigger an event on a running sandbox."""

import http.client
import json
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

import msgspec
from cyclopts import Parameter

from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import say, show, show_json
from svc_async.errors import InvalidArgument
from svc_async.printable import join_first
from svc_async.wire.envelope import NOT_JSON

__all__ = ["trigger"]

_PATH = "/_sandbox/events"
_TIMEOUT = 60.0
_DEFAULT_URL = "http://127.0.0.1:8765"
_LARGEST = 2**20 - 2**12
"""Bytes of a payload: the sandbox takes 1 MiB, with what is around it."""
_CHECK_AGAIN = "`svc-async webhook register URL` has it checked again"
_START = f"`svc-async sandbox` starts one at {_DEFAULT_URL}"


def trigger(
    event: str,
    /,
    *,
    user: str | None = None,
    payload: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    url: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Trigger an event on a running sandbox, which sends it to webhooks and streams.

    Args:
        event: The type of event, such as post.create, dm.received or profile.update.bio.
        user: The id of the user to whom it happens. [default: the first user of the sandbox]
        payload: A file with a JSON object, or - for stdin, that is merged into the event's payload and takes
            precedence. A type of event that is not documented needs one.
        changes: PATH=VALUE changes the event's payload, such as text=Hello or public_metrics.like_count=7. VALUE is
            parsed as JSON if it is valid JSON, else it is a string. Repeatable.
        url: Where the sandbox is. [default: SVC_BASE_URL if that is http://, else http://127.0.0.1:8765]
        as_json: Print only JSON, the payload included.
    """
    wanted: dict[str, Any] = {"event_type": event, "set": dict(map(_parse_change, changes or ()))}
    if user is not None:
        wanted["user_id"] = user
    if payload is not None:
        wanted["payload"] = _read_payload(payload)
    happened = _post(_parse_address(url or _find_sandbox()), wanted)
    if as_json:
        show_json(happened)
    else:
        show(f"{happened['event_type']} happened to user {happened['user_id']}{_describe_targets(happened)}.")
    return Exit.DONE


def _describe_targets(happened: Mapping[str, Any]) -> str:
    """Describe how many webhooks it is sent to, so that nobody waits for it in vain."""
    invalid = happened.get("dropped", 0)
    valid = happened["deliveries"] - invalid
    if valid:
        rest = f", and not to {invalid} that {'is' if invalid == 1 else 'are'} invalid" if invalid else ""
        return f"; it goes to {valid} webhook{'s' * (valid != 1)}{rest}"
    if invalid:
        those = "the one that is subscribed is" if invalid == 1 else f"the {invalid} that are subscribed are"
        return f"; it goes to no webhook: {those} invalid, and {_CHECK_AGAIN}"
    others = happened.get("subscribed_users", ())
    if happened["user_id"] in others or not others:
        return "; no webhook is subscribed to it"
    return f"; no webhook is subscribed to it, but to that of user {join_first(others)} (--user)"


def _find_sandbox() -> str:
    """Return the URL in the variables that `svc-async sandbox` prints, or the one at which it listens by default."""
    url = os.environ.get("SVC_BASE_URL", "")
    if url.startswith("http://"):
        return url
    if url:
        say(f"SVC_BASE_URL is not that of a sandbox; using the one at {_DEFAULT_URL}.")
    return _DEFAULT_URL


def _read_payload(file: Path) -> Mapping[str, Any]:
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
    except OSError as error:
        raise InvalidArgument("--payload", f"{file} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise InvalidArgument("--payload", f"must have at most {_LARGEST:,} bytes")
    try:
        payload = msgspec.json.decode(content)
    except NOT_JSON:
        raise InvalidArgument("--payload", f"{file} is not JSON{_locate_error(content)}") from None
    if not isinstance(payload, dict):
        raise InvalidArgument("--payload", f'{file} must contain a JSON object, such as {{"text": "Hello"}}')
    return payload


def _locate_error(content: bytes) -> str:
    """Return where the syntax of a text that is not JSON is wrong; never a part of it."""
    try:
        json.loads(content.decode())
    except json.JSONDecodeError as error:
        return f": the syntax is wrong at line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError:
        return ": it is not encoded in UTF-8"
    except RecursionError:
        return ": it is nested too deeply"
    except ValueError:  # a number of thousands of digits
        return ""
    return ": numbers cannot be NaN or Infinity"


def _parse_change(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise InvalidArgument("--set", "is written PATH=VALUE, such as --set text=Hello")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def _parse_address(url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        is_good = parts.scheme == "http" and bool(parts.hostname) and parts.path in ("", "/") and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidArgument("--url", f"must be the address of a sandbox, such as {_DEFAULT_URL}")
    return parts


def _post(address: SplitResult, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT)
    try:
        connection.request("POST", _PATH, json.dumps(wanted), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        raise InvalidArgument("--url", f"names no sandbox that answers; {_START}") from None
    finally:
        connection.close()
    try:
        told = json.loads(content)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise InvalidArgument("--url", f"is no sandbox: it answered HTTP {status} without JSON")
    if status != http.client.OK:
        raise InvalidArgument("trigger", f"was refused: {told.get('detail', f'HTTP {status}')}")
    return told
