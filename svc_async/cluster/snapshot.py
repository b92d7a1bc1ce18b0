"""The rows of a source for a sync, which the workers of a cluster read.

    plan → a task a fragment, a few ahead → their slices, in the order of the source, a part of a fragment at a time
         → comparison, sending: here

Nothing is exchanged between workers: rows of one key meet in the comparison, which is one for the whole list, since all
removals come before the first addition. If a fragment cannot be read, the sync ends before anything is sent: the people
of a fragment that is missing would be removed.
"""

import itertools
import tempfile
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from operator import getitem
from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from svc_async.batch.job import Job
from svc_async.batch.packing.positions import PlainRun, Positions
from svc_async.batch.report import Failure, Progress
from svc_async.cluster.clients import ClusterFailed, check_client, check_workers, describe_error, release
from svc_async.cluster.encode import create_encoder
from svc_async.cluster.fragments import list_places, open_fragment, read_slices
from svc_async.cluster.plan import Fragment, SourcePlan
from svc_async.cluster.planning import plan_in_thread
from svc_async.errors import SvcError
from svc_async.sources.blocks.files import unusable
from svc_async.sync.pages.spill import Blobs
from svc_async.sync.product_slices import pack_products
from svc_async.sync.snapshot import Snapshot, SnapshotSlice
from svc_async.sync.user_slices import pack_users

__all__ = ["count_parts", "open_snapshot", "read_fragment"]

_MAX_CONTENT = 268_435_456
"""Bytes of the rows of a fragment, which are in the memory of a worker at once."""
_PART_ROWS = 131_072
_PART_TEXT = 8_388_608
"""Bytes of text, which become about as many."""


@attrs.frozen
class FragmentSlices:
    """Consecutive rows of a fragment.

    Attributes:
        slices: the rows, in their order.
        places: where they are in their file, counted from 1: positions as plain values.
    """

    slices: Sequence[SnapshotSlice]
    places: Sequence[PlainRun]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(each.count for each in self.slices)


