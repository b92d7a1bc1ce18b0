"""Helpers shared by the families: declarations of parameters, filters of lists, and references to media."""

from collections.abc import Container, Iterable
from typing import Any

import attrs

from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import Param, boolean, integer, text
from svc_async.sandbox.server.operations import Call, not_found
from svc_async.sandbox.state.store import Row

__all__ = [
    "WITH_DELETED",
    "filter_by",
    "filter_by_name",
    "find_library_media",
    "find_upload",
    "list_owned",
    "list_params",
    "refuse_other_types",
    "select_fields",
    "without_dates",
]

WITH_DELETED = boolean("with_deleted", default=False, rule="GEN-08b")


def list_params(*, default: int, maximum: int, rule: str) -> tuple[Param, ...]:
    """Declare the parameters that every full list takes (GEN-06 to GEN-08b)."""
    return (
        integer("count", default=default, minimum=1, maximum=maximum, rule=rule),
        text("cursor", rule="GEN-07"),
        text("sort_by", rule="GEN-08"),
        WITH_DELETED,
        boolean("with_total_count", default=False, rule="GEN-08b"),
    )


def list_owned(call: Call, kind: str) -> list[Row]:
    """Return the account's records of a kind; deleted ones as `with_deleted` says (GEN-14b)."""
    with_deleted = call.params.get("with_deleted", False)
    return [row for row in call.sandbox.store[kind] if row.owner == call.account and (with_deleted or not row.deleted)]


def filter_by(rows: Iterable[Row], attribute: str, values: Container[str] | None) -> list[Row]:
    """Return the records whose attribute has one of the values; all of them if `values` is None."""
    return [row for row in rows if values is None or row.fields[attribute] in values]


def filter_by_name(rows: Iterable[Row], q: str | None) -> list[Row]:
    """Return the records whose name begins with `q`, in any case."""
    prefix = (q or "").casefold()
    return [row for row in rows if row.fields["name"].casefold().startswith(prefix)]


def select_fields(row: Row, names: Iterable[str]) -> Row:
    """Return the record with these fields only."""
    return attrs.evolve(row, fields={name: row.fields[name] for name in names})


def without_dates(row: Row) -> dict[str, Any]:
    """Return the public fields of a record that has no dates and no `deleted` (CON-18)."""
    hidden = ("created_at", "updated_at", "deleted")
    return {name: value for name, value in row.public_fields.items() if name not in hidden}


def find_upload(call: Call, media_key: str, parameter: str) -> Row:
    """Find an upload of the account.

    Raises:
        Refusal: there is none.
    """
    # Unspecified: the answer to a key that names nothing (ASM-102).
    upload = call.sandbox.store["uploads"].get(media_key, owner=call.account)
    if upload is None:
        raise not_found("MEDIA_NOT_FOUND", parameter)
    return upload


def find_library_media(call: Call, media_key: str, parameter: str) -> Row:
    """Find the upload behind an entry of the account's media library.

    Raises:
        Refusal: the library has no such entry.
    """
    if call.sandbox.store["media_library"].get(media_key, owner=call.account) is None:
        raise not_found("MEDIA_NOT_FOUND", parameter)
    return find_upload(call, media_key, parameter)


def refuse_other_types(upload: Row, types: tuple[str, ...], parameter: str, *, rule: str) -> None:
    """Refuse a medium of another type.

    Raises:
        Refusal: it is of another type.
    """
    if upload.fields["media_type"] not in types:
        refuse(invalid(rule, f"must name media of type {' or '.join(types)}", parameter))
