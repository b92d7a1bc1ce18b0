"""Encodes intents and positions as blobs."""

import zlib
from array import array
from datetime import datetime
from typing import Any

import attrs
import msgspec

from svc_async.batch.ledger import Intent, LaneState
from svc_async.batch.packing.positions import Positions

__all__ = ["decode_intent", "decode_positions", "encode_intent", "encode_positions"]


def encode_positions(positions: "array[int]") -> bytes:
    """Return positions as a compressed blob."""
    return zlib.compress(positions.tobytes(), 1)


def decode_positions(blob: bytes) -> "array[int]":
    """Return the positions of a blob."""
    positions = array("q")
    decompressor = zlib.decompressobj()
    positions.frombytes(decompressor.decompress(blob, _MAX_BYTES))
    if not decompressor.eof:
        raise ValueError("more positions than a job keeps")
    return positions


_MAX_BYTES = 67_108_864
_MOST_ROWS = _MAX_BYTES // 8


def encode_intent(intent: Intent) -> bytes:
    """Return an intent as a blob."""
    return msgspec.msgpack.encode(attrs.asdict(intent, value_serializer=_encode_value))


def decode_intent(blob: bytes) -> Intent:
    """Return the intent of a blob."""
    fields = msgspec.msgpack.decode(blob)
    after = fields["after"]
    return Intent(
        sender=fields["sender"],
        after=LaneState(
            lanes=after["lanes"], settled_up_to=after["settled_up_to"], unsettled=decode_positions(after["unsettled"])
        ),
        layout=[(per_operation, rows) for per_operation, rows in fields["layout"]],
        positions=Positions.from_plain(fields["positions"], most=_MOST_ROWS),
        superseded=decode_positions(fields["superseded"]),
        pinned=datetime.fromisoformat(fields["pinned"]),
        sent_at=fields["sent_at"],
        digest=fields["digest"],
    )


def _encode_value(_: object, __: object, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Positions):
        return value.to_plain()
    return encode_positions(value) if isinstance(value, array) else value
