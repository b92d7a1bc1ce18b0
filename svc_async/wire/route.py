"""The rows of the service's reference as values.

A `Route` is one operation; calling it with the operation's parameters returns a `Request`, which knows the type of its
answer. A `Listing` is a route that answers with pages.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import attrs

from svc_async.errors import InvalidArgument
from svc_async.wire.envelope import Page
from svc_async.wire.params import (
    Check,
    Param,
    fill_path,
    find_wrong_number,
    find_wrong_text,
    first_problem,
    query_string,
    to_pairs,
)
from svc_async.wire.writing import to_json

__all__ = ["FORM", "Blocks", "Listing", "Reply", "Request", "Route", "Surface"]

T = TypeVar("T")

_JSON = "application/json"
"""Contract GEN-16."""
FORM = "application/x-www-form-urlencoded"
"""Contract AUTH-20b."""


class Surface(enum.Enum):
    """The hosts of the platform (contract `operations.toml`, `surface`)."""

    __hash__ = object.__hash__  # that of Enum is a Python function; several look-ups of each request need it

    BASE = "base"
    ADS = "ads"
    ADS_SANDBOX = "ads_sandbox"


class Reply(enum.Enum):
    """Where an answer has its value."""

    __hash__ = object.__hash__  # as above

    RECORD = enum.auto()
    """`data` is one record: an object, or an array of one. On the main API the whole body may be the record."""
    PAGE = enum.auto()
    """`data` is an array of records, possibly with `next_cursor` and `total_count` beside it."""
    META_PAGE = enum.auto()
    """The main API's page: `data`, omitted if empty, and `meta`, whose `next_token` refers to the next page."""
    BODY = enum.auto()
    """The whole body is the value."""
    FORM = enum.auto()
    """The whole body is the value, form-encoded (contract AUTH-08, AUTH-14d)."""
    UNSTATED = enum.auto()
    """The answer is not documented: `data` is one record if it can be parsed as one, else there is no value."""


@attrs.frozen
class Blocks:
    """A large body in blocks that are never joined, with its total size.

    Attributes:
        blocks: the blocks; they can be iterated over for each attempt to send them.
    """

    blocks: Iterable[bytes]
    size: int


@attrs.frozen(kw_only=True)
class Request(Generic[T]):
    """One call, ready to be signed and sent.

    Attributes:
        template: the path as the reference prints it; the governor looks up its limits by it.
        path: the path with its quoted ids.
        query: quoted names and values, in the order in which they are sent.
        scope: the ids in the path, by name, such as `account_id`.
        body: the body.
        content_type: the media type of the body.
        oauth: protocol parameters of OAuth 1.0a besides those of every call, by their full names; not quoted.
        into: the model of the answer; None for plain JSON values.
        wrapper: the name under which `data` may hold the record, instead of being it.
        decides: the answer decides which rows of a batch are done, so no object may have a name twice, and no record
            of a page may be left out.
        problem: the first rule that the parameters break, for sessions that validate before sending.
        shown_path: the path in logs and events, if it is not the template.
    """

    method: str
    surface: Surface
    template: str
    path: str
    query: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    scope: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes | Blocks | None = attrs.field(default=None, repr=False)
    content_type: str = _JSON
    oauth: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    reply: Reply = Reply.RECORD
    into: Any = None
    wrapper: str | None = None
    decides: bool = False
    problem: InvalidArgument | None = None
    shown_path: str | None = None

    @property
    def public_path(self) -> str:
        """The path in logs and events, without anything that identifies a person or an account."""
        return self.template if self.shown_path is None else self.shown_path

    @property
    def hidden_segments(self) -> int:
        """How many segments at the end of the path may be names or ids, since the SDK does not list the call."""
        shown = self.public_path
        return self.path.count("/") - shown.count("/") + 1 if shown.endswith("/...") else 0

    @property
    def safe_to_repeat(self) -> bool:
        """Whether sending it twice has the same effect and the same answer as sending it once.

        A DELETE has not: the second may be answered with 404 (contract LI-20c).
        """
        return self.method in {"GET", "PUT"}

    def with_params(self, **params: Param) -> "Request[T]":
        """Return the request with more query parameters; those that are None are left out."""
        return attrs.evolve(self, query=self.query + to_pairs(params))

    def at(self, cursor: str | None) -> "Request[T]":
        """Return the request for the page of a listing at a cursor; None is the first page."""
        name = "pagination_token" if self.reply is Reply.META_PAGE else "cursor"
        return self.with_params(**{name: cursor})

    def with_body(self, body: bytes | Blocks) -> "Request[T]":
        """Return the request with this body."""
        return attrs.evolve(self, body=body)

    def with_problem(self, problem: InvalidArgument | None) -> "Request[T]":
        """Return the request with the result of a rule that was checked apart, such as one that needs the time."""
        return attrs.evolve(self, problem=self.problem or problem)


