"""What families share: declarations of parameters, filters of lists, references to media, and cards of one type."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

import attrs

from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import Param, boolean, csv, integer, text
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_page, answer_row, not_found
from svc_async.sandbox.state.store import Row

__all__ = [
    "WITH_DELETED",
    "TypedCards",
    "filter_by",
    "filter_by_name",
    "find_library_media",
    "find_upload",
    "get_library_url",
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


def get_library_url(call: Call, media_key: str, name: str) -> str | None:
    """Return the URL that the library shows for a medium; None where the library has it no more."""
    kept = call.sandbox.store["media_library"].get(media_key)
    return None if kept is None else kept.fields[name]


@attrs.frozen(kw_only=True)
class TypedCards:
    """Cards of one type, which have a path of their own: how they are found, listed, read and added.

    Attributes:
        kind: their table, which is the name of the family too.
        path: of the list.
        sortable: the attributes that `sort_by` takes.
    """

    kind: str
    path: str
    sortable: tuple[str, ...]

    @property
    def one(self) -> str:
        """The path of one card."""
        return f"{self.path}/{{card_id}}"

    def find(self, call: Call) -> Row:
        """Find the card in the path."""
        return call.find(call.sandbox.store[self.kind], "card_id", code="CARD_NOT_FOUND")

    def add(self, call: Call, fields: Mapping[str, Any]) -> Answer:
        """Add a card and answer with it."""
        card_id = call.sandbox.store.ids.next("card", 5)
        record = {"id": card_id, "card_uri": f"card://{card_id}", **fields}
        return answer_row(call.sandbox.store[self.kind].add(call.account, record))

    def make_reads(self, *, list_rule: str, get_rule: str) -> tuple[Operation, Operation]:
        """Return the operations that read them."""
        return (
            Operation(
                id=f"{self.kind}.list",
                method="GET",
                path=self.path,
                handler=self._list,
                query=(
                    csv("card_ids", max_items=200, rule="GEN-17"),
                    text("q", rule=list_rule),
                    *list_params(default=200, maximum=1000, rule=list_rule),
                ),
                limit="account_reads",
                rule=list_rule,
            ),
            Operation(
                id=f"{self.kind}.get",
                method="GET",
                path=self.one,
                handler=lambda call: answer_row(self.find(call)),
                query=(WITH_DELETED,),
                limit="account_reads",
                rule=get_rule,
            ),
        )

    def _list(self, call: Call) -> Answer:
        # Unspecified: the meaning of q; here the same as on the list of cards (UNS-q-elsewhere).
        rows = filter_by_name(filter_by(list_owned(call, self.kind), "id", call.params["card_ids"]), call.params["q"])
        return answer_page(call.paginate(rows, sortable=self.sortable, filters=call.path))
