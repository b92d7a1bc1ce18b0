"""Sends a merchant's feed to a product catalog, deletes products of it, or makes the catalog equal to the feed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async.batch.products.products import Products
from svc_async.batch.report import Report
from svc_async.batch.settings import Observers
from svc_async.cli.failures import FailureList
from svc_async.cli.job_journal import Journaling, typed
from svc_async.cli.options import FeedOptions, JobOptions, JournalOptions, SyncOptions
from svc_async.cli.sync_command import Cost, Syncing
from svc_async.cli.upload_command import Job, Ready, Work, mapping_of, opened, requests_per_minute
from svc_async.errors import InvalidArgument
from svc_async.sources.columns import Vocabulary
from svc_async.sources.detect import open_feed
from svc_async.sources.product_attributes import PRODUCT_KEYS, PRODUCTS
from svc_async.sources.source import ProductFeed, ReplayableRows, UnparsedRow

__all__ = ["run_delete", "run_sync", "run_upload"]

_PUT = "ads.products.put"
_DELETE = "ads.products.delete"
_MOST = 25  # contract PROD-01


@attrs.frozen(kw_only=True)
class _Command:
    """What was typed."""

    file: Path
    catalog: str | None
    options: JobOptions
    feed: FeedOptions
    journaling: Journaling = attrs.field(factory=Journaling)

    def do(
        self,
        what: str,
        work: Callable[[ProductFeed, Products, Ready], Work],
        *,
        limit: str = _PUT,
        vocabulary: Vocabulary = PRODUCTS,
        again: str = "products that are in already are not added twice.",
    ) -> int:
        """Do a job with the file and give the exit code."""
        with closing(self._source(vocabulary)) as feed:
            job = Job(
                file=self.file,
                what=what,
                origin=feed,
                options=self.options,
                limit=requests_per_minute(limit),
                again=again,
                journaling=self.journaling,
            )
            return asyncio.run(job.run(self._opened(lambda products, ready: work(feed, products, ready))))

    def _source(self, vocabulary: Vocabulary) -> ProductFeed:
        if self.journaling.put_aside is not None:
            return self.journaling.put_aside
        mapping, encoding = mapping_of(self.options.map), self.options.encoding
        return open_feed(self.file, format=self.feed.format, mapping=mapping, encoding=encoding, vocabulary=vocabulary)

    @asynccontextmanager
    async def _opened(self, work: Callable[[Products, Ready], Work]) -> AsyncGenerator[Work]:
        """Open the session and bind the catalog; an embedded sandbox is given one."""
        if self.catalog is None and not self.options.sandbox:
            raise InvalidArgument("product_catalog_id", "must be given")
        async with opened(self.options) as (session, _):
            catalog = self.catalog
            if catalog is None:
                catalog = (await session.product_catalogs.create(name="Sandbox")).id
            products = session.product_catalog(catalog).products
            # A wrong host, credential or catalog shows at once here.
            yield work(products, lambda: products.list(count=1).first())


def run_upload(
    file: Path, options: JobOptions, feed: FeedOptions, journal: JournalOptions, *, catalog: str | None
) -> int:
    """Make and change the products of a feed and give the exit code."""
    settings, what = _settings(options), "Upload to a catalog"
    journaling = Journaling.of(
        journal,
        sandbox=options.sandbox,
        file=file,
        command=typed(("catalog", "upload"), file, options, feed, catalog=catalog),
        what=what,
        ids={"catalog": catalog},
        requests_per_minute=requests_per_minute(_PUT),
    )

    def work(origin: ProductFeed, products: Products, ready: Ready) -> Work:
        async def do(observers: Observers, _: FailureList) -> Report:
            rows, told = journaling.once(origin.products()), attrs.asdict(observers, recurse=False)
            return await products.upsert(rows, **settings, journal=journaling.path, **told)

        return Work(ready=ready, do=do)

    return _Command(file=file, catalog=catalog, options=options, feed=feed, journaling=journaling).do(what, work)


def run_delete(
    file: Path, options: JobOptions, feed: FeedOptions, journal: JournalOptions, *, catalog: str | None
) -> int:
    """Delete the products whose keys stand in a file and give the exit code."""
    settings, what = _settings(options), "Deletion from a catalog"
    journaling = Journaling.of(
        journal,
        sandbox=options.sandbox,
        file=file,
        command=typed(("catalog", "delete"), file, options, feed, catalog=catalog),
        what=what,
        ids={"catalog": catalog},
        requests_per_minute=requests_per_minute(_DELETE),
    )

    def work(origin: ProductFeed, products: Products, ready: Ready) -> Work:
        async def do(observers: Observers, _: FailureList) -> Report:
            keys = journaling.once(ReplayableRows(lambda: _keys(origin)))
            told = attrs.asdict(observers, recurse=False)
            return await products.delete(keys, **settings, journal=journaling.path, **told)

        return Work(ready=ready, do=do)

    command = _Command(file=file, catalog=catalog, options=options, feed=feed, journaling=journaling)
    again = "products that are gone already fail then."
    return command.do(what, work, limit=_DELETE, vocabulary=PRODUCT_KEYS, again=again)


def run_sync(file: Path, options: JobOptions, feed: FeedOptions, sync: SyncOptions, *, catalog: str | None) -> int:
    """Make the catalog equal to the feed and give the exit code."""
    cost = Cost(
        requests=lambda rows, _: -(-rows // _MOST),
        removals=lambda rows: -(-rows // _MOST),
        per_minute=requests_per_minute(_PUT),
        removals_per_minute=requests_per_minute(_DELETE),
    )

    def work(origin: ProductFeed, products: Products, ready: Ready) -> Work:
        call = partial(products.sync, origin.products(), **_settings(options))
        name = f"catalog {products.product_catalog_id}"
        return Syncing(call=call, name=name, options=options, sync=sync, cost=cost).work(ready)

    command = _Command(file=file, catalog=catalog, options=options, feed=feed)
    return command.do("Sync of a catalog", work, again="it goes on with what is missing.")


def _settings(options: JobOptions) -> dict[str, Any]:
    return {"concurrency": options.concurrency, "ordering": options.ordering, "quarantine": options.quarantine}


def _keys(origin: ProductFeed) -> Iterator[Any]:
    for product in origin.products():
        yield product if isinstance(product, UnparsedRow) else product.get("product_key")
