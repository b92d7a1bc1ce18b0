"""Opens clients of Dask clusters, and checks what a job needs of them."""

import asyncio
import errno
import logging
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as read_version
from types import MappingProxyType
from typing import Any

from dask import config
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

from svc_async._version import __version__
from svc_async.batch.settings import Observers
from svc_async.cluster.worker.sessions import describe_versions
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import InvalidArgument, SvcError
from svc_async.state.journals import StateJournal
from svc_async.value_rules import COUNT, or_none

__all__ = [
    "ClusterFailed",
    "check_call",
    "check_client",
    "check_workers",
    "describe_error",
    "open_client",
    "release",
    "start_local",
]

_log = logging.getLogger("svc_async")

_DISTRIBUTION = "svc-async"
_ASYNCHRONOUS = "must be an asynchronous client: Client(address, asynchronous=True), used inside `async with`"
_CONNECT_SECONDS = 10
_THREADS = 1
"""Of a worker process on this machine: it encodes one fragment at a time, and those that send shards do not count."""
_ALLOWED_FAILURES = 100
"""How many workers may be lost with a task before it fails, on this machine: the journals keep a repeat harmless."""
_FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FULL_SHUFFLE = "P2POutOfDiskError"
"""The error of Dask's shuffle, which it does not export."""
_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "distributed.scheduler.allowed-failures": _ALLOWED_FAILURES,
        "distributed.worker.profile.enabled": False,
        # By default each of its processes wakes up fifty times a second to see whether it does.
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "5s",
        "distributed.admin.system-monitor.disk": False,
        # Dask has memory returned at once by a setting with which glibc maps and unmaps each larger block.
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
        "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "error",
        "distributed.worker.memory.terminate": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,  # pieces are on disk
    }
)
_START: Mapping[str, Any] = MappingProxyType(
    {"distributed.worker.multiprocessing-method": "forkserver"} if sys.platform == "linux" else {}
)
"""Worker processes are forked from one that has imported what they need: otherwise each begins with seconds of CPU."""
_PRELOAD = "svc_async.cluster.worker.preload"


class ClusterFailed(SvcError):
    """The cluster could not do a part of a job; a repeated call resumes it, and sends nothing that is finished."""

    repeatable = True


@asynccontextmanager
async def open_client(address: str) -> AsyncGenerator[Any]:
    """Connect to a scheduler.

    Raises:
        InvalidArgument: the address is none.
        ClusterFailed: the scheduler cannot be reached.
    """
    try:
        client = await Client(address, asynchronous=True, timeout=_CONNECT_SECONDS)
    except ValueError:
        raise InvalidArgument("cluster", "must be the address of a scheduler, such as tcp://HOST:8786") from None
    except (OSError, TimeoutError) as error:
        name = type(error).__name__
        raise ClusterFailed(f"the scheduler at {address} cannot be reached ({name}): check the address") from None
    async with client:
        yield client


@asynccontextmanager
async def start_local(workers: int | None = None) -> AsyncGenerator[Any]:
    """Start a cluster of processes on this machine, and stop it in the end.

    The processes have the environment of this one, and log errors only.

    Args:
        workers: how many processes; by default, as many as there are processors.
    """
    count = workers or os.cpu_count() or 1
    options: dict[str, Any] = {
        "n_workers": count,
        "threads_per_worker": _THREADS,
        "processes": True,
        "asynchronous": True,
        "dashboard_address": "127.0.0.1:0",  # of its health page; by default a second cluster warns that it is taken
        "scheduler_kwargs": {"dashboard": False},
        "silence_logs": False,  # it would change the handlers of this process
        "env": dict(os.environ),
    }
    with config.set({**_SETTINGS, **_START}):
        if _START:
            get_mp_context().set_forkserver_preload([_PRELOAD])
        async with LocalCluster(**options) as cluster, Client(cluster, asynchronous=True) as client:
            yield client


def check_client(client: object) -> None:
    """Check that a client can be awaited.

    Raises:
        InvalidArgument: it cannot.
    """
    if not getattr(client, "asynchronous", False):
        raise InvalidArgument("cluster", _ASYNCHRONOUS)


def check_call(
    client: object, journal: object, origin: SessionOrigin | None, shards: int | None, observers: Observers
) -> tuple[StateJournal, SessionOrigin]:
    """Check the arguments of a job on a cluster.

    Raises:
        InvalidArgument: names the argument and what it must be.
    """
    check_client(client)
    if not isinstance(journal, StateJournal):
        raise InvalidArgument("journal", "must be given with cluster=, in the shared state: state.journal(name)")
    if origin is None:
        rule = "must come from Session.from_env() or from_profile(): credentials are never sent to a worker"
        raise InvalidArgument("credentials", rule)
    or_none(COUNT).check("shards", shards)
    if observers.on_receipt is not None:
        raise InvalidArgument("on_receipt", "must not be given with cluster=: the receipts stay on the workers")
    return journal, origin


async def check_workers(client: Any) -> int:
    """Check that the workers that answer have the version of this process; return how many workers there are.

    One that stands still keeps nobody waiting: what it is given is done elsewhere once the scheduler notices.

    Raises:
        InvalidArgument: one has another version, or does not have the package.
        ClusterFailed: the scheduler does not answer.
    """
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            workers = await client.nthreads()
    except (OSError, TimeoutError) as error:
        raise ClusterFailed(f"the scheduler of the cluster does not answer ({type(error).__name__})") from None
    if not workers:
        _log.warning("the cluster has no workers; the job waits for them")
    calls = [
        asyncio.ensure_future(client.run(read_version, _DISTRIBUTION, workers=[each], on_error="return"))
        for each in workers
    ]
    try:
        for call in asyncio.as_completed(calls, timeout=_CONNECT_SECONDS):
            for version in (await call).values():
                _check_version(version)
    except TimeoutError:
        pass
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    return len(workers)


def _check_version(version: object) -> None:
    """Check the version of a worker, or the error that it was asked with; one that cannot be reached has none."""
    if isinstance(version, PackageNotFoundError):
        raise InvalidArgument("cluster", 'needs workers with pip install "svc-async[cluster]": one has none')
    if isinstance(version, str) and version != __version__:
        raise InvalidArgument("cluster", describe_versions(__version__, version))


async def release(client: Any, futures: Sequence[Any]) -> None:
    """Have a cluster forget tasks and their results, unless its scheduler is gone or stands still."""
    with suppress(Exception):
        async with asyncio.timeout(_CONNECT_SECONDS):
            await client.cancel(futures)


def describe_error(error: BaseException) -> SvcError:
    """Return the error of a task as one of this package."""
    if isinstance(error, SvcError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return ClusterFailed(f'a worker lacks the package {error.name}: pip install "svc-async[cluster]" there')
    if isinstance(error, OSError) and (error.errno in _FULL_DISK or type(error).__name__ == _FULL_SHUFFLE):
        return ClusterFailed(
            "the disk of a worker is full: free space in its temporary directory, then run the job again to resume it"
        )
    return ClusterFailed(f"a task of the cluster failed ({type(error).__name__}); the log of the worker says why")
