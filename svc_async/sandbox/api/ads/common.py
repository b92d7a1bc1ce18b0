"""What the families share: declarations of parameters, and how their lists are chosen."""

from collections.abc import Container, Iterable
from typing import Any

import attrs

from svc_async.sandbox.server.operations import Call
from svc_async.sandbox.server.params import Param, boolean, integer, text
from svc_async.sandbox.state.store import Row

__all__ = ["WITH_DELETED", "chosen", "listing", "of_account", "only", "prefixed", "undated"]

WITH_DELETED = boolean("with_deleted", default=False, rule="GEN-08b")


def listing(*, default: int, maximum: int, rule: str) -> tuple[Param, ...]:
    """Declare the parameters that every full list takes (GEN-06 to GEN-08b)."""
    return (
        integer("count", default=default, minimum=1, maximum=maximum, rule=rule),
        text("cursor", rule="GEN-07"),
        text("sort_by", rule="GEN-08"),
        WITH_DELETED,
        boolean("with_total_count", default=False, rule="GEN-08b"),
    )


def of_account(call: Call, kind: str) -> list[Row]:
    """Give the account's records of a kind; deleted ones as `with_deleted` says (GEN-14b)."""
    with_deleted = call.params.get("with_deleted", False)
    return [row for row in call.store[kind] if row.owner == call.account and (with_deleted or not row.deleted)]


def chosen(rows: Iterable[Row], attribute: str, wanted: Container[str] | None) -> list[Row]:
    """Keep the records whose attribute is among the wanted ones; all of them if nothing is wanted."""
    return [row for row in rows if wanted is None or row.fields[attribute] in wanted]


def only(row: Row, names: Iterable[str]) -> Row:
    """Keep the fields that the service shows of a record of this kind."""
    return attrs.evolve(row, fields={name: row.fields[name] for name in names})


def prefixed(rows: Iterable[Row], q: str | None) -> list[Row]:
    """Keep the records whose name begins with `q`, in any case."""
    prefix = (q or "").casefold()
    return [row for row in rows if row.fields["name"].casefold().startswith(prefix)]


def undated(row: Row) -> dict[str, Any]:
    """Show a record of those that have no dates and no `deleted` (CON-18)."""
    return {name: value for name, value in row.shown.items() if name not in ("created_at", "updated_at", "deleted")}
