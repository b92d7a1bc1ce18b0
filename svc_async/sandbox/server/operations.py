"""Operations of the service as values: route, parameters and the function that answers them."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal
from urllib.parse import unquote

import attrs

from svc_async.sandbox.config import Gate
from svc_async.sandbox.context import Context
from svc_async.sandbox.push.channels import AppChannels
from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.server.auth import Caller, Scheme
from svc_async.sandbox.server.decoding import Param, path_params
from svc_async.sandbox.server.rendering import Format, OpenResponse
from svc_async.sandbox.state.paging import Page
from svc_async.sandbox.state.store import Row

__all__ = [
    "Answer",
    "Call",
    "Handler",
    "Operation",
    "Routes",
    "Serve",
    "Surface",
    "no_access",
    "not_found",
]

Surface = Literal["base", "ads", "ads_sandbox"]

_WITHOUT_COUNT = 200  # Unspecified: entries on a page of a list without `count`


@attrs.frozen
class Answer:
    """The result of a handler.

    Attributes:
        data: on the advertising API, the content of `data`; elsewhere the whole answer.
        page: for a list, its page.
        request: the content of `request`, where that is not the parameters.
        rule: the rule that decided it, and what that rule is, where they are not those of the operation.
    """

    data: Any
    page: Page | None = None
    request: Any = None
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    rule: tuple[str, Basis] | None = None

    def envelope(self, request: Any) -> dict[str, Any]:
        """Return it in the envelope of the advertising API (GEN-03, GEN-04)."""
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
        params: all parameters of the operation except those of the path, with defaults.
        sent: those that were sent.
        headers: the headers of the request, for the pages that read cookies.
        secure: whether it came over https.
        body: the raw body; the fields of a JSON object or a form are in `params` and `sent` too.
        sandbox: the state that it works on.
        refused_items: the items that a fault refuses, by their positions.
    """

    operation: "Operation"
    caller: Caller
    path: Mapping[str, str]
    params: Mapping[str, Any]
    sent: Mapping[str, Any]
    headers: Mapping[str, str]
    secure: bool
    body: bytes
    size: int
    now: datetime
    sandbox: Context
    refused_items: Mapping[int, Problem] = attrs.field(factory=dict[int, Problem])

    @property
    def app_channels(self) -> AppChannels:
        """The webhooks, subscriptions and streams of the calling app."""
        return self.sandbox.channels.of_app(self.caller.app)

    @property
    def user(self) -> str:
        """The id of the calling user; empty where an app calls."""
        return self.caller.user

    @property
    def account(self) -> str:
        """The id of the account in the path."""
        return self.path["account_id"]

    def run(self) -> Answer:
        """Run the handler; its changes are applied as a whole or not at all."""
        with self.sandbox.store.transaction(self.user):
            return self.operation.handler(self)

    async def serve(self, response: OpenResponse) -> Answer | None:
        """Answer the call; None means that the operation wrote its answer itself."""
        return self.run() if self.operation.serve is None else await self.operation.serve(self, response)

    def find(self, kind: str, name: str, *, owner: str | None = None) -> Row:
        """Find the record that an id in the path names; deleted ones as `with_deleted` says.

        Args:
            kind: the kind of the record.
            name: the parameter of the path.
            owner: by default the account in the path.

        Raises:
            Refusal: there is none.
        """
        row = self.sandbox.store[kind].get(
            self.path[name],
            owner=self.account if owner is None else owner,
            with_deleted=self.params.get("with_deleted", False),
        )
        if row is None:
            raise not_found(name)
        return row

    def answer_page(
        self, rows: Iterable[Row], *, sortable: Sequence[str] = (), show: Callable[[Row], Mapping[str, Any]] = Row.show
    ) -> Answer:
        """Answer with the page of the rows that the parameters ask for."""
        page = self.sandbox.paginator.paginate(
            rows,
            listing=f"{self.operation.id}:{self.user}",
            params={"count": _WITHOUT_COUNT, **self.path, **self.params},
            sortable=sortable,
        )
        return Answer([show(row) for row in page.rows], page)


Handler = Callable[[Call], Answer]
Serve = Callable[[Call, OpenResponse], Awaitable[Answer | None]]


def _reject_run(call: Call) -> Answer:
    raise TypeError(f"{call.operation.id} has no handler: it is answered by `serve`")


@attrs.frozen(kw_only=True)
class Operation:
    """One row of the sandbox's reference.

    Attributes:
        id: the contract's id.
        path: beginning with the version.
        handler: answers in one transaction.
        serve: answers instead of it, asynchronously: it may wait, and may open a response of its own and keep it open.
            Its changes need transactions of their own, without an `await` inside.
        query: the declared query parameters, those of an `OAuth` header, and fields of the body.
        limit: the rate rule that counts it, in `config.RATE_RULES`; None counts nowhere.
        rule: the rule that a plain success rests on.
        basis: what that rule is.
        gate: the program that the app must have been admitted to, unless the configuration leaves it open.
        surface: where it is served; an operation of `ads` is served on `ads_sandbox` too.
        schemes: how a caller may authenticate: in any of these ways.
        scopes: the scopes that a scoped token must have.
        may_be_scoped: whether the configuration may let scoped tokens call it too.
        reads: whether it changes nothing of the user, whatever its method: a read-only token may call it.
        format: how its answers and refusals are written.
        body: what it takes in the body; the items of a JSON `array` are read by its module.
        batch: whether its refusals carry a list in `request`.
    """

    id: str
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Handler = attrs.field(default=_reject_run, repr=False)
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
    format: Format = Format.ADS
    body: Literal["none", "array", "object", "form"] = "none"
    batch: bool = False

    @property
    def params(self) -> tuple[Param, ...]:
        """All declared parameters."""
        return path_params(self.path) + self.query


def not_found(parameter: str, what: str | None = None) -> Refusal:
    """Return the refusal of an id or a key that names nothing (ASM-100, ASM-102).

    Args:
        parameter: the parameter with the id.
        what: the code begins with it; by default with the name of the parameter.
    """
    code = f"{(what or parameter.rpartition('_')[0]).upper()}_NOT_FOUND"
    return Refusal(404, Problem(code, f"{parameter} names nothing here", parameter), rule="ASM-102")


def no_access(what: str) -> Refusal:
    """Return the refusal of what the app, or the account, was not admitted to (ASM-22)."""
    # Unspecified: status and code (ASM-22).
    return Refusal(403, Problem("UNAUTHORIZED_CLIENT_APPLICATION", f"there is no access to {what}"), rule="ASM-22")


class Routes:
    """Finds the operation of a request."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        # A literal segment wins over an id: /cards/poll is no card.
        self.operations = tuple(sorted(operations, key=lambda operation: operation.path.count("{")))
        self._patterns = [(operation, _compile_path(operation.path)) for operation in self.operations]

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


@cache  # a sandbox starts in each test
def _compile_path(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path))
