"""The common parts of families: records with their usual operations, parameters, references to media."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import attrs

from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import Param, boolean, csv, integer, text
from svc_async.sandbox.server.operations import Answer, Call, Operation, not_found
from svc_async.sandbox.state.store import Row, Store

__all__ = [
    "WITH_DELETED",
    "Records",
    "filter_by",
    "filter_by_name",
    "find_library_media",
    "find_upload",
    "get_library_url",
    "list_cards",
    "list_owned",
    "list_params",
    "make_card_ids",
    "refuse_other_types",
    "show_without_dates",
]

WITH_DELETED = boolean("with_deleted", default=False, rule="GEN-08b")


def list_params(*, rule: str) -> tuple[Param, ...]:
    """Declare the parameters that every full list takes (GEN-06 to GEN-08b)."""
    return (
        integer("count", default=200, minimum=1, maximum=1000, rule=rule),
        text("cursor", rule="GEN-07"),
        text("sort_by", rule="GEN-08"),
        WITH_DELETED,
        boolean("with_total_count", default=False, rule="GEN-08b"),
    )


def list_owned(call: Call, kind: str, *, owner: str | None = None) -> list[Row]:
    """Return the records of a kind that the account has, or another owner; deleted ones as `with_deleted` says."""
    with_deleted = call.params.get("with_deleted", False)
    owner = call.account if owner is None else owner
    return [row for row in call.sandbox.store[kind] if row.owner == owner and (with_deleted or not row.deleted)]


def filter_by(rows: Iterable[Row], attribute: str, values: Container[str] | None) -> list[Row]:
    """Return the records whose attribute has one of the values; all of them if `values` is None."""
    return [row for row in rows if values is None or row.fields[attribute] in values]


def filter_by_name(rows: Iterable[Row], q: str | None) -> list[Row]:
    """Return the records whose name begins with `q`, in any case."""
    prefix = (q or "").casefold()
    return [row for row in rows if row.fields["name"].casefold().startswith(prefix)]


def show_without_dates(row: Row) -> dict[str, Any]:
    """Return the public fields of a record that has no dates and no `deleted` (CON-18)."""
    return row.show(without=("created_at", "updated_at", "deleted"))


@attrs.frozen(kw_only=True)
class Records:
    """The records of one kind that an account has, and the operations that most kinds have.

    Attributes:
        kind: their table, which is the name of the family too.
        path: of the list.
        key: the parameter that names one of them in the path.
        sortable: the attributes that `sort_by` takes.
        show: returns the fields that answers show.
    """

    kind: str
    path: str
    key: str
    sortable: tuple[str, ...] = ()
    show: Callable[[Row], Mapping[str, Any]] = Row.show

    @property
    def one(self) -> str:
        """The path of one record."""
        return f"{self.path}/{{{self.key}}}"

    def find(self, call: Call) -> Row:
        """Find the record in the path."""
        return call.find(self.kind, self.key)

    def add(self, call: Call, fields: Mapping[str, Any]) -> Answer:
        """Add a record and answer with it."""
        return Answer(self.show(call.sandbox.store[self.kind].add(call.account, fields)))

    def change(self, call: Call, row: Row, fields: Mapping[str, Any]) -> Answer:
        """Change a record and answer with it."""
        return Answer(self.show(call.sandbox.store[self.kind].change(row, **fields)))

    def make_list(
        self,
        *query: Param,
        rule: str,
        by: Mapping[str, str] | None = None,
        select: Callable[[Call], Iterable[Row]] | None = None,
    ) -> Operation:
        """Make the operation that lists them.

        Args:
            query: the parameters.
            rule: the rule of the list.
            by: the attributes that parameters filter by; `q` filters by the beginning of the name.
            select: returns the records of the list, instead of `by`.
        """

        def select_by(call: Call) -> Iterable[Row]:
            rows = list_owned(call, self.kind)
            for parameter, attribute in (by or {}).items():
                rows = filter_by(rows, attribute, call.params[parameter])
            return filter_by_name(rows, call.params["q"]) if "q" in call.params else rows

        rows_of = select or select_by
        return Operation(
            id=f"{self.kind}.list",
            method="GET",
            path=self.path,
            handler=lambda call: call.answer_page(rows_of(call), sortable=self.sortable, show=self.show),
            query=query,
            limit="account_reads",
            rule=rule,
        )

    def make_get(self, *, rule: str, query: tuple[Param, ...] = (WITH_DELETED,)) -> Operation:
        """Make the operation that returns one of them."""
        return Operation(
            id=f"{self.kind}.get",
            method="GET",
            path=self.one,
            handler=lambda call: Answer(self.show(self.find(call))),
            query=query,
            limit="account_reads",
            rule=rule,
        )

    def make_delete(self, *, rule: str) -> Operation:
        """Make the operation that marks one of them as deleted."""
        return Operation(
            id=f"{self.kind}.delete",
            method="DELETE",
            path=self.one,
            handler=lambda call: Answer(self.show(call.sandbox.store[self.kind].delete(self.find(call)))),
            limit="writes",
            rule=rule,
        )


def list_cards(cards: Records, *, rule: str) -> Operation:
    """Make the operation that lists the cards of one type."""
    # Unspecified: the meaning of q; here the same as on the list of cards (UNS-q-elsewhere).
    query = csv("card_ids", max_items=200, rule="GEN-17"), text("q", rule=rule), *list_params(rule=rule)
    return cards.make_list(*query, rule=rule, by={"card_ids": "id"})


def make_card_ids(store: Store, card_id: str | None = None) -> dict[str, str]:
    """Return the fields that name a new card of any kind."""
    card_id = card_id or store.ids.next("card", 5)
    return {"id": card_id, "card_uri": f"card://{card_id}"}


def find_upload(call: Call, media_key: str, parameter: str) -> Row:
    """Find an upload of the account.

    Raises:
        Refusal: there is none.
    """
    # Unspecified: the answer to a key that names nothing (ASM-102).
    upload = call.sandbox.store["uploads"].get(media_key, owner=call.account)
    if upload is None:
        raise not_found(parameter, "media")
    return upload


def find_library_media(call: Call, media_key: str, parameter: str) -> Row:
    """Find the upload behind an entry of the account's media library.

    Raises:
        Refusal: the library has no such entry.
    """
    if call.sandbox.store["media_library"].get(media_key, owner=call.account) is None:
        raise not_found(parameter, "media")
    return find_upload(call, media_key, parameter)


def refuse_other_types(upload: Row, types: tuple[str, ...], parameter: str, *, rule: str) -> None:
    """Refuse a medium of another type.

    Raises:
        Refusal: it is of another type.
    """
    if upload.fields["media_type"] not in types:
        refuse(invalid(rule, f"must name media of type {' or '.join(types)}", parameter))


def get_library_url(call: Call, media_key: str, name: str) -> str | None:
    """Return the URL that the library shows for a medium; None where the library no longer has it."""
    kept = call.sandbox.store["media_library"].get(media_key)
    return None if kept is None else kept.fields[name]
