"""Walks the pages of a listing: items, whole pages, the first, all of them, how many."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Generic, TypeVar

import attrs

from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument, UnexpectedAnswer
from svc_async.wire.envelope import Page
from svc_async.wire.route import Request

__all__ = ["CountedPager", "Pager"]

T = TypeVar("T")


@attrs.frozen
class Pager(Generic[T]):
    """A listing that has not been asked for yet: iterate it, and its pages are fetched as they are needed.

    Each way of walking starts anew, so one pager can be walked many times. The next page is asked for while the
    current one is being read. An empty page is not the end; only a missing `next_cursor` is (contract GEN-04).
    """

    _pipeline: Pipeline
    _request: Request[Page[T]]

    def __attrs_post_init__(self) -> None:
        self._pipeline.check(self._request)

    def __aiter__(self) -> AsyncIterator[T]:
        """Walk the records, page after page."""
        return self._items()

    def pages(self, *, cursor: str | None = None) -> AsyncIterator[Page[T]]:
        """Walk whole pages.

        Args:
            cursor: where to go on: the `next_cursor` of a page of the same listing; None starts at the first.
        """
        return self._walk(self._request.at(cursor))

    async def first(self) -> T | None:
        """Give the first record, or None if there is none."""
        async with aclosing(self._walk(self._request)) as pages:
            async for page in pages:
                if page.items:
                    return page.items[0]
        return None

    async def collect(self, *, limit: int | None = None) -> list[T]:
        """Give the records as a list.

        Args:
            limit: the most to give; None gives all there are.
        """
        if limit is not None and limit < 0:
            raise InvalidArgument("limit", "must be at least 0")
        found: list[T] = []
        if limit == 0:
            return found
        async with aclosing(self._walk(self._request)) as pages:
            async for page in pages:
                found += page.items
                if limit is not None and len(found) >= limit:
                    break
        return found[:limit]

    async def _items(self) -> AsyncGenerator[T]:
        async with aclosing(self._walk(self._request)) as pages:
            async for page in pages:
                for item in page.items:
                    yield item

    async def _walk(self, first: Request[Page[T]]) -> AsyncGenerator[Page[T]]:
        page = await self._pipeline.send(first)
        cursor: str | None = None
        while page.next_cursor is not None:
            if page.next_cursor == cursor:
                raise UnexpectedAnswer(
                    "the listing goes round in a circle: a page names itself as the next", status=200
                )
            cursor = page.next_cursor
            following = self._request.at(cursor)
            # Begins when the reader of this page first waits: who leaves before that asked for no page too many.
            fetching = asyncio.ensure_future(self._pipeline.send(following))
            try:
                yield page
                page = await fetching
            finally:
                fetching.cancel()
        yield page


@attrs.frozen
class CountedPager(Pager[T]):
    """A listing that the service counts on demand."""

    async def total_count(self) -> int:
        """Ask how many records there are, at a limit of its own: 200 calls in 15 minutes (contract GEN-10).

        Raises:
            UnexpectedAnswer: the service gave no `total_count`.
        """
        page = await self._pipeline.send(self._request.with_params(with_total_count=True))
        if page.total_count is None:
            raise UnexpectedAnswer("the answer has no `total_count`", status=200)
        return page.total_count
