"""A call of the service as a value: its route, its parameters, and the function that answers it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import unquote

import attrs

from svc_async.sandbox.config import Gate, SandboxConfig
from svc_async.sandbox.push.channels import Outlet, Outlets
from svc_async.sandbox.server.auth import Caller, Scheme
from svc_async.sandbox.server.open_response import Line
from svc_async.sandbox.server.params import Param, path_params
from svc_async.sandbox.server.rendering import Basis, Dialect, Problem, Refusal
from svc_async.sandbox.state.grants import Registry
from svc_async.sandbox.state.paging import Page, Pages
from svc_async.sandbox.state.store import Collection, Row, Store

__all__ = [
    "Answer",
    "Call",
    "Handler",
    "Operation",
    "Routes",
    "Serve",
    "Surface",
    "many",
    "no_access",
    "not_found",
    "one",
]

Surface = Literal["base", "ads", "ads_sandbox"]


@attrs.frozen
class Answer:
    """What a handler found or did.

    Attributes:
        data: on the advertising API, what stands in `data`; elsewhere the whole answer.
        page: for a list, its page.
        request: what stands in `request`, where that is not the parameters.
    """

    data: Any
    page: Page | None = None
    request: Any = None
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def envelope(self, request: Any) -> dict[str, Any]:
        """Put it into the envelope of the advertising API (GEN-03, GEN-04)."""
        request = request if self.request is None else self.request
        if self.page is None:
            return {"request": request, "data": self.data}
        total = {} if self.page.total is None else {"total_count": self.page.total}
        return {"request": request, "next_cursor": self.page.next_cursor, **total, "data": self.data}


@attrs.frozen(kw_only=True)
class Call:
    """One verified request to an operation.

    Attributes:
        path: the decoded ids of the path.
        params: all parameters of the operation but those of the path, with defaults.
        sent: those that were sent.
        headers: what the request came with, for the pages that read cookies.
        secure: whether it came over https.
        body: the body as it came; the fields of a JSON object or a form are in `params` and `sent` too.
    """

    operation: "Operation"
    caller: Caller
    path: Mapping[str, str]
    params: Mapping[str, Any]
    sent: Mapping[str, Any]
    headers: Mapping[str, str]
    secure: bool
    body: bytes
    now: datetime
    store: Store
    registry: Registry
    outlets: Outlets
    pages: Pages
    config: SandboxConfig

    @property
    def outlet(self) -> Outlet:
        """How the app that calls is told of what happens."""
        return self.outlets.of(self.caller.app)

    @property
    def user(self) -> str:
        """The id of the user who calls; empty where an app does."""
        return self.caller.user

    @property
    def account(self) -> str:
        """The id of the account in the path."""
        return self.path["account_id"]

    def run(self) -> Answer:
        """Do what the request asks for, wholly or not at all."""
        with self.store.transaction(self.user):
            return self.operation.handler(self)

    async def serve(self, line: Line) -> Answer | None:
        """Let the operation answer; None means that it wrote its answer itself."""
        return self.run() if self.operation.serve is None else await self.operation.serve(self, line)

    def find(self, rows: Collection, name: str, *, code: str) -> Row:
        """Find the record of this account that an id in the path names; deleted ones as `with_deleted` says.

        Raises:
            Refusal: there is none.
        """
        row = rows.get(self.path[name], owner=self.account, with_deleted=self.params.get("with_deleted", False))
        if row is None:
            raise not_found(code, name)
        return row

    def cut(self, rows: Iterable[Row], *, sortable: Sequence[str], filters: Mapping[str, Any]) -> Page:
        """Cut one page from the rows."""
        return self.pages.cut(
            rows,
            listing=f"{self.operation.id}:{self.user}",
            params={"count": self.config.targeted_page_size, **filters, **self.params},
            sortable=sortable,
        )


Handler = Callable[[Call], Answer]
Serve = Callable[[Call, Line], Awaitable[Answer | None]]


def _answers_itself(call: Call) -> Answer:
    raise TypeError(f"{call.operation.id} is answered by `serve`, at once or not at all")


@attrs.frozen(kw_only=True)
class Operation:
    """One row of the sandbox's reference.

    Attributes:
        id: the contract's id.
        path: beginning with the version.
        handler: answers in one transaction.
        serve: answers instead of it, in its own time: it may wait, and may open a response of its own and keep it open.
            Its changes need transactions of their own, without an `await` inside.
        query: the declared query parameters, those of an `OAuth` header, and fields of the body.
        limit: the rate rule it counts in, in `config.RATE_RULES`; None counts nowhere.
        rule: the rule that a plain success rests on.
        basis: what that rule is.
        gate: what the app must have been let into, unless the configuration leaves it open.
        surface: where it lives; what lives on `ads` is served on `ads_sandbox` too.
        schemes: who may call: any of these.
        scopes: what a scoped token must all have.
        may_be_scoped: whether the configuration may let scoped tokens call it too.
        reads: whether it changes nothing that is the user's, whatever its method: a read-only token may call it.
        dialect: how its answers and refusals look.
        body: what it takes in the body; a JSON `array` is read by its family.
        batch: whether its refusals carry a list in `request`.
    """

    id: str
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Handler = attrs.field(default=_answers_itself, repr=False)
    serve: Serve | None = attrs.field(default=None, repr=False)
    query: tuple[Param, ...] = ()
    limit: str | None
    rule: str
    basis: Basis = Basis.SPEC
    gate: Gate | None = None
    surface: Surface = "ads"
    schemes: tuple[Scheme, ...] = ("oauth1_user",)
    scopes: tuple[str, ...] = ()
    may_be_scoped: bool = False
    reads: bool = attrs.field(default=attrs.Factory(lambda self: self.method == "GET", takes_self=True))
    dialect: Dialect = Dialect.ADS
    body: Literal["none", "array", "object", "form"] = "none"
    batch: bool = False

    @property
    def params(self) -> tuple[Param, ...]:
        """All declared parameters."""
        return path_params(self.path) + self.query


def one(row: Row) -> Answer:
    """Answer with one record."""
    return Answer(row.shown)


def many(page: Page) -> Answer:
    """Answer with a page of records."""
    return Answer([row.shown for row in page.rows], page)


def not_found(code: str, parameter: str) -> Refusal:
    """Refuse an id that names nothing (ASM-100, ASM-102)."""
    return Refusal(404, Problem(code, f"{parameter} names nothing here", parameter), rule="ASM-102")


def no_access(what: str) -> Refusal:
    """Refuse what the app, or the account, was not let into (ASM-22)."""
    # Unspecified: status and code (ASM-22).
    return Refusal(403, Problem("UNAUTHORIZED_CLIENT_APPLICATION", f"there is no access to {what}"), rule="ASM-22")


class Routes:
    """Finds the operation of a request."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        # A literal segment wins over an id: /cards/poll is no card.
        self.operations = tuple(sorted(operations, key=lambda operation: operation.path.count("{")))
        self._patterns = [(operation, _pattern(operation.path)) for operation in self.operations]

    def find(self, surface: Surface, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Find the operation and the decoded ids of the path.

        Raises:
            Refusal: there is none, in this version or on this surface (GEN-01, ASM-18, ASM-94).
        """
        for operation, pattern in self._patterns:
            served = operation.surface == surface or (operation.surface, surface) == ("ads", "ads_sandbox")
            if served and operation.method == method and (found := pattern.fullmatch(path)):
                return operation, {name: unquote(value) for name, value in found.groupdict().items()}
        raise Refusal(404, Problem("ROUTE_NOT_FOUND", "there is no such call here"), rule="GEN-01", basis=Basis.SPEC)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path))
