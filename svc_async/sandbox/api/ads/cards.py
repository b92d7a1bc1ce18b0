"""Cards made of components, and legacy image conversation cards (CARD-01 to CARD-15).

A component is checked in two steps: its fields by the tables below, then the relations between them. The type of a
card follows from its components.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from svc_async.sandbox.api.ads.common import (
    WITH_DELETED,
    Records,
    filter_by,
    filter_by_name,
    find_upload,
    list_owned,
    make_card_ids,
    refuse_other_types,
)
from svc_async.sandbox.api.ads.iso_codes import COUNTRIES
from svc_async.sandbox.refusal import Finding, invalid, missing, refuse
from svc_async.sandbox.server.decoding import Param, boolean, csv, integer, json_field, text
from svc_async.sandbox.server.operations import Answer, Call, Operation, not_found
from svc_async.sandbox.server.reading import read_fields
from svc_async.sandbox.state.store import Row, Store

__all__ = ["OPERATIONS", "add_card"]

CARD_TYPES = (
    "IMAGE_APP",
    "IMAGE_CAROUSEL_APP",
    "IMAGE_CAROUSEL_WEBSITE",
    "IMAGE_MULTI_DEST_CAROUSEL_WEBSITE",
    "IMAGE_WEBSITE",
    "MIXED_MEDIA_MULTI_DEST_CAROUSEL_WEBSITE",
    "MIXED_MEDIA_SINGLE_DEST_CAROUSEL_APP",
    "MIXED_MEDIA_SINGLE_DEST_CAROUSEL_WEBSITE",
    "VIDEO_APP",
    "VIDEO_CAROUSEL_APP",
    "VIDEO_CAROUSEL_WEBSITE",
    "VIDEO_MULTI_DEST_CAROUSEL_WEBSITE",
    "VIDEO_WEBSITE",
)
# Unspecified: the name of the legacy type; it is none of the 13.
_LEGACY_TYPE = "IMAGE_CONVERSATION"
_LABELS = ("BOOK", "CONNECT", "INSTALL", "OPEN", "ORDER", "PLAY", "SHOP")
_CARDS = Records(
    kind="cards",
    path="/12/accounts/{account_id}/cards",
    key="card_id",
    sortable=("id", "name", "card_type", "created_at", "updated_at"),
    show=lambda row: {name: value for name, value in row.show().items() if value is not None},
)
_NAME = 80

_COMPONENTS: Mapping[str, tuple[Param, ...]] = {
    "MEDIA": (json_field("media_key", "string", required=True, rule="CARD-05"),),
    "SWIPEABLE_MEDIA": (json_field("media_keys", "array", required=True, min_items=2, max_items=6, rule="CARD-05b"),),
    "DETAILS": (
        json_field("title", "string", required=True, rule="CARD-05c"),
        json_field("destination", "object", required=True, rule="CARD-05c"),
    ),
    "BUTTON": (
        json_field("label", "object", required=True, rule="CARD-05d"),
        json_field("destination", "object", required=True, rule="CARD-05d"),
    ),
}
_TYPE = json_field("type", "string", required=True, enum=tuple(_COMPONENTS), rule="CARD-04")
_WEBSITE = (
    json_field("type", "string", required=True, enum=("WEBSITE",), rule="CARD-07"),
    json_field("url", "string", required=True, rule="CARD-07"),
)
_APP = (
    json_field("type", "string", required=True, enum=("APP",), rule="CARD-07b"),
    json_field("country_code", "string", required=True, rule="CARD-07b"),
    json_field("googleplay_app_id", "string", rule="CARD-07c"),
    json_field("ios_app_store_identifier", "string", rule="CARD-07c"),
    json_field("googleplay_deep_link", "string", rule="CARD-07d"),
    json_field("ios_deep_link", "string", rule="CARD-07e"),
)
_LABEL = (
    json_field("type", "string", required=True, enum=("ENUM",), rule="CARD-06"),
    json_field("value", "string", required=True, enum=_LABELS, rule="CARD-06"),
)
_INSIDE: Mapping[str, Mapping[str, tuple[Param, ...]]] = {
    "DETAILS": {"destination": _WEBSITE},
    "BUTTON": {"label": _LABEL, "destination": _APP},
}


def add_card(store: Store, account_id: str, **fields: Any) -> Row:
    """Add a card; one of the legacy type has no components."""
    record = {**make_card_ids(store, fields.get("id")), "components": None, "slides": None}
    return store[_CARDS.kind].add(account_id, record | fields)


def _is_legacy(row: Row) -> bool:
    return bool(row.fields["card_type"] == _LEGACY_TYPE)


def _list(call: Call) -> list[Row]:
    rows = list_owned(call, _CARDS.kind)
    rows = [row for row in rows if call.params["include_legacy_cards"] or not _is_legacy(row)]
    rows = filter_by(rows, "card_type", call.params["card_types"])
    rows = filter_by(rows, "id", call.params["card_id"])
    rows = filter_by(rows, "card_uri", call.params["card_uris"])
    return filter_by_name(rows, call.params["q"])


def _find(call: Call, *, legacy: bool) -> Row:
    row = _CARDS.find(call)
    if _is_legacy(row) is not legacy:
        raise not_found("card_id")
    return row


def _create(call: Call) -> Answer:
    content = _read_content(call)
    if not content:
        refuse(missing("CARD-04", "components"))
    return Answer(_CARDS.show(add_card(call.sandbox.store, call.account, name=call.params["name"], **content)))


def _update(call: Call) -> Answer:
    row = _find(call, legacy=False)
    if len(call.sent.get("name", "")) > _NAME:
        # Unspecified: that the bound of the creation holds here too, and that never both does (UNS-card-update-bounds).
        refuse(invalid("CARD-02", f"takes up to {_NAME} characters", "name"))
    return _CARDS.change(call, row, {**call.sent, **_read_content(call)})


def _read_content(call: Call) -> dict[str, Any]:
    """Return the components or slides of the request and the type that follows; nothing if neither was sent."""
    components, slides = call.sent.get("components"), call.sent.get("slides")
    if components is not None and slides is not None:
        refuse(invalid("CARD-03", "and components exclude each other", "slides", code="EXCLUSIVE_PARAMETERS"))
    if slides is not None:
        # Unspecified: that each slide keeps the rules of a card (ASM-132).
        if not slides:
            refuse(invalid("CARD-03", "holds no slide", "slides"))
        found = (_check_components(slide, f"slides[{index}]") for index, slide in enumerate(slides))
        refuse(*itertools.chain.from_iterable(found))
        return {"components": None, "slides": slides, "card_type": _derive_type(call, slides, several=True)}
    if components is not None:
        refuse(*_check_components(components, "components"))
        return {"components": components, "slides": None, "card_type": _derive_type(call, [components], several=False)}
    return {}


def _check_components(components: Any, at: str) -> list[Finding]:
    if not isinstance(components, list):
        return [invalid("CARD-03", "is not an array", at)]
    found = [
        finding
        for index, component in enumerate(components)
        for finding in _check_component(component, f"{at}[{index}]")
    ]
    kinds = [component.get("type") for component in components if isinstance(component, dict)]
    if kinds.count("MEDIA") + kinds.count("SWIPEABLE_MEDIA") != 1:
        found.append(invalid("CARD-04", "needs one media component", at))
    if "DETAILS" not in kinds and "BUTTON" not in kinds:
        found.append(invalid("CARD-04", "needs a DETAILS or BUTTON component", at))
    return found


def _check_component(component: Any, at: str) -> list[Finding]:
    if not isinstance(component, dict):
        return [invalid("CARD-04", "is no object", at)]
    kind = str(component.get("type"))
    if kind not in _COMPONENTS:
        return read_fields([_TYPE], {"type": component["type"]} if "type" in component else {}, at=f"{at}.")[1]
    good, found = read_fields([_TYPE, *_COMPONENTS[kind]], component, at=f"{at}.")
    if not all(isinstance(key, str) and key for key in good.get("media_keys", ())):
        found.append(invalid("CARD-05b", "holds strings", f"{at}.media_keys"))
    for name, declared in _INSIDE.get(kind, {}).items():
        if name in good:
            fields, inside = read_fields(declared, good[name], at=f"{at}.{name}.")
            found += inside
            if declared is _APP:
                found += _check_app(fields, f"{at}.{name}.")
    return found


def _check_app(app: Mapping[str, Any], at: str) -> list[Finding]:
    found: list[Finding] = []
    if app.get("country_code", "US") not in COUNTRIES:
        found.append(invalid("CARD-07b", "must be an ISO 3166-1 alpha-2 code", f"{at}country_code"))
    if not app.keys() & {"googleplay_app_id", "ios_app_store_identifier"}:
        found.append(missing("CARD-07c", f"{at}googleplay_app_id"))
    for rule, link, store_id in (
        ("CARD-07d", "googleplay_deep_link", "googleplay_app_id"),
        ("CARD-07e", "ios_deep_link", "ios_app_store_identifier"),
    ):
        if link in app and store_id not in app:
            found.append(invalid(rule, f"needs {store_id}", f"{at}{link}"))
    return found


def _derive_type(call: Call, slides: Sequence[Sequence[Mapping[str, Any]]], *, several: bool) -> str:
    """Return the type that follows from the components.

    Raises:
        Refusal: there is no such type, or a key names no image and no video.
    """
    # Unspecified: how the type follows (ASM-132); that a website wins where a card has both destinations.
    components = [component for slide in slides for component in slide]
    keys = [component["media_key"] for component in components if component["type"] == "MEDIA"]
    keys += [key for component in components for key in component.get("media_keys", ())]
    uploads = [find_upload(call, key, "media_key") for key in keys]
    for upload in uploads:
        refuse_other_types(upload, ("IMAGE", "VIDEO"), "media_key", rule="CARD-05")
    media = {str(upload.fields["media_type"]) for upload in uploads}
    what = media.pop() if len(media) == 1 else "MIXED_MEDIA"
    kinds = {component["type"] for component in components}
    target = "WEBSITE" if "DETAILS" in kinds else "APP"
    swiped = "SINGLE_DEST_CAROUSEL" if what == "MIXED_MEDIA" else "CAROUSEL"
    shape = "MULTI_DEST_CAROUSEL" if several else swiped if "SWIPEABLE_MEDIA" in kinds else ""
    card_type = "_".join(part for part in (what, shape, target) if part)
    if card_type not in CARD_TYPES:
        refuse(invalid("CARD-01", f"would make a card of type {card_type}, which is none", "slides"))
    return card_type


OPERATIONS = (
    _CARDS.make_list(
        csv("card_types", enum=CARD_TYPES, rule="CARD-10"),
        csv("card_id", max_items=200, rule="GEN-17"),
        csv("card_uris", max_items=200, rule="GEN-17"),
        integer("count", default=100, minimum=1, maximum=200, rule="CARD-10"),
        text("cursor", rule="GEN-07"),
        boolean("include_legacy_cards", default=False, rule="CARD-10c"),
        text("q", max_length=_NAME, rule="CARD-10b"),
        text("sort_by", rule="GEN-08"),
        WITH_DELETED,
        rule="CARD-10",
        select=_list,
    ),
    Operation(
        id="cards.get",
        method="GET",
        path=_CARDS.one,
        handler=lambda call: Answer([_CARDS.show(_CARDS.find(call))]),
        query=(WITH_DELETED,),
        limit="account_reads",
        rule="CARD-11",
    ),
    Operation(
        id="cards.create",
        method="POST",
        path=_CARDS.path,
        handler=_create,
        query=(
            json_field("name", "string", required=True, max_length=_NAME, rule="CARD-02"),
            json_field("components", "array", rule="CARD-03"),
            json_field("slides", "array", rule="CARD-03"),
        ),
        limit="writes",
        rule="CARD-03",
        body="object",
    ),
    Operation(
        id="cards.update",
        method="PUT",
        path=_CARDS.one,
        handler=_update,
        query=(
            json_field("name", "string", rule="CARD-09"),
            json_field("components", "array", rule="CARD-09"),
            json_field("slides", "array", rule="CARD-09"),
        ),
        limit="writes",
        rule="CARD-09",
        body="object",
    ),
    Operation(
        id="image_conversation_cards.delete",
        method="DELETE",
        path=f"{_CARDS.path}/image_conversation/{{card_id}}",
        handler=lambda call: Answer(_CARDS.show(call.sandbox.store[_CARDS.kind].delete(_find(call, legacy=True)))),
        limit="writes",
        rule="CARD-12",
    ),
)
