"""Iterates over listings: by record, by page, the first record, all records, their number."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import attrs

from svc_async.engine.pipeline import Pipeline
from svc_async.errors import UnexpectedAnswer
from svc_async.value_rules import ValueRule, or_none, whole_number
from svc_async.wire.envelope import Page, make_unexpected
from svc_async.wire.route import Request

__all__ = ["CountedPager", "Pager"]

T = TypeVar("T")

_CURSOR = or_none(
    ValueRule(lambda value: isinstance(value, str) and value != "", "a string that is not empty"), "the first page"
)
_LIMIT = or_none(whole_number(0), "all")
_LOOP = "pagination loop: the service returned a cursor with which this listing was called before"


@attrs.frozen(eq=False, repr=False)
class Pager(Generic[T]):
    """A lazy listing: iterate over it, and its pages are fetched as needed; await it for the first page.

    Each iteration starts at the first page, so a pager can be iterated over many times. The next page is requested
    while the current one is consumed. An empty page is not the end; a missing `next_cursor` is (contract GEN-04).

    `page` returns one page, and sends no request for the next.

    A cursor that comes again would never end: the records of its page are followed by `UnexpectedAnswer`.

    If a page cannot be fetched, the error ends that iteration. To continue, iterate over `pages(cursor=)` with the
    `next_cursor` of the last page that arrived, or over the pager from its first page.

    Records that cannot be read are in `page.unreadable` of their page. The other ways to iterate skip them; the session
    logs each page with such records, and its `on_event` receives their number.
    """

    _pipeline: Pipeline
    _request: Request[Page[T]]

    def __attrs_post_init__(self) -> None:
        self._pipeline.check(self._request)

    def __repr__(self) -> str:
        kind = getattr(self._request.into, "__name__", "records")
        return f"<{type(self).__name__} of {kind}: {self._request.method} {self._request.template}>"

    def __await__(self) -> Generator[Any, None, Page[T]]:
        """Return the first page."""
        return self._fetch(self._request).__await__()

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over the records, page by page."""
        return self._iterate_items()

    if not TYPE_CHECKING:  # checkers, and isinstance(pager, Iterable), see that it cannot be iterated over like this

        def __getitem__(self, position: object) -> NoReturn:
            """Say how to iterate, to a `for` without `async` and to whoever takes it for a list."""
            raise TypeError("a listing is fetched page by page: use `async for`, or `await pager.collect()` for a list")

        async def __aenter__(self) -> NoReturn:
            """Say how to iterate, to an `async with`."""
            raise TypeError("a listing has nothing to close: use `async for` without `async with`")

        async def __aexit__(self, *details: object) -> None:
            """Exist, since Python looks for both before it enters a block."""

    def pages(self, *, cursor: str | None = None) -> AsyncGenerator[Page[T]]:
        """Iterate over whole pages; the next one is requested while the current one is consumed.

        Args:
            cursor: where to start: the `next_cursor` of a page of the same listing; None is the first page.
        """
        return self._iterate_pages(self._at(cursor), cursor)

    async def page(self, *, cursor: str | None = None) -> Page[T]:
        """Return one page, with one request; its `next_cursor` is the `cursor` of the next.

        Args:
            cursor: as in `pages`.

        Raises:
            InvalidArgument: the cursor is no string, or an empty one.
        """
        return await self._fetch(self._at(cursor))

    def _at(self, cursor: str | None) -> Request[Page[T]]:
        _CURSOR.check("cursor", cursor)
        return self._request.at(cursor)

    async def first(self) -> T | None:
        """Return the first record that can be read, or None if there is none at all.

        Raises:
            UnexpectedAnswer: there are records, but none can be read.
        """
        error: UnexpectedAnswer | None = None
        async with aclosing(self._iterate_pages(self._request)) as pages:
            async for page in pages:
                if page.items:
                    return page.items[0]
                if page.unreadable and error is None:
                    error = _unexpected(f"no record can be read: {page.unreadable[0].problem}", page)
        if error is not None:
            raise error
        return None

    async def collect(self, *, limit: int | None = None) -> list[T]:
        """Return the records that can be read as a list.

        Args:
            limit: the maximum number of records; None returns all.
        """
        _LIMIT.check("limit", limit)
        records: list[T] = []
        if limit == 0:
            return records
        async with aclosing(self._iterate_pages(self._request)) as pages:
            async for page in pages:
                records += page.items
                if limit is not None and len(records) >= limit:
                    break
        return records[:limit]

    async def _iterate_items(self) -> AsyncGenerator[T]:
        async with aclosing(self._iterate_pages(self._request)) as pages:
            async for page in pages:
                for item in page.items:
                    yield item

    async def _iterate_pages(self, first: Request[Page[T]], start: str | None = None) -> AsyncGenerator[Page[T]]:
        page = await self._fetch(first)
        seen = {hash(start)}  # of the cursors: there may be a million, of any length
        while page.next_cursor is not None:
            if hash(page.next_cursor) in seen:
                page = attrs.evolve(page, broken_cursor=_unexpected(_LOOP, page))
                break
            seen.add(hash(page.next_cursor))
            next_page = self._request.at(page.next_cursor)
            # Starts when the consumer of this page first awaits: one that stops before then costs no extra request.
            fetching = asyncio.ensure_future(self._fetch(next_page))
            try:
                yield page
                page = await fetching
            finally:
                fetching.cancel()
        yield page
        if page.broken_cursor is not None:
            raise page.broken_cursor

    async def _fetch(self, request: Request[Page[T]]) -> Page[T]:
        page, answer = await self._pipeline.send_with_answer(request)
        return attrs.evolve(page, answer=answer)


@attrs.frozen(eq=False, repr=False)
class CountedPager(Pager[T]):
    """A listing that the service counts on request."""

    async def total_count(self) -> int:
        """Return the number of records; limited to 200 calls in 15 minutes (contract GEN-10).

        Raises:
            UnexpectedAnswer: the answer has no `total_count`.
        """
        page = await self._fetch(self._request.with_params(with_total_count=True))
        if page.total_count is None:
            raise _unexpected("the answer has no `total_count`", page)
        return page.total_count


def _unexpected(message: str, page: Page[Any]) -> UnexpectedAnswer:
    """Return the exception of a page that was read and does not help."""
    answer = page.answer
    assert answer is not None  # noqa: S101 - pages that a pager fetches have one
    return make_unexpected(message, answer)
