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
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from dask import config
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker
from distributed.security import Security
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
_PROTECTED = ("tls://", "wss://", "inproc://")
"""How addresses begin at which only those are heard who have a certificate, or who are in this process."""
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
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
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
        InvalidArgument: it is not the address of a scheduler, or not what the settings of Dask demand.
        ClusterFailed: the scheduler cannot be reached.
    """
    try:
        _check_encryption(address)
        client = await Client(address, asynchronous=True, timeout=_CONNECT_SECONDS)
    except ValueError:
        raise InvalidArgument("cluster", "must be the address of a scheduler, such as tls://HOST:8786") from None
    except (OSError, TimeoutError) as error:
        name = type(error).__name__
        raise ClusterFailed(f"the scheduler at {address} cannot be reached ({name}): check the address") from None
    async with client:
        yield client


def _check_encryption(address: str) -> None:
    """Check that an address and the settings of Dask agree on TLS; Dask finds out too late to close what it has opened.

    Raises:
        InvalidArgument: they do not.
    """
    settings = Security().get_connection_args("client")
    if address.startswith(_PROTECTED):
        if settings["ssl_context"] is None:
            rule = "needs certificates for an address with tls://: name them in distributed.comm.tls of Dask's settings"
            raise InvalidArgument("cluster", rule)
    elif settings["require_encryption"]:
        rule = "must begin with tls://: distributed.comm.require-encryption of Dask's settings demands it"
        raise InvalidArgument("cluster", rule)


class _LocalScheduler(Scheduler):
    def start_http_server(self, *_arguments: object, **_options: object) -> None:
        """Start no server: its pages would show every user what the workers do, and Dask has no setting for it."""


class _LocalWorker(Worker):
    def start_http_server(self, *_arguments: object, **_options: object) -> None:
        """Start no server, likewise."""


@asynccontextmanager
async def start_local(workers: int | None = None) -> AsyncGenerator[Any]:
    """Start a cluster of processes on this machine, and stop it in the end.

    The processes have the environment of this one, and log errors only. Dask executes what it receives, so whatever
    listens demands a certificate that only these processes have. Dask also imports modules from the folder of its
    temporary files, which is private therefore.

    Args:
        workers: how many processes; by default, as many as there are processors.
    """
    security = Security.temporary()  # a key and a certificate in memory
    common = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
    options = {**common, "worker_class": _LocalWorker, "nthreads": _THREADS, "env": dict(os.environ)}
    worker = {"cls": Nanny, "options": options}
    with (
        TemporaryDirectory(
            prefix="svc-async-", dir=config.get("temporary-directory", None), ignore_cleanup_errors=True
        ) as folder,
        config.set({**_SETTINGS, **_START, "temporary-directory": folder}),
    ):
        if _START:
            get_mp_context().set_forkserver_preload([_PRELOAD])
        async with (
            SpecCluster(
                dict.fromkeys(range(workers or os.cpu_count() or 1), worker),
                scheduler={"cls": _LocalScheduler, "options": {**common, "port": 0, "dashboard": False}},
                worker=worker,
                security=security,
                asynchronous=True,
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
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

    One that stands still keeps nobody waiting: what it is given is done elsewhere once the scheduler notices. A
    cluster without TLS is named in a warning.

    Raises:
        InvalidArgument: one has another version, or does not have the package.
        ClusterFailed: the scheduler does not answer.
    """
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            workers = await client.nthreads()
    except (OSError, TimeoutError) as error:
        raise ClusterFailed(f"the scheduler of the cluster does not answer ({type(error).__name__})") from None
    if not client.scheduler.address.startswith(_PROTECTED):
        _log.warning("the cluster has no TLS: whoever reaches its scheduler runs code with the rights of its workers")
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
