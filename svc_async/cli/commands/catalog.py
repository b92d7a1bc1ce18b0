"""`svc-async catalog`: the products of a catalog."""

import csv
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cyclopts import App

from svc_async.batch.job import Job, TargetSpec
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import (
    BatchFlags,
    ClusterFlags,
    FeedFlags,
    InputFile,
    JournalFlags,
    JsonFlag,
    RunFlags,
    SyncFlags,
    WorkerFlags,
    absolute,
)
from svc_async.cli.output.console import show_json
from svc_async.cli.upload_command import batch_settings, source_spec, start, sync_settings
from svc_async.errors import InvalidArgument
from svc_async.printable import clean

if TYPE_CHECKING:
    from svc_async.session import Session

__all__ = ["app"]

app = App(name="catalog")

_NAMES = ("id", "product_key")

_RUN, _BATCH, _FEED, _JOURNAL = RunFlags(), BatchFlags(), FeedFlags(), JournalFlags()
_SYNC, _CLUSTER, _WORKERS = SyncFlags(), ClusterFlags(), WorkerFlags()


@app.command
def upload(
    feed: InputFile,
    /,
    *,
    catalog: str | None = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    options: FeedFlags = _FEED,
    journal: JournalFlags = _JOURNAL,
    cluster: ClusterFlags = _CLUSTER,
) -> int:
    """Create and update the products of a merchant's feed. Products that are not in the feed stay.

    Args:
        feed: A feed in CSV or TSV (with a header), RSS 2.0, Atom, JSON lines or Parquet, compressed or not; - is
            standard input.
        catalog: The product catalog. Required without --sandbox.
    """
    job = Job(
        target=TargetSpec(kind="catalog", list_id=catalog),
        source=source_spec(feed, options.format, batch),
        settings=batch_settings(batch),
    )
    return start(job, feed, run, journal, cluster)


@app.command
def delete(
    file: InputFile,
    /,
    *,
    catalog: str | None = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    options: FeedFlags = _FEED,
    journal: JournalFlags = _JOURNAL,
    cluster: ClusterFlags = _CLUSTER,
) -> int:
    """Delete products for good, by the keys that the service has given them.

    Args:
        file: A table with a column product_key, such as `svc-async catalog list` prints; - is standard input.
        catalog: The product catalog. Required without --sandbox.
    """
    job = Job(
        target=TargetSpec(kind="catalog", list_id=catalog),
        source=source_spec(file, options.format, batch),
        operation="remove",
        settings=batch_settings(batch),
    )
    return start(job, file, run, journal, cluster)


@app.command(name="list")
def list_products(*, catalog: str | None = None, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """List the products of a catalog as CSV: the id of each, and the product_key that `catalog delete` takes.

    Args:
        catalog: The product catalog. Required.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    if catalog is None:
        raise InvalidArgument("--catalog", "must be given")
    from svc_async.cli.sessions import open_session, run_in  # noqa: PLC0415 - help needs no engine
    from svc_async.sync.catalog import list_names  # noqa: PLC0415 - likewise

    async def fetch(session: "Session") -> Iterable[Mapping[str, Any]]:
        products = [product async for product in list_names(session.product_catalog(catalog).products.list)]
        # The first of a group comes twice.
        return {each.get("product_key") or each.get("id"): each for each in products}.values()

    products = [{name: each.get(name) for name in _NAMES} for each in run_in(open_session(profile), fetch)]
    if as_json:
        show_json({"products": products})
        return Exit.DONE
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_NAMES)
    writer.writerows([clean(product[name] or "") for name in _NAMES] for product in products)
    return Exit.DONE


@app.command
def sync(
    feed: InputFile,
    /,
    *,
    catalog: str | None = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    options: FeedFlags = _FEED,
    sync: SyncFlags = _SYNC,
    cluster: WorkerFlags = _WORKERS,
) -> int:
    """Make a catalog equal to a feed, by sending only what changed since the last sync.

    Products that an earlier sync has sent and that are no longer in the feed are deleted for good.

    Args:
        feed: A feed in CSV or TSV (with a header), RSS 2.0, Atom, JSON lines or Parquet, compressed or not; - is
            standard input.
        catalog: The product catalog. Required without --sandbox.
    """
    job = Job(
        operation="sync",
        target=TargetSpec(kind="catalog", list_id=catalog),
        source=source_spec(feed, options.format, batch),
        state=absolute(sync.state) if sync.state is not None else None,
        settings=batch_settings(batch),
        sync=sync_settings(sync),
    )
    return start(job, feed, run, workers=cluster)
