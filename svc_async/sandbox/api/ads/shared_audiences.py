"""Audiences that an account shares with others: who may use them, and the permissions that say so."""

from typing import Any

import attrs

from svc_async.sandbox.api.ads.common import filter_by, list_params
from svc_async.sandbox.api.ads.features import get_features
from svc_async.sandbox.refusal import Problem, Refusal, find_basis
from svc_async.sandbox.server.decoding import csv, text
from svc_async.sandbox.server.operations import Answer, Call, Operation, no_access, not_found
from svc_async.sandbox.state.store import Row, Store

__all__ = ["SharedAudiences"]

_FEATURE = "SHARE_AUDIENCE_OUTSIDE_BUSINESS"
_SORTABLE = ("id", "granted_account_id", "permission_level", "created_at", "updated_at")


@attrs.frozen(kw_only=True)
class SharedAudiences:
    """The audiences of one kind, and the operations on their permissions.

    Attributes:
        kind: their name in paths and parameters, in the singular.
        path: of one audience.
        unknown: the rule for an id that names none.
        listing: the rule of the list of permissions.
        granting: the rule of the creation of one.
        owning: the rule that only the owner grants and revokes.
        together: the rule about accounts of other businesses.
        revoking: the rule of the deletion of one.
    """

    kind: str
    path: str
    unknown: str
    listing: str
    granting: str
    owning: str
    together: str
    revoking: str

    @property
    def key(self) -> str:
        """The parameter of the path that names an audience."""
        return f"{self.kind}_id"

    @property
    def permissions(self) -> str:
        """The kind of the permissions."""
        return f"{self.kind}_permissions"

    def list_permissions(self, store: Store) -> list[Row]:
        """Return the permissions that hold."""
        # Unspecified: whether deleted permissions are listed, since there is no with_deleted (CON-11).
        return [row for row in store[self.permissions] if not row.deleted]

    def list_levels(self, call: Call) -> dict[str, str]:
        """Return the levels of permission that others have granted to the account, by the ids of their audiences."""
        return {
            row.fields[self.key]: row.fields["permission_level"]
            for row in self.list_permissions(call.sandbox.store)
            if row.fields["granted_account_id"] == call.account
        }

    def find(self, call: Call) -> Row:
        """Find the audience in the path, which the account owns or has permission for.

        Raises:
            Refusal: there is none.
        """
        audiences, audience_id = call.sandbox.store[f"{self.kind}s"], call.path[self.key]
        row = audiences.get(audience_id, with_deleted=call.params.get("with_deleted", False))
        if row is None or (call.account != row.owner and row.id not in self.list_levels(call)):
            problem = Problem("TAILORED_AUDIENCE_NOT_FOUND", f"{self.key} names nothing here", self.key)
            raise Refusal(404, problem, rule=self.unknown, basis=find_basis(self.unknown))
        return row

    def find_own(self, call: Call, *, rule: str = "ASM-22") -> Row:
        """Find the audience in the path, which the account owns.

        Raises:
            Refusal: there is none, or it is only shared with the account.
        """
        row = self.find(call)
        if row.owner != call.account:
            # Unspecified: status and code, as those of a closed gate (UNS-gate-error, UNA-not-owner), and that a
            # permission to write allows no more than one to read (UNA-shared-level).
            problems = no_access("changes of an audience of another account").problems
            raise Refusal(403, *problems, rule=rule, basis=find_basis(rule))
        return row

    def make_operations(self) -> tuple[Operation, ...]:
        """Make the operations on the permissions of an audience."""
        path, basis = f"{self.path}/permissions", find_basis(self.listing)
        return (
            Operation(
                id=f"{self.permissions}.list",
                method="GET",
                path=path,
                handler=self._list,
                query=(
                    csv("granted_account_ids", max_items=200, rule=self.listing),
                    csv(f"{self.kind}_permission_ids", max_items=200, rule=self.listing),
                    *(param for param in list_params(rule=self.listing) if param.name != "with_deleted"),
                ),
                limit="account_reads",
                rule=self.listing,
                basis=basis,
            ),
            Operation(
                id=f"{self.permissions}.create",
                method="POST",
                path=path,
                handler=self._create,
                query=(
                    text("granted_account_id", required=True, rule=self.granting),
                    text("permission_level", required=True, enum=("READ_ONLY", "READ_WRITE"), rule=self.granting),
                ),
                limit="writes",
                rule=self.granting,
                basis=basis,
            ),
            Operation(
                id=f"{self.permissions}.delete",
                method="DELETE",
                path=f"{path}/{{{self.kind}_permission_id}}",
                handler=self._delete,
                limit="writes",
                rule=self.revoking,
                basis=basis,
            ),
        )

    def _list(self, call: Call) -> Answer:
        rows = filter_by(self.list_permissions(call.sandbox.store), self.key, {self.find(call).id})
        rows = filter_by(rows, "granted_account_id", call.params["granted_account_ids"])
        rows = filter_by(rows, "id", call.params[f"{self.kind}_permission_ids"])
        return call.answer_page(rows, sortable=_SORTABLE)

    def _create(self, call: Call) -> Answer:
        audience, store = self.find_own(call, rule=self.owning), call.sandbox.store
        granted = store["accounts"].get(call.sent["granted_account_id"])
        if granted is None:
            raise not_found("granted_account_id", "account")
        self._check_sharing(call, granted)
        # Unspecified: that an account may be granted the same audience twice; the last level holds.
        fields: dict[str, Any] = {"id": store.ids.next(self.permissions, 4), self.key: audience.id, **call.sent}
        return Answer(store[self.permissions].add(audience.owner, fields).show())

    def _check_sharing(self, call: Call, granted: Row) -> None:
        owner = call.sandbox.store["accounts"].get(call.account)
        business = None if owner is None else owner.fields["business_id"]
        is_same = business is not None and business == granted.fields["business_id"]
        if not is_same and _FEATURE not in get_features(call.sandbox.store, call.account):
            # Unspecified: status and code (ASM-22).
            problem = Problem(
                "FEATURE_NOT_AVAILABLE", f"sharing outside the business needs {_FEATURE}", "granted_account_id"
            )
            raise Refusal(400, problem, rule=self.together, basis=find_basis(self.together))

    def _delete(self, call: Call) -> Answer:
        audience, permissions = self.find_own(call, rule=self.owning), call.sandbox.store[self.permissions]
        row = permissions.get(call.path[f"{self.kind}_permission_id"], owner=call.account)
        if row is None or row.fields[self.key] != audience.id:
            raise not_found(f"{self.kind}_permission_id")
        return Answer(permissions.delete(row).show())
