"""Video conversation cards (VCC-01 to VCC-07)."""

from collections.abc import Mapping
from typing import Any

from svc_async.sandbox.api.ads.common import (
    Records,
    find_library_media,
    find_upload,
    get_library_url,
    list_cards,
    make_card_ids,
    refuse_other_types,
)
from svc_async.sandbox.refusal import Finding, invalid, missing, refuse
from svc_async.sandbox.server.decoding import Param, long, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.media import has_ratio

__all__ = ["OPERATIONS"]

_CARDS = Records(
    kind="video_conversation_cards",
    path="/12/accounts/{account_id}/cards/video_conversation",
    key="card_id",
    sortable=("id", "name", "created_at", "updated_at"),
)
_SHOWN_AS_SENT = (
    "name",
    "title",
    "first_cta",
    "first_cta_post",
    "second_cta",
    "second_cta_post",
    "third_cta",
    "third_cta_post",
    "fourth_cta",
    "fourth_cta_post",
    "thank_you_text",
    "thank_you_url",
    "media_key",
)
# Unspecified: that the key of an unlocked video is not shown either (UNS-unlocked-video-read).
_UNLOCKED = {"unlocked_image_media_key": "IMAGE", "unlocked_video_media_key": "VIDEO"}
_POSTS_OF = (("VCC-02", "second"), ("VCC-02b", "third"), ("VCC-02c", "fourth"))
_VIDEO_RATIO = 16.0, 9.0


def _create(call: Call) -> Answer:
    refuse(*_check_missing(call.params))
    record = {
        "card_type": "VIDEO_CONVERSATION",
        **dict.fromkeys(_SHOWN_AS_SENT),
        **_read_content(call, call.sent),
    }
    return _CARDS.add(call, {**make_card_ids(call.sandbox.store), **record})


def _update(call: Call) -> Answer:
    row = _CARDS.find(call)
    # Unspecified: that a card keeps the rules of its creation (CON-08).
    refuse(*_check_missing({**row.fields, **call.sent}))
    poster = {"media_key": row.fields["media_key"]} if "poster_media_key" in call.sent else {}
    return _CARDS.change(call, row, _read_content(call, {**poster, **call.sent}))


def _check_missing(card: Mapping[str, Any]) -> list[Finding]:
    """Return the findings about fields that are required because of other fields."""
    found: list[Finding] = []
    if card["title"] is None and card["second_cta"] is None:
        found += [missing("VCC-01c", "title"), missing("VCC-01d", "second_cta")]
    for rule, which in _POSTS_OF:
        if card[f"{which}_cta"] is not None and card[f"{which}_cta_post"] is None:
            found.append(missing(rule, f"{which}_cta_post"))
    return found


def _read_content(call: Call, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that follow from the parameters."""
    for name, media_type in _UNLOCKED.items():
        if sent.get(name) is not None:
            refuse_other_types(find_upload(call, sent[name], name), (media_type,), name, rule="ASM-95")
    hidden = {f"_{name}": sent[name] for name in _UNLOCKED if name in sent}
    content = {name: sent[name] for name in _SHOWN_AS_SENT if name in sent} | hidden
    if "media_key" in sent:
        content |= _make_video(call, sent["media_key"], sent.get("poster_media_key"))
    return content


def _make_video(call: Call, media_key: str, poster: int | None) -> dict[str, Any]:
    """Return what a card shows of its video; the poster is the first frame unless an image is given (VCC-03b)."""
    upload = find_library_media(call, media_key, "media_key")
    refuse_other_types(upload, ("VIDEO",), "media_key", rule="VCC-03")
    if not has_ratio(upload, *_VIDEO_RATIO):
        refuse(invalid("VCC-03", "must name a video with a ratio of 16:9", "media_key"))
    poster_url = get_library_url(call, media_key, "poster_media_url")
    if poster is not None:
        # Unspecified: what a long names where media keys are strings (CON-16); here the number in the key of an image.
        poster_url = f"https://media.svc.example/{find_upload(call, f'3_{poster}', 'poster_media_key').id}.jpg"
    return {
        "media_url": get_library_url(call, media_key, "media_url"),
        "video_owner_id": call.user,
        "video_height": str(upload.fields["height"]),
        "video_width": str(upload.fields["width"]),
        "poster_media_url": poster_url,
    }


def _declare_params(*, creates: bool) -> tuple[Param, ...]:
    """Declare the parameters; in an update all are optional, and some can be unset (VCC-05)."""
    unset = not creates
    # Unspecified: whether the hash sign counts in the other three (UNS-cta-hash-sign); here it does.
    return (
        text("first_cta", required=creates, max_length=20, uncounted="#", rule="VCC-01"),
        text("first_cta_post", required=creates, rule="VCC-01f"),
        text("media_key", required=creates, rule="VCC-01f"),
        text("name", required=creates, rule="VCC-01f"),
        text("thank_you_text", required=creates, max_length=23, rule="VCC-01b"),
        text("title", max_length=23, clearable=unset, rule="VCC-01c"),
        text("second_cta", max_length=20, clearable=unset, rule="VCC-01d"),
        text("second_cta_post", clearable=unset, rule="VCC-02"),
        long("poster_media_key", rule="VCC-03b"),
        text("third_cta", max_length=20, clearable=unset, rule="VCC-01e"),
        text("fourth_cta", max_length=20, clearable=unset, rule="VCC-01e"),
        text("third_cta_post", clearable=unset, rule="VCC-02b"),
        text("fourth_cta_post", clearable=unset, rule="VCC-02c"),
        text("thank_you_url", clearable=unset, rule="VCC-05"),
        text("unlocked_image_media_key", clearable=unset, rule="VCC-04"),
        text("unlocked_video_media_key", clearable=unset, rule="VCC-05"),
    )


OPERATIONS = (
    list_cards(_CARDS, rule="VCC-07"),
    _CARDS.make_get(rule="VCC-06"),
    Operation(
        id="video_conversation_cards.create",
        method="POST",
        path=_CARDS.path,
        handler=_create,
        query=_declare_params(creates=True),
        limit="writes",
        rule="VCC-01f",
    ),
    Operation(
        id="video_conversation_cards.update",
        method="PUT",
        path=_CARDS.one,
        handler=_update,
        query=_declare_params(creates=False),
        limit="writes",
        rule="VCC-05",
    ),
)
