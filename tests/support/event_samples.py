"""Bodies of events in the form that the service may send."""

import json
from typing import Any

PAYLOADS: dict[str, dict[str, Any]] = {
    "post.create": {"id": "11", "text": "good morning", "author_id": "7", "created_at": "2026-06-10T12:00:00.000Z"},
    "post.delete": {"id": "11", "author_id": "7"},
    "dm.received": {"direct_message_events": [{"id": "5", "text": "hush"}], "users": {"7": {"name": "Ann"}}},
    "dm.sent": {"direct_message_events": [{"id": "5", "text": "hush"}], "users": {"7": {"name": "Ann"}}},
    "dm.read": {"direct_message_events": [{"id": "5"}]},
    "dm.indicate_typing": {"direct_message_events": [{"sender_id": "7"}]},
    "spaces.start": {"user": {"data": {"id": "7"}}, "broadcast_id": "1B", "event_type": "spaces.start"},
    "spaces.end": {"user": {"data": {"id": "7"}}, "broadcast_id": "1B", "event_type": "spaces.end"},
    "profile.update.bio": {"before": "books", "after": "boats"},
    "profile.update.verified": {"before": False, "after": True},
    "profile.update.affiliate": {"before": None, "after": {"id": "9"}},
    "profile.update.screenname": {"before": "ann", "after": "anna"},
}


def activity(event_type: str, *, uuid: str | None = "-42", user_id: str = "7", **more: Any) -> dict[str, Any]:
    """Return an event in the form of `data`."""
    return {
        **({"event_uuid": uuid} if uuid else {}),
        "event_type": event_type,
        "filter": {"user_id": user_id},
        "payload": PAYLOADS.get(event_type, {"some": "thing"}),
        **more,
    }


def encode_body(data: Any, **more: Any) -> bytes:
    """Return the body of a delivery."""
    return json.dumps({"data": data, **more}).encode()
