"""Poll cards, which cannot be changed and are removed when deleted (POLL-01 to POLL-09)."""

from datetime import timedelta
from typing import Any

from svc_async.sandbox.api.ads.common import (
    Records,
    find_library_media,
    get_library_url,
    list_cards,
    make_card_ids,
    refuse_other_types,
)
from svc_async.sandbox.api.ads.features import get_features
from svc_async.sandbox.refusal import Basis, Problem, Refusal, invalid, missing, refuse
from svc_async.sandbox.server.decoding import integer, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.media import has_ratio
from svc_async.sandbox.state.store import format_time

__all__ = ["OPERATIONS"]

_CARDS = Records(
    kind="poll_cards",
    path="/12/accounts/{account_id}/cards/poll",
    key="card_id",
    sortable=("id", "name", "card_type", "start_time", "end_time", "created_at", "updated_at"),
)
_FEATURE = "PROMOTED_MEDIA_POLLS"
_CHOICES = ("first_choice", "second_choice", "third_choice", "fourth_choice")
_CHOICE = 25
_IMAGE_WIDTH = 800
_IMAGE_RATIO = 1.91, 1.0


def _create(call: Call) -> Answer:
    params = call.params
    if params["fourth_choice"] is not None and params["third_choice"] is None:
        refuse(missing("POLL-02c", "third_choice"))
    # Unspecified: that the last two choices are as long as the first two (ASM-133); a name's length has no bound.
    too_long = [choice for choice in ("third_choice", "fourth_choice") if len(params[choice] or "") > _CHOICE]
    refuse(*(invalid("ASM-133", f"takes up to {_CHOICE} characters", choice) for choice in too_long))
    minutes: int = params["duration_in_minutes"]
    record = {
        "name": params["name"],
        "card_type": "TEXT_POLLS",
        **{choice: params[choice] for choice in _CHOICES},
        "duration_in_minutes": str(minutes),  # the service writes a string (POLL-01b)
        "start_time": format_time(call.now),
        "end_time": format_time(call.now + timedelta(minutes=minutes)),
    }
    if params["media_key"] is not None:
        record |= _make_media(call, params["media_key"])
    return _CARDS.add(call, {**make_card_ids(call.sandbox.store), **record})


def _make_media(call: Call, media_key: str) -> dict[str, Any]:
    """Return what a poll shows of its medium, without the key (POLL-04b); for an image, only the poster (POLL-08)."""
    if _FEATURE not in get_features(call.sandbox.store, call.account):
        # Unspecified: status and code (ASM-22).
        problem = Problem("FEATURE_NOT_AVAILABLE", f"the account has no feature {_FEATURE}", "media_key")
        raise Refusal(400, problem, rule="POLL-04c", basis=Basis.SPEC)
    upload = find_library_media(call, media_key, "media_key")
    refuse_other_types(upload, ("IMAGE", "VIDEO"), "media_key", rule="POLL-04")
    facts = upload.fields
    is_video = facts["media_type"] == "VIDEO"
    if not is_video and (facts["width"] < _IMAGE_WIDTH or not has_ratio(upload, *_IMAGE_RATIO)):
        message = f"must name an image of at least {_IMAGE_WIDTH} px in width and a ratio of 1.91:1"
        refuse(invalid("POLL-04", message, "media_key"))
    url = get_library_url(call, upload.id, "media_url")
    poster = get_library_url(call, upload.id, "poster_media_url")
    return {
        # Unspecified: the type of a poll with an image (UNS-poll-image-type).
        "card_type": "VIDEO_POLLS" if is_video else "TEXT_POLLS",
        "video_url": url if is_video else None,
        "video_hls_url": f"{url}.m3u8" if is_video else None,
        "video_height": str(facts["height"]) if is_video else None,
        "video_width": str(facts["width"]) if is_video else None,
        "video_poster_url": poster if is_video else url,
        "video_poster_height": str(facts["height"]),
        "video_poster_width": str(facts["width"]),
        "content_duration_seconds": str(facts["duration"] // 1000) if is_video else None,
    }


def _delete(call: Call) -> Answer:
    """Remove the card."""
    row = _CARDS.find(call)
    call.sandbox.store[_CARDS.kind].remove(row)
    # Unspecified: the answer (ASM-21).
    return Answer({**row.show(), "deleted": True})


OPERATIONS = (
    list_cards(_CARDS, rule="POLL-09"),
    _CARDS.make_get(rule="POLL-07"),
    Operation(
        id="poll_cards.create",
        method="POST",
        path=_CARDS.path,
        handler=_create,
        query=(
            integer("duration_in_minutes", minimum=5, maximum=10080, required=True, rule="POLL-01"),
            text("first_choice", required=True, max_length=_CHOICE, rule="POLL-02"),
            text("second_choice", required=True, max_length=_CHOICE, rule="POLL-02"),
            text("third_choice", rule="POLL-02b"),
            text("fourth_choice", rule="POLL-02c"),
            text("name", required=True, rule="POLL-03"),
            text("media_key", rule="POLL-04"),
        ),
        limit="writes",
        rule="POLL-01",
    ),
    Operation(
        id="poll_cards.delete",
        method="DELETE",
        path=_CARDS.one,
        handler=_delete,
        limit="writes",
        rule="POLL-06",
    ),
)