def count_parts(fragment: Fragment) -> int:
    """Return in how many parts the rows of a fragment are to be returned."""
    if fragment.end is None:
        return max(1, -(-fragment.file.source.size // _PART_TEXT))
    return max(1, -(-(fragment.end - fragment.start) // (_PART_TEXT if fragment.group is None else _PART_ROWS)))


def read_fragment(fragment: Fragment, *, job: Job, parts: int = 1) -> Sequence[FragmentSlices]:
    """Return the rows of a fragment in parts, some of which are empty if it has few rows.

    Args:
        fragment: the fragment.
        job: the sync.
        parts: how many parts.

    Raises:
        UnusableFile: it cannot be parsed; a sync cannot do without any part of its source.
        SourceUnavailable: the file cannot be read here and now, or was changed.
        InvalidArgument: an extra is missing on this machine.
    """
    slices: list[SnapshotSlice] = []
    places: list[Positions] = []
    first = size = 0
    with open_fragment(fragment, job) as opened:
        pack, rows = _open_rows(opened, job)
        for part in read_slices(rows):
            slices.append(pack(part))
            places.append(Positions.pack(list_places(opened, fragment, first, len(part))))
            first += len(part)
            size += len(slices[-1].content)
            if size > _MAX_CONTENT:
                rule = f"has more than {_MAX_CONTENT >> 20} MiB of rows in one fragment; write smaller row groups"
                raise unusable(opened.name, rule)
    ends = [len(slices) * number // parts for number in range(parts + 1)]
    return [
        FragmentSlices(slices[start:end], Positions.merge(places[start:end]).to_plain())
        for start, end in itertools.pairwise(ends)
    ]


def _open_rows(opened: Any, job: Job) -> tuple[Callable[[Sequence[Any]], SnapshotSlice], object]:
    """Return what packs a slice of rows, and the rows."""
    if job.target.kind == "catalog":
        return pack_products, opened.products()
    encoder = create_encoder(job).for_rows(opened.columns)
    return lambda part: pack_users(encoder.hash(part)), opened.rows().rows


_RETRIES = 3
"""How often Dask repeats a task that failed: a fragment on a storage that was away for a moment."""
_AHEAD = 2
"""Fragments a thread of the workers that are read, or wait to be fetched, so that these hold only a few in memory."""


@asynccontextmanager
async def open_snapshot(job: Job) -> AsyncGenerator[Snapshot]:
    """Plan the source of a sync, and have the workers of its cluster read it.

    Raises:
        InvalidArgument: an argument cannot be used, or the workers have another version.
        UnusableFile: the source cannot be used.
        SourceUnavailable: a storage cannot be read.
    """
    cluster: Any = job.cluster
    check_client(cluster)
    if job.observers.progress is not None:
        job.observers.progress(Progress(phase="planning"))
    await check_workers(cluster)
    plan = await plan_in_thread(job.detach())
    with _RowPlaces(plan) as places:
        snapshot = _ClusterSnapshot(cluster, plan, places)
        try:
            yield snapshot
        finally:
            await snapshot.cancel()


@attrs.define
class _ClusterSnapshot(Snapshot):
    """The rows of a source as the workers return them; see `Snapshot`."""

    client: Any
    plan: SourcePlan
    places: "_RowPlaces"
    _reading: deque[deque[Any]] = attrs.field(factory=deque[deque[Any]], init=False)
    """Of each fragment that is read, or waits to be fetched, the futures of its parts."""

    async def slices(self) -> AsyncGenerator[SnapshotSlice, None]:
        """Yield all rows, fragment by fragment.

        Raises:
            UnusableFile: a fragment cannot be parsed.
            SourceUnavailable: a file cannot be read, or was changed.
            ClusterFailed: the cluster could not read a fragment.
        """
        waiting = iter(self.plan.fragments)
        for fragment in self.plan.fragments:
            await self._submit(waiting)
            while self._reading[0]:
                found = await self._fetch(self._reading[0].popleft())
                self.places.add(fragment, found)
                for each in found.slices:
                    yield each
            self._reading.popleft()

    def locate(self, failure: Failure) -> Failure:
        """Return a failure with the file and the row that it is about."""
        return self.places.locate(failure)

    async def cancel(self) -> None:
        """Have the workers forget what was not fetched."""
        await release(self.client, list(chain.from_iterable(self._reading)))

    async def _submit(self, waiting: Iterator[Fragment]) -> None:
        """Submit fragments until enough of them are read ahead."""
        with _report_lost():
            threads = sum((await self.client.nthreads()).values())
        for fragment in waiting:
            self._reading.append(self._read(fragment))
            if len(self._reading) > _AHEAD * threads:
                break

    def _read(self, fragment: Fragment) -> deque[Any]:
        """Have a worker read a fragment, and return the futures of its parts."""
        parts = count_parts(fragment)
        read = self.client.submit(
            read_fragment,
            fragment,
            job=self.plan.job,
            parts=parts,
            pure=False,
            retries=_RETRIES,
        )
        return deque(self.client.submit(getitem, read, part, pure=False) for part in range(parts))

    async def _fetch(self, future: Any) -> FragmentSlices:
        """Return the next rows, which the workers then forget."""
        with _report_lost():
            error: BaseException | None = await future.exception()
            if error is not None:
                raise describe_error(error)
            found: FragmentSlices = await future
        return found


@contextmanager
def _report_lost() -> Generator[None]:
    """Turn whatever the connection to the scheduler may raise into one error: also an OSError, as that of a disk is.

    Raises:
        ClusterFailed: the scheduler cannot be reached any more.
    """
    try:
        yield
    except SvcError:
        raise
    except Exception as error:  # noqa: BLE001 - of the engine, of its transport, or a future that was cancelled
        reason = f"the scheduler of the cluster cannot be reached ({type(error).__name__}); run the sync again"
        raise ClusterFailed(reason) from None


class _RowPlaces:
    """Where rows come from, on disk: they are needed for rows that fail.

    Args:
        plan: the source.
    """

    def __init__(self, plan: SourcePlan) -> None:
        self._plan = plan
        self._blobs = Blobs(Path(tempfile.gettempdir()))
        self._fragments = array("Q")
        self._ends = array("Q", [0])
        self._rows = array("Q", [0])
        self._last: tuple[int, Positions] = (-1, Positions())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._blobs.close()

    @property
    def count(self) -> int:
        """How many rows were added."""
        return self._rows[-1]

    def add(self, fragment: Fragment, found: FragmentSlices) -> None:
        """Add the next rows, which are of this fragment."""
        written = msgspec.msgpack.encode(found.places)
        self._blobs.add(written)
        self._fragments.append(fragment.number)
        self._ends.append(self._ends[-1] + len(written))
        self._rows.append(self._rows[-1] + found.count)

    def locate(self, failure: Failure) -> Failure:
        """Return a failure with the file and the row that it is about."""
        number = bisect_right(self._rows, failure.position) - 1
        row = self._read(number)[failure.position - self._rows[number]]
        fragment = self._plan.fragments[self._fragments[number]]
        return attrs.evolve(failure, position=row, file=fragment.file.source.path)

    def _read(self, number: int) -> Positions:
        """Return the places of the rows that were added together; failures of these mostly follow each other."""
        if self._last[0] != number:
            start, end = self._ends[number], self._ends[number + 1]
            plain = msgspec.msgpack.decode(self._blobs.read(start, end - start))
            most = self._rows[number + 1] - self._rows[number]
            self._last = number, Positions.from_plain(plain, most=most)
        return self._last[1]
