"""The media library: uploads that an account keeps for reuse (ML-01 to ML-07)."""

import math
import re
from collections.abc import Mapping
from typing import Any

from svc_async.sandbox.api.ads.account_media import add_account_media
from svc_async.sandbox.api.ads.common import find_upload, list_owned, refuse_other_types
from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import Param, integer, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.store import Row, Store

__all__ = ["OPERATIONS", "add_media"]

MEDIA_TYPES = ("GIF", "IMAGE", "VIDEO")
_KIND = "media_library"
_PATH = "/12/accounts/{account_id}/media_library"
_ONE = f"{_PATH}/{{media_key}}"
_WORDS = ("name", "title", "file_name", "description")
_OF_VIDEOS = ("description", "poster_media_key", "title")
_ENDINGS = {"IMAGE": "jpg", "GIF": "gif", "VIDEO": "mp4"}
_STORED = "https://media.svc.example"
_UNNAMED = "Untitled media"  # Unspecified: the label (ASM-135)


def add_media(store: Store, upload: Row, **fields: Any) -> Row:
    """Add an upload to the library; a promoted video is added to the account media too (AM-02)."""
    facts = upload.fields
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
        "aspect_ratio": _format_ratio(facts["width"], facts["height"]),
        **_make_poster(upload, None),
        # Unspecified: that a medium is processed at once (ASM-134).
        "media_status": "TRANSCODE_COMPLETED",
    }
    row = store[_KIND].add(upload.owner, record | fields, key=upload.id)
    if row.fields["media_category"] == "PROMO_VIDEO":
        _, _, video_id = upload.id.partition("_")
        url = row.fields["media_url"]
        add_account_media(store, row.owner, creative_type="PREROLL", video_id=video_id, media_url=url)
    return row


def _format_ratio(width: int, height: int) -> str:
    common = math.gcd(width, height)
    return f"{width // common}:{height // common}"


def _make_poster(upload: Row, media_key: str | None) -> dict[str, str | None]:
    """Return the poster of a video, by default its first frame (ML-02c)."""
    if upload.fields["media_type"] != "VIDEO":
        return {"poster_media_key": None, "poster_media_url": None}
    # Unspecified: that the first frame has a key, and which.
    key = media_key or f"3_{upload.id.partition('_')[2]}01"
    return {"poster_media_key": key, "poster_media_url": f"{_STORED}/{key}.jpg"}


def _show(row: Row) -> dict[str, Any]:
    return {**row.public_fields, "name": row.fields["name"] or _UNNAMED}


def _list(call: Call) -> Answer:
    wanted = _split_terms(call.params["q"] or "")
    rows = [
        row
        for row in list_owned(call, _KIND)
        if call.params["media_type"] in (None, row.fields["media_type"])
        and wanted <= _split_terms(" ".join(row.fields[name] or "" for name in _WORDS))
    ]
    page = call.paginate(rows, sortable=(), filters=call.path)
    return Answer([_show(row) for row in page.rows], page)


def _split_terms(words: str) -> set[str]:
    # Unspecified: what a term is, and that all of them must occur.
    return set(re.findall(r"[^\W_]+", words.casefold()))


def _find(call: Call) -> Row:
    return call.find(call.sandbox.store[_KIND], "media_key", code="MEDIA_NOT_FOUND")


def _get(call: Call) -> Answer:
    return Answer(_show(_find(call)))


def _create(call: Call) -> Answer:
    upload = find_upload(call, call.params["media_key"], "media_key")
    if upload.fields["media_category"] is None:
        refuse(invalid("ML-02", "was uploaded without a category", "media_key"))
    if call.sandbox.store[_KIND].get(upload.id) is not None:
        # Unspecified: the answer to adding a medium twice.
        refuse(invalid("ASM-95", "is in the library", "media_key"))
    return Answer(_show(add_media(call.sandbox.store, upload, **_read_fields(call, upload))))


def _update(call: Call) -> Answer:
    row = _find(call)
    upload = find_upload(call, row.id, "media_key")
    return Answer(_show(call.sandbox.store[_KIND].change(row, **_read_fields(call, upload))))


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


def _delete(call: Call) -> Answer:
    return Answer(_show(call.sandbox.store[_KIND].delete(_find(call))))


def _declare_optional(*, clearable: bool) -> tuple[Param, ...]:
    return (
        text("description", max_length=200, clearable=clearable, rule="ML-02b"),
        text("file_name", max_length=255, clearable=clearable, rule="ML-02b"),
        text("name", max_length=100, clearable=clearable, rule="ML-02b"),
        text("poster_media_key", clearable=clearable, rule="ML-02c"),
        text("title", max_length=70, clearable=clearable, rule="ML-02b"),
    )


OPERATIONS = (
    Operation(
        id="media_library.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(
            integer("count", default=20, minimum=1, maximum=50, rule="ML-01"),
            text("cursor", rule="GEN-07"),
            text("media_type", enum=MEDIA_TYPES, rule="ML-01"),
            text("q", min_length=1, max_length=255, rule="ML-01b"),
        ),
        limit="account_reads",
        rule="ML-01",
    ),
    Operation(
        id="media_library.get",
        method="GET",
        path=_ONE,
        handler=_get,
        limit="account_reads",
        rule="ML-05",
    ),
    Operation(
        id="media_library.create",
        method="POST",
        path=_PATH,
        handler=_create,
        query=(text("media_key", required=True, rule="ML-02"), *_declare_optional(clearable=False)),
        limit="writes",
        rule="ML-02",
    ),
    Operation(
        id="media_library.update",
        method="PUT",
        path=_ONE,
        handler=_update,
        query=_declare_optional(clearable=True),
        limit="writes",
        rule="ML-03",
    ),
    Operation(
        id="media_library.delete",
        method="DELETE",
        path=_ONE,
        handler=_delete,
        limit="writes",
        rule="ML-04",
    ),
)
