"""The receipts of a job, one by one, while it runs."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from svc_async.batch.report import Receipt, Report
from svc_async.batch.uploader import Uploader
from svc_async.cancellation import wait_through_cancellation

__all__ = ["Receipts"]

T = TypeVar("T")


class Receipts(Generic[T]):
    """The receipts of a job in the order of their answers, and its `report`.

    Use it as a context manager, or iterate to the end. `aclose` ends the job; what was in flight is pending then.
    """

    def __init__(self, create_uploader: Callable[[Callable[[Receipt], None]], Uploader[T]]) -> None:
        """Prepare a job.

        Args:
            create_uploader: returns the uploader that calls a function with each receipt.
        """
        self._receipts: asyncio.Queue[Receipt | None] = asyncio.Queue()
        self._uploader = create_uploader(self._receipts.put_nowait)
        self._task: asyncio.Task[Report] | None = None

    @property
    def report(self) -> Report:
        """What has become of the rows so far."""
        return self._uploader.report

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Receipt:
        """Return the next receipt.

        Raises:
            BatchError: the job could not be finished; all its receipts were returned before.
        """
        task = self._start()
        try:
            receipt = await self._receipts.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if receipt is not None:
            return receipt
        self._receipts.put_nowait(None)  # for the next call
        task.result()
        raise StopAsyncIteration

    def _start(self) -> "asyncio.Task[Report]":
        if self._task is None:
            self._task = asyncio.create_task(self._uploader.run())
            self._task.add_done_callback(lambda _: self._receipts.put_nowait(None))
        return self._task

    async def aclose(self) -> None:
        """End the job, if it runs, and wait until it has released everything, even if the caller is cancelled."""
        if self._task is None:
            return
        self._task.cancel()
        cancelled = await wait_through_cancellation(self._task)
        if cancelled is not None:
            raise cancelled

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
