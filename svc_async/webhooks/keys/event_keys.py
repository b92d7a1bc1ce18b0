"""The keys under which events are claimed and stored: an app cannot claim the events of another one.

The events of the receiver's first app keep the keys that the service gave them, so that a change of its secret, or
another app beside it, makes no event new. Those of another app begin with its name between two separators. A key of the
first app that begins with a separator, as if to claim for another app, is marked in the same way with an empty name.
"""

from collections.abc import Mapping, Sequence

from svc_async.errors import InvalidArgument
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = ["build_event_key", "name_keys", "parse_event_key"]

_SEPARATOR = "\x1f"  # the name of an app contains none


def build_event_key(app: str, key: str) -> str:
    """Return the key of an event.

    Args:
        app: the app that signed it; empty for the first one.
        key: the key that the service gave it.
    """
    return f"{_SEPARATOR}{app}{_SEPARATOR}{key}" if app or key.startswith(_SEPARATOR) else key


def parse_event_key(key: str) -> str:
    """Return the key that the service gave an event."""
    return key.split(_SEPARATOR, 2)[2] if key.startswith(_SEPARATOR) else key


def name_keys(keys: Sequence[SigningKey]) -> Mapping[SigningKey, tuple[str, str]]:
    """Return the id of each signing key and the app that it stands for, empty for the first.

    Raises:
        InvalidArgument: there are several keys, and one lacks its app or has the id of another.
    """
    if len(keys) > 1 and not all(key.app for key in keys):
        raise InvalidArgument(
            "keys",
            "must each name their app, since there are several: SigningKey(secret, app=NAME), with the same name for a "
            "former secret",
        )
    ids = [key.key_id or f"key-{position}" for position, key in enumerate(keys, 1)]
    if len({*ids}) < len(ids):
        raise InvalidArgument("keys", "must not have the same key_id")
    first = keys[0].app
    return {key: (key_id, "" if key.app == first else str(key.app)) for key, key_id in zip(keys, ids, strict=True)}
