"""The products of a catalog: listed and sent in single requests, or any number of them in batches.

A product is a row and an operation of its own. Rows of one id keep their order and never share a request, in which the
service would ignore all of them (contract PROD-07). Each has its own result: a product with an error has failed, and
one that the answer does not mention is sent again, since its outcome is unknown.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import attrs

from svc_async.ads.products import CatalogProducts, ProductUpsertResult, ProductUpsertResults
from svc_async.batch.cluster.calls import ClusterCall, ClusterClient, ClusterRunner, ClusterSource, ListIds, NoCluster
from svc_async.batch.destination import Destination
from svc_async.batch.journal.ledger import JournalPath, LedgerFactory, create_ledger
from svc_async.batch.packing.lane_count import count_lanes
from svc_async.batch.products.codec import (
    CheckFirst,
    Encode,
    IterableProducts,
    ProductRows,
    check_first,
    check_mapping,
    encode_checked,
    encode_unchecked,
    is_valid,
    open_products,
    read_keys,
    read_products,
)
from svc_async.batch.products.results import SYNC_ROUTES, Deletions, Upserts
from svc_async.batch.receipts import Receipts
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.settings import (
    DEFAULTS,
    BatchSettings,
    JobSizes,
    Observers,
    Ordering,
)
from svc_async.batch.source import RowSource
from svc_async.batch.sync.catalog import CatalogTarget
from svc_async.batch.sync.location import StateLocation, check_location, check_shared, open_sync_state
from svc_async.batch.sync.plan import Plan
from svc_async.batch.sync.product_slices import ListedProducts, SpilledProducts
from svc_async.batch.sync.report import SyncReport
from svc_async.batch.sync.settings import SYNC_DEFAULTS, SyncObservers, SyncSettings
from svc_async.batch.sync.snapshot import SliceSpill, Snapshot
from svc_async.batch.sync.sync import Sync, make_sending_hooks
from svc_async.batch.uploader import Uploader
from svc_async.errors import InvalidArgument
from svc_async.sources.rows import ArrowTable
from svc_async.value_rules import PLAIN_FUNCTION, or_none
from svc_async.wire.route import Surface

__all__ = ["Products"]

T = TypeVar("T")

ProductKeys = Iterable[str] | AsyncIterable[str] | ArrowTable | Path


@attrs.frozen
class Products(CatalogProducts):
    """The products of one catalog.

    Attributes:
        sizes: the amounts in which jobs work.
        create_ledger: creates the ledger of a job.
        cluster_runner: runs jobs on clusters.
        before_sending: awaited before each request of a job; see `make_job_sender`.
        at_sending: called directly before the bytes of each request of a job are written; likewise.
    """

    sizes: JobSizes = attrs.field(factory=JobSizes, kw_only=True, repr=False)
    create_ledger: LedgerFactory = attrs.field(default=create_ledger, kw_only=True, repr=False)
    cluster_runner: ClusterRunner = attrs.field(factory=NoCluster, kw_only=True, repr=False)
    before_sending: Callable[[], Awaitable[object]] | None = attrs.field(default=None, kw_only=True, repr=False)
    at_sending: Callable[[], object] | None = attrs.field(default=None, kw_only=True, repr=False)

    async def upsert(
        self,
        products: ProductRows,
        *,
        concurrency: int = DEFAULTS.concurrency,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        cluster: ClusterClient | None = None,
        shards: int | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
        on_result: Callable[[ProductUpsertResult], object] | None = None,
    ) -> Report:
        """Create or change any number of products; attributes that are not given keep their value.

        Every product is checked before it is sent, unless the session does not validate; one that breaks a rule fails
        by itself, and the failure names the attribute and every rule that it breaks. Products of one id arrive in
        their order, each in a request of its own; of equal ones that would share a request the last is sent.

        A `str` or `Path` is the path or `file://` URL of a local feed: CSV, TSV, XML, JSON lines or Parquet, compressed
        or not. The format is detected from the content. The file is checked before anything is sent. For mapped
        columns or other encodings, pass the `products()` of `svc_async.sources.detect.open_feed`. No other URL is
        fetched.

        Settings and observers: see `BatchSettings` and `Observers` in `svc_async.batch.settings`.

        Args:
            products: mappings with the attributes of a merchant's feed, or `Product`; a table of Arrow, whose columns
                are those of a feed; or a file. An empty text in a mapping removes the value of an optional attribute.
            journal: path of the journal, or `state.journal(name)`. Repeat the call after a crash to resume; a finished
                job returns its report at once. The source must yield the same products; a one-shot iterator is first
                spooled with the journal.
            cluster: a `distributed.Client(..., asynchronous=True)` whose workers do the job; see `ClusterCall`.
            shards: into how many parts a new job on a cluster is divided; by default, as its rows need.
            on_result: called with the service's result for each product, with its `product_key`, before the receipt.

        Raises:
            InvalidArgument: invalid setting (nothing read).
            UnusableFile: the file cannot be read, or the journal is locked or belongs to another job or source
                (nothing sent).
            BatchError: the job could not be finished; `report` says what became of the products that were read.

        Contract: PROD-01 to PROD-09b, `products.upsert`.
        """
        settings = BatchSettings(
            concurrency=concurrency, ordering=ordering, quarantine=quarantine, retry_delays=retry_delays
        )
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        or_none(PLAIN_FUNCTION).check("on_result", on_result)
        if cluster is not None:
            if on_result is not None:
                raise InvalidArgument("on_result", "must not be given with cluster=: the results stay on the workers")
            return await self._run_on_cluster(
                cluster, "Update", products, settings=settings, observers=observers, journal=journal, shards=shards
            )
        destination = Upserts(self.product_catalog_id, self._host, on_result)
        source = self._read(products)
        return await self._create_uploader(source, destination, settings, observers, journal).run()

    async def delete(
        self,
        product_keys: ProductKeys,
        *,
        concurrency: int = DEFAULTS.concurrency,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        cluster: ClusterClient | None = None,
        shards: int | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Delete any number of products for good.

        A key that does not exist fails. So may one that is sent again after an unclear answer; the reason then says so.
        Settings and exceptions: see `upsert`.

        Args:
            product_keys: the keys that the service assigned, as `list` returns them, or a table of Arrow with a column
                `product_key`; with `cluster`, the path of such a table.

        Contract: PROD-11, PROD-11b, `products.delete`.
        """
        settings = BatchSettings(
            concurrency=concurrency, ordering=ordering, quarantine=quarantine, retry_delays=retry_delays
        )
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        if cluster is not None:
            return await self._run_on_cluster(
                cluster, "Delete", product_keys, settings=settings, observers=observers, journal=journal, shards=shards
            )
        source = read_keys(product_keys, self.sizes.slice_rows)
        return await self._create_uploader(
            source, Deletions(self.product_catalog_id, self._host), settings, observers, journal
        ).run()

    async def sync(
        self,
        products: ProductRows,
        *,
        state: StateLocation,
        dry_run: bool = SYNC_DEFAULTS.dry_run,
        max_removal_share: float = SYNC_DEFAULTS.max_removal_share,
        concurrency: int = DEFAULTS.concurrency,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        cluster: ClusterClient | None = None,
        on_plan: Callable[[Plan], object] | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
        on_removal_failure: Callable[[Failure], object] | None = None,
        on_wait: Callable[[float], object] | None = None,
    ) -> SyncReport:
        """Make the catalog equal to a source, by sending only the differences from the last sync.

        Products that an earlier sync has sent and that the source no longer lists are deleted for good; others are
        left untouched. Settings: see `SyncSettings` and `BatchSettings`. Observers: see `SyncObservers`.

        Args:
            products: the path of a feed, or products as in `upsert` that can be iterated again: all that the catalog
                is to have.
            state: what keeps what was accepted: the path of a file, one for each catalog; or a `SharedState`, where
                several machines may run the sync: one that begins ends another one of the same catalog.
            cluster: a `distributed.Client(..., asynchronous=True)` whose workers read the feed: the path, pattern or
                URL of files. This process compares and sends it, with a `SharedState`; failures have their file and
                row. If a part of the feed cannot be read, nothing is sent.

        Raises:
            InvalidArgument: invalid setting or source, or too many products would be deleted; nothing was sent.
            UnusableFile: the state or a file cannot be used, is locked or belongs to another list; nothing was sent.
            StateUnavailable: the shared state cannot be reached; nothing was sent.
            TakenUpElsewhere: another process began the same sync while this one compared; nothing was sent. Later, it
                is the cause of the BatchError.
            BatchError: the sync could not be finished; `report` is a `SyncReport`. Repeat the call to finish it.

        Contract: `products.upsert`, `products.delete`.
        """
        check_location(state)
        settings = SyncSettings(dry_run=dry_run, max_removal_share=max_removal_share)
        batch = BatchSettings(
            concurrency=concurrency, ordering=ordering, quarantine=quarantine, retry_delays=retry_delays
        )
        observers = SyncObservers(
            on_plan=on_plan,
            progress=progress,
            on_receipt=on_receipt,
            on_failure=on_failure,
            on_removal_failure=on_removal_failure,
            on_wait=on_wait,
        )
        name = f"catalog {self.product_catalog_id} at {self._host}"
        async with (
            self._open_rows(products, state, observers, cluster) as rows,
            open_sync_state(state, name) as store,
        ):
            with SliceSpill(store.folder) as spill:
                return await Sync(
                    target=CatalogTarget(
                        products=attrs.evolve(self, **make_sending_hooks(store, self._pipeline.clock)),
                        snapshot=SpilledProducts(rows, spill)
                        if isinstance(rows, Snapshot)
                        else ListedProducts(rows, self._check_first),
                        accepts=partial(is_valid, encode=self._encode),
                        settings=batch,
                    ),
                    state=store,
                    settings=settings,
                    observers=observers,
                    sender=self._pipeline,
                    requests={
                        part: build(product_catalog_id=self.product_catalog_id) for part, build in SYNC_ROUTES.items()
                    },
                ).run()

    @asynccontextmanager
    async def _open_rows(
        self,
        products: ProductRows | Snapshot,
        state: StateLocation,
        observers: Observers,
        cluster: ClusterClient | None,
    ) -> AsyncGenerator[IterableProducts | Snapshot]:
        """Open the products of a sync, here or on a cluster; a command has opened them already."""
        if cluster is not None:
            check_shared(state)
            source = ClusterSource(
                client=cluster, ids=self._ids, source=products, parameter="products", observers=observers
            )
            async with self.cluster_runner.open_snapshot(source) as snapshot:
                yield snapshot
        elif isinstance(products, Snapshot):
            yield products
        else:
            async with open_products(products) as rows:
                yield rows

    def stream(
        self,
        products: ProductRows,
        *,
        concurrency: int = DEFAULTS.concurrency,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Receipts[ProductUpsertResults]:
        """Create or change products, and iterate over the receipts as they come; `report` is available at any time.

        Use the result as a context manager, or iterate to the end.
        Arguments, settings and exceptions: see `upsert`.

        Contract: PROD-01 to PROD-09b, `products.upsert`.
        """
        settings = BatchSettings(
            concurrency=concurrency, ordering=ordering, quarantine=quarantine, retry_delays=retry_delays
        )
        observers = Observers(progress=progress, on_failure=on_failure)
        source, destination = self._read(products), Upserts(self.product_catalog_id, self._host)
        return Receipts(
            lambda on_receipt: self._create_uploader(
                source, destination, settings, attrs.evolve(observers, on_receipt=on_receipt), journal
            ),
        )

    @property
    def _host(self) -> str:
        return self._pipeline.endpoints.of(Surface.ADS)

    @property
    def _ids(self) -> ListIds:
        return {"kind": "catalog", "list_id": self.product_catalog_id}

    def _read(self, products: ProductRows) -> RowSource:
        return read_products(products, self._encode, self.sizes.slice_rows, self._check_first)

    @property
    def _check_first(self) -> CheckFirst:
        return check_first if self._pipeline.validate else check_mapping

    @property
    def _encode(self) -> Encode:
        return encode_checked if self._pipeline.validate else encode_unchecked

    async def _run_on_cluster(
        self,
        cluster: ClusterClient,
        operation: Literal["Update", "Delete"],
        source: object,
        *,
        settings: BatchSettings,
        observers: Observers,
        journal: JournalPath | None,
        shards: int | None,
    ) -> Report:
        call = ClusterCall(
            client=cluster,
            shards=shards,
            ids=self._ids,
            operation=operation,
            source=source,
            parameter="products" if operation == "Update" else "product_keys",
            settings=settings,
            journal=journal,
            observers=observers,
        )
        return await self.cluster_runner.run(call)

    def _create_uploader(
        self,
        source: RowSource,
        destination: Destination[T],
        settings: BatchSettings,
        observers: Observers,
        journal: JournalPath | None,
    ) -> Uploader[T]:
        pace = self._pipeline.find_pace(destination.empty)
        lanes = count_lanes(destination.limits, settings.concurrency, memory=self._pipeline.memory.total, pace=pace)
        return Uploader(
            source,
            sender=self._pipeline,
            destination=destination,
            settings=settings,
            observers=observers,
            ledger=self.create_ledger(
                journal, destination=destination, settings=settings, lanes=lanes, clock=self._pipeline.clock
            ),
            sizes=self.sizes,
            before_sending=self.before_sending,
            at_sending=self.at_sending,
        )
