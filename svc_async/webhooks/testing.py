"""Signed requests for tests of handlers: `await receiver.handle(*build_delivery(event, key))`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from svc_async.value_rules import instance_of, or_none
from svc_async.wire.hmac_sha256 import SigningKey, sign
from svc_async.wire.writing import to_json

__all__ = ["SignedRequest", "build_crc", "build_delivery"]

_EVENT = instance_of((Mapping, bytes), "a mapping, or the bytes of a body")
_KEY = instance_of(SigningKey, "a SigningKey")


class SignedRequest(NamedTuple):
    """The arguments of `WebhookReceiver.handle`."""

    method: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes


def build_delivery(event: Mapping[str, Any] | bytes, key: SigningKey) -> SignedRequest:
    """Build the delivery of an event.

    Args:
        event: the whole body, `{"data": {...}}` for one of the activity product, or its bytes.
        key: the key that signs it.
    """
    _KEY.check("key", key)
    _EVENT.check("event", event)
    body = event if isinstance(event, bytes) else to_json(event, name="event")
    headers = {"content-type": "application/json", key.header: sign(key, body)}
    return SignedRequest("POST", "", headers, body)


def build_crc(token: str = "token", *, key: SigningKey | None = None) -> SignedRequest:  # noqa: S107 - not a secret
    """Build a CRC check.

    Args:
        token: the token of the check; only letters, digits, `-` and `_`, which need no quoting.
        key: the key that signs the query, for receivers with `crc_signature="require"`.
    """
    or_none(_KEY).check("key", key)
    query = f"crc_token={token}"
    return SignedRequest("GET", query, {key.header: sign(key, query.encode())} if key else {}, b"")
