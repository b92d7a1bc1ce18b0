"""Encodes intents and positions as blobs."""

from array import array
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
import msgspec

from svc_async.batch.ledger import Intent, LaneState
from svc_async.batch.packing.batch import Layout
from svc_async.batch.packing.positions import PlainRun, Positions

__all__ = ["decode_intent", "decode_positions", "encode_intent", "encode_positions"]

_MOST_POSITIONS = 1 << 23
"""Of one record: many times those of a request."""
_positions = msgspec.msgpack.Decoder(list[PlainRun])


def encode_positions(positions: Sequence[int]) -> bytes:
    """Return positions as a blob."""
    packed = positions if isinstance(positions, Positions) else Positions.pack(positions)
    return msgspec.msgpack.encode(packed.to_plain())


def decode_positions(blob: bytes) -> Positions:
    """Return the positions of a blob."""
    return Positions.from_plain(_positions.decode(blob), most=_MOST_POSITIONS)


def encode_intent(intent: Intent) -> bytes:
    """Return an intent as a blob."""
    return msgspec.msgpack.encode(attrs.asdict(intent, value_serializer=_encode_value))


def decode_intent(blob: bytes) -> Intent:
    """Return the intent of a blob."""
    fields = msgspec.msgpack.decode(blob)
    after = fields["after"]
    unsettled = decode_positions(after["unsettled"])
    return Intent(
        sender=fields["sender"],
        after=LaneState(lanes=after["lanes"], settled_up_to=after["settled_up_to"], unsettled=unsettled),
        layout=msgspec.convert(fields["layout"], Layout),
        positions=decode_positions(fields["positions"]),
        superseded=array("q", decode_positions(fields["superseded"])),
        pinned=datetime.fromisoformat(fields["pinned"]),
        sent_at=fields["sent_at"],
        digest=fields["digest"],
    )


def _encode_value(_: object, __: object, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return encode_positions(value) if isinstance(value, array | Positions) else value
