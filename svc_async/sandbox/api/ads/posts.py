"""Posts made on behalf of an advertiser (POST-01 to POST-14)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from svc_async.sandbox.api.ads.common import find_upload, list_owned
from svc_async.sandbox.refusal import invalid, missing, refuse
from svc_async.sandbox.server.decoding import boolean, csv, long, text
from svc_async.sandbox.server.operations import Answer, Call, Operation, not_found
from svc_async.sandbox.state.store import Row

__all__ = ["OPERATIONS"]

_KIND = "posts"
_PATH = "/12/accounts/{account_id}/post"
_NAME_PATH = "/12/accounts/{account_id}/posts/{post_id}/name"
_AT_MOST: Mapping[str, int] = {"IMAGE": 4, "GIF": 1, "VIDEO": 1}
_CARDS = ("cards", "poll_cards", "video_conversation_cards")
_DIGITS = 36
_PAID_PARTNERSHIPS = datetime(2026, 6, 3, tzinfo=UTC)
"""When `paid_partnership` became a parameter (VER-05)."""  # Unspecified: of which call (CON-23)


def _create(call: Call) -> Answer:
    params, sandbox = call.params, call.sandbox
    if "paid_partnership" in call.sent and call.now < _PAID_PARTNERSHIPS:
        refuse(invalid("VER-05", "is not a parameter of this call yet", "paid_partnership"))
    if params["text"] is None and params["media_keys"] is None:
        refuse(missing("POST-02", "text"))
    if not params["nullcast"] and str(params["as_user_id"]) != call.user:
        refuse(invalid("POST-06b", "is false only for the authenticated user", "nullcast"))
    media = _find_media(call, params["media_keys"] or ())
    _check_card(call)
    number = int(sandbox.store.ids.next("post", 12), _DIGITS)
    said = params["text"] or ""
    record = {
        "id": number,
        "id_str": str(number),
        # Unspecified: that `compat` is the default, and that the mode decides between two names
        # (UNS-post-mode-default).
        "full_text" if params["post_mode"] == "extended" else "text": said,
        "name": params["name"],
        "card_uri": params["card_uri"],
        "entities": {"media": [_show_media(call, upload) for upload in media]},
        "user": _show_user(call),
        "nullcast": params["nullcast"],
        "tweet_type": "PUBLISHED",
        "scheduled_at": None,
        # Unspecified: the names of the usual counters and flags.
        "reply_count": 0,
        "favorite_count": 0,
        "favorited": False,
        "_conversation_settings": params["conversation_settings"],
        "_paid_partnership": params["paid_partnership"],
    }
    library = sandbox.store["media_library"]
    for upload in media:
        if (kept := library.get(upload.id, owner=call.account)) is not None:
            library.change(kept, posted=True)
    row = sandbox.store[_KIND].add(call.account, record)
    if not params["nullcast"]:  # ASM-136
        payload = {"id": row.id, "text": said, "edit_history_post_ids": [row.id]}
        event = sandbox.channels.events.create("post.create", user_id=str(params["as_user_id"]), payload=payload)
        sandbox.channels.publish(event)
    return Answer(_show(row))


def _find_media(call: Call, media_keys: Sequence[str]) -> list[Row]:
    """Find the media: up to 4 images, or 1 GIF, or 1 video (POST-03)."""
    media = [find_upload(call, key, "media_keys") for key in media_keys]
    # A GIF or a video must be the only medium.
    if any(len(media) > _AT_MOST[upload.fields["media_type"]] for upload in media):
        refuse(invalid("POST-03", "takes up to 4 images, or 1 GIF, or 1 video", "media_keys"))
    return media


def _check_card(call: Call) -> None:
    """Check that `card_uri` names a card of the account, of any kind (CARD-14)."""
    # Unspecified: that the card must exist (ASM-136).
    uri = call.params["card_uri"]
    if uri is None:
        return
    if not any(row.fields["card_uri"] == uri for kind in _CARDS for row in list_owned(call, kind)):
        raise not_found("card_uri")


def _show_media(call: Call, upload: Row) -> dict[str, Any]:
    """Return a medium; a video has a title and a description only if the post has them (ML-07)."""
    entity = {"media_key": upload.id, "type": upload.fields["media_type"]}
    if upload.fields["media_type"] != "VIDEO":
        return entity
    shown = {
        "title": call.params["video_title"],
        "description": call.params["video_description"],
        "cta": call.params["video_cta"],
        "cta_value": call.params["video_cta_value"],
    }
    # Unspecified: where a post shows them.
    return entity | {name: value for name, value in shown.items() if value is not None}


def _show_user(call: Call) -> dict[str, Any]:
    """Return the advertiser; only the id if `trim_user` is true (POST-07)."""
    user_id: int = call.params["as_user_id"]
    trimmed = {"id": user_id, "id_str": str(user_id)}
    user = call.sandbox.store["users"].get(str(user_id))
    # Unspecified: the users that may be posted for; here all.
    screen_name = f"user{user_id}" if user is None else user.fields["screen_name"]
    return trimmed if call.params["trim_user"] else {**trimmed, "screen_name": screen_name}


def _show(row: Row) -> dict[str, Any]:
    """Return the public fields of a post, without `updated_at` and `deleted` (CON-18)."""
    return row.show(without=("updated_at", "deleted"))


def _rename(call: Call) -> Answer:
    row = call.find(_KIND, "post_id")
    return Answer(_show(call.sandbox.store[_KIND].change(row, **call.sent)))


OPERATIONS = (
    Operation(
        id="posts.create",
        method="POST",
        path=_PATH,
        handler=_create,
        query=(
            long("as_user_id", required=True, rule="POST-01"),
            text("text", rule="POST-02"),
            text("card_uri", rule="POST-12"),
            text(
                "conversation_settings",
                enum=("EVERYONE", "FOLLOWING", "MENTIONED_USERS"),
                default="EVERYONE",
                rule="POST-04",
            ),
            csv("media_keys", rule="POST-03"),
            text("name", max_length=80, rule="POST-05"),
            boolean("nullcast", default=True, rule="POST-06"),
            boolean("trim_user", default=False, rule="POST-07"),
            text("post_mode", enum=("compat", "extended"), rule="POST-08"),
            text("video_cta", enum=("VISIT_SITE", "WATCH_NOW"), rule="POST-09"),
            text("video_cta_value", rule="POST-09"),
            text("video_description", max_length=200, rule="POST-10"),
            text("video_title", max_length=70, rule="POST-10"),
            boolean("paid_partnership", rule="VER-05"),
        ),
        limit="writes",
        rule="POST-14",
    ),
    Operation(
        id="posts.update_name",
        method="PUT",
        path=_NAME_PATH,
        handler=_rename,
        query=(text("name", max_length=80, clearable=True, rule="POST-05"),),
        limit="writes",
        rule="POST-11",
    ),
)
