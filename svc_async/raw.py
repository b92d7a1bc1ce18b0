"""The escape hatch: calls that this SDK does not list."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, overload

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument
from svc_async.value_rules import MAPPING, TEXT, or_none
from svc_async.wire.models import check_model
from svc_async.wire.params import Param, segment, to_pairs
from svc_async.wire.route import Reply, Request, Surface
from svc_async.wire.writing import to_json

__all__ = ["RawCalls"]

T = TypeVar("T")

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""Those of the reference, and PATCH for calls that it lacks; an answer to HEAD has no body to return."""
_MAIN_API = re.compile(r"/(1\.1|2)/")
_ADS_API = re.compile(r"/\d+/")
_ACCOUNT = re.compile(r"(/accounts/)([^/]+)")
_SHOWN = re.compile(r"/(?:\d+|1\.1)/(?:accounts/{account_id}(?:/[a-z_]+)?|[a-z_]+)(?![^/])")
"""The beginning of a path that names a kind of object: what follows may be the name or the id of one."""


class RawCalls(ABC):
    """Calls by method and path."""

    @property
    @abstractmethod
    def _pipeline(self) -> Pipeline: ...

    @overload
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        json: object = None,
        into: type[T],
        surface: Surface | str | None = None,
    ) -> T: ...

    @overload
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        json: object = None,
        into: None = None,
        surface: Surface | str | None = None,
    ) -> Any: ...

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        json: object = None,
        into: type[Any] | None = None,
        surface: Surface | str | None = None,
    ) -> Any:
        """Make a call that this SDK does not list, with the same signing, rate limits and retries.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: the path with its ids, not quoted and without a query. A path that starts with a version of the
                advertising API (`/12/`, `/5/`) is sent to the ads host, any other to the base host.
            params: the query; values that are None are left out, several values are joined by commas.
            json: the body; what is None in it is left out. Of a pydantic model, pass what `model_dump(mode="json")`
                returns.
            into: the class of the record in `data`: of attrs, a dataclass, a `msgspec.Struct`, a pydantic `BaseModel`,
                a `TypedDict` or `dict`; without it, the whole body is returned as plain values.
            surface: `"ads_sandbox"` for the sandbox host of the advertising API.

        Raises:
            InvalidArgument: an argument breaks its rule; nothing is sent.
            UnexpectedAnswer: the answer does not fit the class, or code of the class raised an error, which is named by
                its class and its line; what was sent has been done, and `body` is what came.
        """
        if into is not None:
            check_model(into)
        reply = Reply.BODY if into is None else Reply.RECORD
        request = attrs.evolve(_build(method, path, params, surface), into=into, reply=reply)
        if json is not None:
            request = request.with_body(to_json(json))
        del params, json  # what is sent must not be among the locals of a traceback
        return await self._pipeline.send(request)

    @overload
    def iterate(
        self,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        into: type[T],
        surface: Surface | str | None = None,
    ) -> Pager[T]: ...

    @overload
    def iterate(
        self,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        into: None = None,
        surface: Surface | str | None = None,
    ) -> Pager[Any]: ...

    def iterate(
        self,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        into: type[Any] | None = None,
        surface: Surface | str | None = None,
    ) -> Pager[Any]:
        """Return a pager over a listing that this SDK does not list.

        Args:
            path: as in `request`.
            params: the query, without `cursor` and `with_total_count`.
            into: the class of one record, as in `request`; without it, records are plain values.
            surface: `"ads_sandbox"` for the sandbox host of the advertising API.
        """
        or_none(MAPPING).check("params", params)
        if into is not None:
            check_model(into)
        if params and not params.keys().isdisjoint({"cursor", "with_total_count"}):
            raise InvalidArgument(
                "params", "must contain neither `cursor`, which `pages()` takes, nor `with_total_count`"
            )
        return Pager(self._pipeline, attrs.evolve(_build("GET", path, params, surface), into=into, reply=Reply.PAGE))


def _build(method: str, path: str, params: Mapping[str, Param] | None, surface: Surface | str | None) -> Request[Any]:
    or_none(MAPPING).check("params", params)
    TEXT.check("method", method)
    TEXT.check("path", path)
    if method.upper() not in _METHODS:
        raise InvalidArgument("method", f"must be one of {', '.join(_METHODS)}")
    if not path.startswith("/") or "?" in path or "#" in path:
        raise InvalidArgument("path", "must start with a slash and have no query; pass `params`")
    parts = path[1:].split("/")
    if not {".", ".."}.isdisjoint(parts):
        raise InvalidArgument("path", "must have no segment `.` or `..`")
    account = _ACCOUNT.search(path)
    template = _ACCOUNT.sub(r"\1{account_id}", path)
    beginning = _SHOWN.match(template)
    shown = beginning[0] if beginning else ""
    return Request(
        method=method.upper(),
        surface=_choose_surface(path, surface),
        template=template,
        path="".join(f"/{segment('path', part)}" for part in parts),
        query=to_pairs(params or {}),
        scope={"account_id": account.group(2)} if account else {},
        shown_path=shown if shown == template else f"{shown}/...",
    )


def _choose_surface(path: str, surface: Surface | str | None) -> Surface:
    if surface is not None:
        try:
            return Surface(surface)
        except ValueError:
            raise InvalidArgument("surface", f"must be one of {', '.join(each.value for each in Surface)}") from None
    return Surface.ADS if _ADS_API.match(path) and not _MAIN_API.match(path) else Surface.BASE
