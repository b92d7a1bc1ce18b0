"""The media library: uploads that an account keeps for reuse (ML-01 to ML-07)."""

import math
import re
from collections.abc import Mapping
from typing import Any

from svc_async.sandbox.api.ads.account_media import add_account_media
from svc_async.sandbox.api.ads.common import Records, find_upload, list_owned, refuse_other_types
from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import Param, integer, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.store import Row, Store

__all__ = ["OPERATIONS", "add_media"]

MEDIA_TYPES = ("GIF", "IMAGE", "VIDEO")
_MEDIA = Records(
    kind="media_library",
    path="/12/accounts/{account_id}/media_library",
    key="media_key",
    # Unspecified: the label of an unnamed medium (ASM-135).
    show=lambda row: {**row.show(), "name": row.fields["name"] or "Untitled media"},
)
_WORDS = ("name", "title", "file_name", "description")
_OF_VIDEOS = ("description", "poster_media_key", "title")
_ENDINGS = {"IMAGE": "jpg", "GIF": "gif", "VIDEO": "mp4"}
_STORED = "https://media.svc.example"


def add_media(store: Store, upload: Row, **fields: Any) -> Row:
    """Add an upload to the library; a promoted video is added to the account media too (AM-02)."""
    facts = upload.fields
    common = math.gcd(facts["width"], facts["height"])
    record = {
        "media_key": upload.id,
        "name": None,
        "file_name": facts["file_name"],
        "title": None,
        "description": None,
        "media_url": f"{_STORED}/{upload.id}.{_ENDINGS[facts['media_type']]}",
        "media_type": facts["media_type"],
        "media_category": facts["media_category"],
        "posted": False,
        "duration": facts["duration"],
        "aspect_ratio": f"{facts['width'] // common}:{facts['height'] // common}",
        **_make_poster(upload, None),
        # Unspecified: that a medium is processed at once (ASM-134).
        "media_status": "TRANSCODE_COMPLETED",
    }
    row = store[_MEDIA.kind].add(upload.owner, record | fields, key=upload.id)
    if row.fields["media_category"] == "PROMO_VIDEO":
        _, _, video_id = upload.id.partition("_")
        url = row.fields["media_url"]
        add_account_media(store, row.owner, creative_type="PREROLL", video_id=video_id, media_url=url)
    return row


def _make_poster(upload: Row, media_key: str | None) -> dict[str, str | None]:
    """Return the poster of a video, by default its first frame (ML-02c)."""
    if upload.fields["media_type"] != "VIDEO":
        return {"poster_media_key": None, "poster_media_url": None}
    # Unspecified: that the first frame has a key, and which.
    key = media_key or f"3_{upload.id.partition('_')[2]}01"
    return {"poster_media_key": key, "poster_media_url": f"{_STORED}/{key}.jpg"}


def _list(call: Call) -> list[Row]:
    wanted = _split_terms(call.params["q"] or "")
    return [
        row
        for row in list_owned(call, _MEDIA.kind)
        if call.params["media_type"] in (None, row.fields["media_type"])
        and wanted <= _split_terms(" ".join(row.fields[name] or "" for name in _WORDS))
    ]


def _split_terms(words: str) -> set[str]:
    # Unspecified: what a term is, and that all of them must occur.
    return set(re.findall(r"[^\W_]+", words.casefold()))


def _create(call: Call) -> Answer:
    upload = find_upload(call, call.params["media_key"], "media_key")
    if upload.fields["media_category"] is None:
        refuse(invalid("ML-02", "was uploaded without a category", "media_key"))
    if call.sandbox.store[_MEDIA.kind].get(upload.id) is not None:
        # Unspecified: the answer to adding a medium twice.
        refuse(invalid("ASM-95", "is in the library", "media_key"))
    return Answer(_MEDIA.show(add_media(call.sandbox.store, upload, **_read_fields(call, upload))))


def _update(call: Call) -> Answer:
    row = _MEDIA.find(call)
    return _MEDIA.change(call, row, _read_fields(call, find_upload(call, row.id, "media_key")))


def _read_fields(call: Call, upload: Row) -> dict[str, Any]:
    """Return the sent fields, if the medium may have them (ML-02d)."""
    sent: Mapping[str, Any] = call.sent
    if upload.fields["media_type"] != "VIDEO":
        refuse(*(invalid("ML-02d", "is for videos only", name) for name in _OF_VIDEOS if name in sent))
    if "poster_media_key" not in sent:
        return dict(sent)
    if sent["poster_media_key"] is not None:
        poster = find_upload(call, sent["poster_media_key"], "poster_media_key")
        refuse_other_types(poster, ("IMAGE",), "poster_media_key", rule="ASM-95")
    return {**sent, **_make_poster(upload, sent["poster_media_key"])}


def _declare_optional(*, clearable: bool) -> tuple[Param, ...]:
    return (
        text("description", max_length=200, clearable=clearable, rule="ML-02b"),
        text("file_name", max_length=255, clearable=clearable, rule="ML-02b"),
        text("name", max_length=100, clearable=clearable, rule="ML-02b"),
        text("poster_media_key", clearable=clearable, rule="ML-02c"),
        text("title", max_length=70, clearable=clearable, rule="ML-02b"),
    )


OPERATIONS = (
    _MEDIA.make_list(
        integer("count", default=20, minimum=1, maximum=50, rule="ML-01"),
        text("cursor", rule="GEN-07"),
        text("media_type", enum=MEDIA_TYPES, rule="ML-01"),
        text("q", min_length=1, max_length=255, rule="ML-01b"),
        rule="ML-01",
        select=_list,
    ),
    _MEDIA.make_get(rule="ML-05", query=()),
    Operation(
        id="media_library.create",
        method="POST",
        path=_MEDIA.path,
        handler=_create,
        query=(text("media_key", required=True, rule="ML-02"), *_declare_optional(clearable=False)),
        limit="writes",
        rule="ML-02",
    ),
    Operation(
        id="media_library.update",
        method="PUT",
        path=_MEDIA.one,
        handler=_update,
        query=_declare_optional(clearable=True),
        limit="writes",
        rule="ML-03",
    ),
    _MEDIA.make_delete(rule="ML-04"),
)
