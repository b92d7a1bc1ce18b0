"""Lets something happen on a running sandbox."""

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from svc_async.cli.console import stdout
from svc_async.cli.exit_codes import Exit
from svc_async.errors import InvalidArgument

__all__ = ["run"]

_PATH = "/_sandbox/events"
_PATIENCE = 60.0
_START = "`svc-async sandbox` starts one at http://127.0.0.1:8765"


def run(event_type: str, *, user: str | None, changes: Sequence[str], url: str, as_json: bool) -> int:
    """Trigger the event and give the exit code."""
    wanted: dict[str, Any] = {"event_type": event_type, "set": dict(map(_change, changes))}
    if user is not None:
        wanted["user_id"] = user
    happened = _asked(_address(url), wanted)
    if as_json:
        stdout().print(json.dumps(happened))
    else:
        stdout().print(f"{happened['event_type']} happened to user {happened['user_id']}{_told(happened)}.")
    return Exit.DONE


def _told(happened: Mapping[str, Any]) -> str:
    """Say how many webhooks it goes to, to whoever waits for it in vain."""
    count = happened["deliveries"]
    return f"; it goes to {count} webhook{'s' * (count != 1)}" if count else "; no webhook is subscribed to it"


def _change(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise InvalidArgument("--set", "is written PATH=VALUE, such as --set text=Hello")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def _address(url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        is_good = parts.scheme == "http" and bool(parts.hostname) and parts.path in ("", "/") and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidArgument("--url", "must be the address of a sandbox, such as http://127.0.0.1:8765")
    return parts


def _asked(address: SplitResult, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_PATIENCE)
    try:
        connection.request("POST", _PATH, json.dumps(wanted), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        raise InvalidArgument("--url", f"names no sandbox that answers; {_START}") from None
    finally:
        connection.close()
    return _opened(status, content)


def _opened(status: int, content: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise InvalidArgument("--url", f"is no sandbox: it answered HTTP {status} without JSON")
    if status != http.client.OK:
        raise InvalidArgument("trigger", f"was refused: {answer.get('detail', f'HTTP {status}')}")
    return answer
