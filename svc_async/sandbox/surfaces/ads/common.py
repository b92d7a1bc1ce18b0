"""Declarations that the families share."""

from svc_async.sandbox.params import Param, boolean, integer, text

__all__ = ["WITH_DELETED", "listing"]

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