@attrs.frozen(slots=False)
class Route(Generic[T]):
    """One operation of the reference.

    Attributes:
        method: the HTTP method.
        path: the whole path, version included, with the ids in braces.
        into: the model of the answer.
        surface: the host.
        json: parameters outside the path are sent as a JSON object, not in the query (contract GEN-15).
        form: they are sent form-encoded in the body.
        oauth: those sent in the `Authorization` header of OAuth 1.0a, by their full names.
        reply: where the answer has its value.
        wrapper: the name under which `data` may hold the record, instead of being it.
        decides: see `Request`.
        checks: the rules that are checked before sending.
    """

    method: str
    path: str
    into: type[T] | None
    surface: Surface = attrs.field(default=Surface.ADS, kw_only=True)
    json: bool = attrs.field(default=False, kw_only=True)
    form: bool = attrs.field(default=False, kw_only=True)
    oauth: Sequence[str] = attrs.field(default=(), kw_only=True)
    reply: Reply = attrs.field(default=Reply.RECORD, kw_only=True)
    wrapper: str | None = attrs.field(default=None, kw_only=True)
    decides: bool = attrs.field(default=False, kw_only=True)
    checks: Sequence[Check] = attrs.field(default=(), kw_only=True)

    def __call__(self, **params: Any) -> Request[T]:
        """Fill the path with the ids; the other parameters are sent in the query or in the body."""
        problem = first_problem(self._all_checks, params)
        try:
            return self._build(params, problem)
        except InvalidArgument as error:  # it cannot be encoded, which the broken rule of the operation explains better
            if problem is None or error.rule_ids or error.parameter not in {problem.parameter, "json"}:
                raise
        raise problem

    def _build(self, params: dict[str, Any], problem: InvalidArgument | None) -> Request[T]:
        scope = {name: params.pop(name) for name in self.ids}
        oauth = {name: params.pop(name) for name in self.oauth} if self.oauth else None
        body = None
        if self.form:
            body = query_string(to_pairs(params)).encode("ascii")
        elif self.json:
            body = to_json(params, name="")
        return Request(
            method=self.method,
            surface=self.surface,
            template=self.path,
            path=fill_path(self.path, scope),
            query=() if self.json or self.form else to_pairs(params),
            scope=scope,
            body=body,
            content_type=FORM if self.form else _JSON,
            oauth=oauth,
            reply=self.reply,
            into=self.into,
            wrapper=self.wrapper,
            decides=self.decides,
            problem=problem,
        )

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The names in the braces of the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def _all_checks(self) -> Sequence[Check]:
        return (find_wrong_text, *self.checks, find_wrong_number)


@attrs.frozen(slots=False)
class Listing(Generic[T]):
    """An operation that answers with an array of records: a GET with pages, or another with one page.

    Attributes:
        path: the whole path, version included, with the ids in braces.
        into: the model of one record.
        method: the HTTP method.
        surface: the host.
        reply: the form of its pages.
        checks: the rules that are checked before sending.
        decides: see `Request`.
    """

    path: str
    into: type[T]
    method: str = attrs.field(default="GET", kw_only=True)
    surface: Surface = attrs.field(default=Surface.ADS, kw_only=True)
    reply: Reply = attrs.field(default=Reply.PAGE, kw_only=True)
    checks: Sequence[Check] = attrs.field(default=(), kw_only=True)
    decides: bool = attrs.field(default=False, kw_only=True)

    def __call__(self, **params: Any) -> Request[Page[T]]:
        """Fill the path with the ids; the other parameters are sent in the query."""
        return self._route(**params)

    @cached_property
    def _route(self) -> Route[Page[T]]:
        row: Route[Any] = Route(
            self.method,
            self.path,
            self.into,
            surface=self.surface,
            reply=self.reply,
            checks=self.checks,
            decides=self.decides,
        )
        return row
