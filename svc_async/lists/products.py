"""The products of a catalog: listed and sent in single requests, or any number of them in batches.

A product is a row and an operation of its own. Rows of one id keep their order and never share a request, in which the
service would ignore all of them (contract PROD-07). Each has its own result: a product with an error has failed, and
one that the answer does not mention is sent again, since its outcome is unknown.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

import attrs

from svc_async.ads.products import CatalogProducts, ProductUpsertResult, ProductUpsertResults
from svc_async.batch.destination import Destination
from svc_async.batch.job import ClusterRunner, Job, Operation, StateLocation, TargetSpec, read_job
from svc_async.batch.ledger import Ledger
from svc_async.batch.options import StreamOptions, SyncOptions, UploadOptions
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Receipt, Report
from svc_async.batch.settings import JobSizes
from svc_async.batch.source import RowSource
from svc_async.batch.uploader import Receipts, Uploader
from svc_async.errors import InvalidArgument
from svc_async.lists.product_codec import (
    CheckFirst,
    Encode,
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
from svc_async.lists.product_results import SYNC_ROUTES, Deletions, Upserts
from svc_async.sources.rows import ArrowTable
from svc_async.sync.catalog import CatalogTarget
from svc_async.sync.ledger import PartJob
from svc_async.sync.product_slices import ListedProducts
from svc_async.sync.snapshot import Snapshot
from svc_async.sync.sync import run_sync
from svc_async.value_rules import PLAIN_FUNCTION, or_none
from svc_async.wire.route import Surface

__all__ = ["Products"]

T = TypeVar("T")

ProductKeys = Iterable[str] | AsyncIterable[str] | ArrowTable | Path


@attrs.frozen(eq=False)
class Products(CatalogProducts):
    """The products of one catalog.

    Attributes:
        sizes: the amounts in which jobs work.
        cluster_runner: runs jobs on clusters.
    """

    sizes: JobSizes = attrs.field(factory=JobSizes, kw_only=True, repr=False)
    cluster_runner: ClusterRunner = attrs.field(factory=ClusterRunner, kw_only=True, repr=False)

    async def upsert(
        self,
        products: ProductRows,
        *,
        on_result: Callable[[ProductUpsertResult], object] | None = None,
        **options: Unpack[UploadOptions],
    ) -> Report:
        """Create or change any number of products; optional attributes that are blank are cleared.

        Blank are an empty cell or element, an empty text, null, None, NaN and what else stands for a missing value. An
        attribute without a column, element or key, and None in a `Product`, keeps its value. See `sync` for a catalog
        that is to have nothing that the source does not have. A value is what a file would have of it: `in_stock`,
        `10.0` pieces, ids that are integers or UUIDs, lists of links.

        Every product is checked before it is sent, unless the session does not validate; one that breaks a rule fails
        by itself, and the failure names the attribute and every rule that it breaks. Products of one id arrive in
        their order, each in a request of its own; of equal ones that would share a request the last is sent.

        A `str` or `Path` is the path or `file://` URL of a local feed: CSV, TSV, XML, JSON lines or Parquet, compressed
        or not. The format is detected from the content. The file is checked before anything is sent. For mapped
        columns or other encodings, pass the `products()` of `svc_async.sources.detect.open_feed`. No other URL is
        fetched.

        Args:
            products: mappings with the attributes of a merchant's feed, or `Product`; a table of Arrow, whose columns
                are those of a feed; or a file.
            on_result: called with the service's result for each product, with its `product_key`, before the receipt.
            options: see `UploadOptions` in `svc_async.batch.options`.

        Raises:
            InvalidArgument: invalid setting (nothing read).
            UnusableFile: the file cannot be read, or the journal is locked or belongs to another job or source
                (nothing sent).
            BatchError: the job could not be finished; `report` says what became of the products that were read.

        Contract: PROD-01 to PROD-09b, `products.upsert`.
        """
        job = read_job("upsert", options, UploadOptions.__optional_keys__, target=self._target)
        or_none(PLAIN_FUNCTION).check("on_result", on_result)
        if job.cluster is not None and on_result is not None:
            raise InvalidArgument("on_result", "must not be given with cluster=: the results stay on the workers")
        return await self._upsert(job, products, on_result=on_result)

    async def delete(self, product_keys: ProductKeys, **options: Unpack[UploadOptions]) -> Report:
        """Delete any number of products for good.

        A key that does not exist fails. So may one that is sent again after an unclear answer; the reason then says so.
        Settings and exceptions: see `upsert`.

        Args:
            product_keys: the keys that the service assigned, as `list` returns them, or a table of Arrow with a column
                `product_key`; with `cluster`, the path of such a table.
            options: see `UploadOptions` in `svc_async.batch.options`.

        Contract: PROD-11, PROD-11b, `products.delete`.
        """
        known = UploadOptions.__optional_keys__
        job = read_job("delete", options, known, target=self._target, operation="remove")
        return await self._delete(job, product_keys)

    async def sync(self, products: ProductRows, *, state: StateLocation, **options: Unpack[SyncOptions]) -> SyncReport:
        """Make the catalog equal to a source, by sending only the differences from the last sync.

        Products that an earlier sync has sent and that the source no longer lists are deleted for good; others are
        left untouched. Of a product that is sent, each optional attribute that the source does not have is cleared.

        Args:
            products: the path of a feed, or products as in `upsert` that can be iterated again: all that the catalog
                is to have. They are read once, and kept in an unnamed temporary file: next to the state, or in the
                folder for temporary files.
            state: what keeps what was accepted: the path of a file, one for each catalog; or a `SharedState`, where
                several machines may run the sync: one that begins ends another one of the same catalog.
            options: see `SyncOptions` in `svc_async.batch.options`.

        Raises:
            InvalidArgument: invalid setting or source, or too many products would be deleted; nothing was sent.
            UnusableFile: the state or a file cannot be used, is locked or belongs to another list; nothing was sent.
            StateUnavailable: the shared state cannot be reached; nothing was sent.
            TakenUpElsewhere: another process began the same sync while this one compared; nothing was sent. Later, it
                is the cause of the BatchError.
            BatchError: the sync could not be finished; `report` is a `SyncReport`. Repeat the call to finish it.

        Contract: `products.upsert`, `products.delete`.
        """
        known = SyncOptions.__optional_keys__
        return await self._sync(
            read_job("sync", options, known, target=self._target, operation="sync", state=state), products
        )

    def run_job(
        self, job: Job, rows: Any = None, *, ledger: Ledger | None = None
    ) -> Coroutine[Any, Any, Report | SyncReport]:
        """Run an upsert, a deletion or a sync that a value describes, as `jobs.run.run` does with a file.

        Args:
            job: the job.
            rows: the products, or the keys of those that are deleted; on a cluster, the workers read the source.
            ledger: keeps what becomes of the rows, if the journal of the job does not.
        """
        if job.operation == "sync":
            return self._sync(job, rows)
        return self._upsert(job, rows, ledger) if job.operation == "upload" else self._delete(job, rows, ledger)

    async def _upsert(
        self,
        job: Job,
        products: Any,
        ledger: Ledger | None = None,
        on_result: Callable[[ProductUpsertResult], object] | None = None,
    ) -> Report:
        if job.cluster is not None:
            return await self.cluster_runner.run(job.name_files("products", products))
        destination = Upserts(self.product_catalog_id, self._host, self._pipeline.dialect, on_result)
        return await self._create_uploader(self._read(products), destination, job, ledger).run()

    async def _delete(self, job: Job, keys: Any, ledger: Ledger | None = None) -> Report:
        if job.cluster is not None:
            return await self.cluster_runner.run(job.name_files("product_keys", keys))
        source = read_keys(keys, self.sizes.slice_rows)
        destination = Deletions(self.product_catalog_id, self._host, self._pipeline.dialect)
        return await self._create_uploader(source, destination, job, ledger).run()

    async def _sync(self, job: Job, products: Any) -> SyncReport:
        return await run_sync(
            job,
            products,
            self._open_snapshot,
            lambda snapshot, spill: CatalogTarget(
                list_products=self.list,
                send_products=lambda rows, on_result, part: self._upsert(
                    self._describe_part(part, "upload"), rows, part.ledger, on_result
                ),
                delete_products=lambda keys, part: self._delete(self._describe_part(part, "remove"), keys, part.ledger),
                snapshot=snapshot,
                spill=spill,
                accepts=partial(is_valid, encode=self._encode),
                settings=job.settings,
            ),
            parameter="products",
            name=self._target.describe_at(self._host),
            sender=self._pipeline,
            requests={part: build(product_catalog_id=self.product_catalog_id) for part, build in SYNC_ROUTES.items()},
        )

    def _describe_part(self, part: PartJob, operation: Operation) -> Job:
        """Return the job that sends a part of a sync."""
        return Job(target=self._target, operation=operation, settings=part.settings, observers=part.observers)

    @asynccontextmanager
    async def _open_snapshot(self, products: Any) -> AsyncGenerator[Snapshot]:
        async with open_products(products) as rows:
            yield ListedProducts(rows, self._check_first)

    def stream(self, products: ProductRows, **options: Unpack[StreamOptions]) -> Receipts[ProductUpsertResults]:
        """Create or change products, and iterate over the receipts as they come; `report` is available at any time.

        Use the result as a context manager, or iterate to the end.
        Arguments, settings and exceptions: see `upsert`.

        Contract: PROD-01 to PROD-09b, `products.upsert`.
        """
        job = read_job("stream", options, StreamOptions.__optional_keys__, target=self._target)
        source = self._read(products)
        destination = Upserts(self.product_catalog_id, self._host, self._pipeline.dialect)

        def create(on_receipt: Callable[[Receipt], object]) -> Uploader[ProductUpsertResults]:
            observers = attrs.evolve(job.observers, on_receipt=on_receipt)
            return self._create_uploader(source, destination, attrs.evolve(job, observers=observers))

        return Receipts(create)

    @property
    def _host(self) -> str:
        return self._pipeline.endpoints.of(Surface.ADS)

    @property
    def _target(self) -> TargetSpec:
        return TargetSpec(kind="catalog", list_id=self.product_catalog_id)

    def _read(self, products: ProductRows) -> RowSource:
        return read_products(products, self._encode, self.sizes.slice_rows, self._check_first)

    @property
    def _check_first(self) -> CheckFirst:
        return check_first if self._pipeline.validate else check_mapping

    @property
    def _encode(self) -> Encode:
        return encode_checked if self._pipeline.validate else encode_unchecked

    def _create_uploader(
        self, source: RowSource, destination: Destination[T], job: Job, ledger: Ledger | None = None
    ) -> Uploader[T]:
        return Uploader(
            source, job=job, sender=self._pipeline, destination=destination, ledger=ledger, sizes=self.sizes
        )
