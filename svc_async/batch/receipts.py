"""The receipts of a job, one by one, while it runs."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from svc_async.batch.report import Receipt, Report
from svc_async.batch.source import RowSource
from svc_async.batch.uploader import Job

__all__ = ["Receipts"]

T = TypeVar("T")


class Receipts(Generic[T]):
    """The receipts of a job as they come, and its `report`.

    Use it as a context manager, or iterate to the end: `aclose` ends the job, and what was under way is pending.
    """

    def __init__(self, source: RowSource, make: Callable[[Callable[[Receipt], None]], Job[T]]) -> None:
        self._receipts: asyncio.Queue[Receipt | None] = asyncio.Queue()
        self._source = source
        self._job = make(self._receipts.put_nowait)
        self._task: asyncio.Task[Report] | None = None

    @property
    def report(self) -> Report:
        """What has become of the rows so far."""
        return self._job.report

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Receipt:
        """Give the next receipt.

        Raises:
            BatchError: the job could not be finished; all receipts were given before.
        """
        task = self._running()
        try:
            receipt = await self._receipts.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if receipt is not None:
            return receipt
        self._receipts.put_nowait(None)  # for whoever asks again
        task.result()
        raise StopAsyncIteration

    def _running(self) -> "asyncio.Task[Report]":
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(lambda _: self._receipts.put_nowait(None))
        return self._task

    async def _run(self) -> Report:
        async with self._source.open():
            return await self._job.run()

    async def aclose(self) -> None:
        """End the job, if it runs, and wait until it has let go of everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
