"""Cards made of components, and legacy image conversation cards (CARD-01 to CARD-15).

A component is checked in two steps: its fields by the tables below, then the relations between them. The type of a
card follows from its components.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from svc_async.sandbox.api.ads.common import (
    WITH_DELETED,
    filter_by,
    filter_by_name,
    find_upload,
    list_owned,
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
_KIND = "cards"
_PATH = "/12/accounts/{account_id}/cards"
_ONE = f"{_PATH}/{{card_id}}"
_LEGACY = f"{_PATH}/image_conversation/{{card_id}}"
_SORTABLE = ("id", "name", "card_type", "created_at", "updated_at")
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
    card_id = fields.get("id") or store.ids.next("card", 5)
    record = {"id": card_id, "card_uri": f"card://{card_id}", "components": None, "slides": None}
    return store[_KIND].add(account_id, record | fields)


def _show(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.public_fields.items() if value is not None}


def _is_legacy(row: Row) -> bool:
    return bool(row.fields["card_type"] == _LEGACY_TYPE)


def _list(call: Call) -> Answer:
    rows = [row for row in list_owned(call, _KIND) if call.params["include_legacy_cards"] or not _is_legacy(row)]
    rows = filter_by(rows, "card_type", call.params["card_types"])
    rows = filter_by(rows, "id", call.params["card_id"])
    rows = filter_by(rows, "card_uri", call.params["card_uris"])
    page = call.paginate(filter_by_name(rows, call.params["q"]), sortable=_SORTABLE, filters=call.path)
    return Answer([_show(row) for row in page.rows], page)


def _find(call: Call) -> Row:
    return call.find(call.sandbox.store[_KIND], "card_id", code="CARD_NOT_FOUND")


def _get(call: Call) -> Answer:
    return Answer([_show(_find(call))])


def _create(call: Call) -> Answer:
    content = _read_content(call)
    if not content:
        refuse(missing("CARD-04", "components"))
    return Answer(_show(add_card(call.sandbox.store, call.account, name=call.params["name"], **content)))


def _update(call: Call) -> Answer:
    row = _find(call)
    if _is_legacy(row):
        raise not_found("CARD_NOT_FOUND", "card_id")
    name = call.sent.get("name", "")
    if len(name) > _NAME:
        # Unspecified: that the bound of the creation holds here too, and that never both does (UNS-card-update-bounds).
        refuse(invalid("CARD-02", f"takes up to {_NAME} characters", "name"))
    return Answer(_show(call.sandbox.store[_KIND].change(row, **{**call.sent, **_read_content(call)})))


def _delete_legacy(call: Call) -> Answer:
    row = _find(call)
    if not _is_legacy(row):
        raise not_found("CARD_NOT_FOUND", "card_id")
    return Answer(_show(call.sandbox.store[_KIND].delete(row)))


def _read_content(call: Call) -> dict[str, Any]:
    """Return the components or slides of the request and the type that follows; nothing if neither was sent."""
    components, slides = call.sent.get("components"), call.sent.get("slides")
    if components is not None and slides is not None:
        refuse(invalid("CARD-03", "and components exclude each other", "slides", code="EXCLUSIVE_PARAMETERS"))
    if slides is not None:
        refuse(*_check_slides(slides))
        return {"components": None, "slides": slides, "card_type": _derive_type(call, slides, several=True)}
    if components is not None:
        refuse(*_check_components(components, "components"))
        return {"components": components, "slides": None, "card_type": _derive_type(call, [components], several=False)}
    return {}


def _check_slides(slides: Sequence[Any]) -> list[Finding]:
    # Unspecified: that each slide keeps the rules of a card (ASM-132).
    if not slides:
        return [invalid("CARD-03", "holds no slide", "slides")]
    found: list[Finding] = []
    for index, slide in enumerate(slides):
        at = f"slides[{index}]"
        found += _check_components(slide, at) if isinstance(slide, list) else [invalid("CARD-03", "is no array", at)]
    return found


def _check_components(components: Sequence[Any], at: str) -> list[Finding]:
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
    media = {_find_media_type(call, key) for component in components for key in _list_media_keys(component)}
    what = media.pop() if len(media) == 1 else "MIXED_MEDIA"
    kinds = {component["type"] for component in components}
    target = "WEBSITE" if "DETAILS" in kinds else "APP"
    swiped = "SINGLE_DEST_CAROUSEL" if what == "MIXED_MEDIA" else "CAROUSEL"
    shape = "MULTI_DEST_CAROUSEL" if several else swiped if "SWIPEABLE_MEDIA" in kinds else ""
    card_type = "_".join(part for part in (what, shape, target) if part)
    if card_type not in CARD_TYPES:
        refuse(invalid("CARD-01", f"would make a card of type {card_type}, which is none", "slides"))
    return card_type


def _list_media_keys(component: Mapping[str, Any]) -> list[str]:
    if component["type"] == "MEDIA":
        return [component["media_key"]]
    return list(component.get("media_keys", ()))


def _find_media_type(call: Call, media_key: str) -> str:
    upload = find_upload(call, media_key, "media_key")
    refuse_other_types(upload, ("IMAGE", "VIDEO"), "media_key", rule="CARD-05")
    return str(upload.fields["media_type"])


OPERATIONS = (
    Operation(
        id="cards.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(
            csv("card_types", enum=CARD_TYPES, rule="CARD-10"),
            csv("card_id", max_items=200, rule="GEN-17"),
            csv("card_uris", max_items=200, rule="GEN-17"),
            integer("count", default=100, minimum=1, maximum=200, rule="CARD-10"),
            text("cursor", rule="GEN-07"),
            boolean("include_legacy_cards", default=False, rule="CARD-10c"),
            text("q", max_length=_NAME, rule="CARD-10b"),
            text("sort_by", rule="GEN-08"),
            WITH_DELETED,
        ),
        limit="account_reads",
        rule="CARD-10",
    ),
    Operation(
        id="cards.get",
        method="GET",
        path=_ONE,
        handler=_get,
        query=(WITH_DELETED,),
        limit="account_reads",
        rule="CARD-11",
    ),
    Operation(
        id="cards.create",
        method="POST",
        path=_PATH,
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
        path=_ONE,
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
        path=_LEGACY,
        handler=_delete_legacy,
        limit="writes",
        rule="CARD-12",
    ),
)
