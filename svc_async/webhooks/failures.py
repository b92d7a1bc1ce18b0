"""Which exceptions are failures of the code that is called for an event: handlers, callbacks and stores."""

import asyncio

__all__ = ["find_task", "is_end", "is_failure"]


def is_failure(error: BaseException, task: "asyncio.Task[object] | None") -> bool:
    """Return whether an exception that was caught is a failure of the code that raised it.

    That is any exception, also one that is no `Exception`, such as a panic of an extension module in Rust or the
    `Failed` of pytest; unless it ends the process, or is the end of the task.

    Args:
        error: the exception.
        task: the task in which it was caught: what `find_task` returned before.
    """
    return not isinstance(error, KeyboardInterrupt | SystemExit) and not is_end(error, task)


def is_end(error: BaseException, task: "asyncio.Task[object] | None") -> bool:
    """Return whether an exception that was caught is the end of its task: it is cancelled, or its event loop is closed.

    Where the event loop is closed before a task ends, the coroutine of the task is closed when nothing needs it.
    """
    if find_task() is not task:
        return True
    # A cancellation that nobody asked for is one of something that the task has awaited.
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def find_task() -> "asyncio.Task[object] | None":
    """Return the task that runs; None if none does, also because no event loop runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
