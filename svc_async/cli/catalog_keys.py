"""Lists the products of a catalog by their ids and keys, for `svc-async catalog list`."""

import asyncio
import csv
import sys
from collections.abc import Mapping, Sequence

from svc_async.ads.product_names import list_names
from svc_async.cli.exit_codes import Exit
from svc_async.cli.output.json_output import show_json
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import run_until_stopped
from svc_async.printable import clean
from svc_async.session import Session

__all__ = ["show_products"]

_COLUMNS = ("id", "product_key")


def show_products(catalog: str, profile: str | None, *, as_json: bool) -> int:
    """Print the id and the key of each product of a catalog, and return the exit code."""
    products = asyncio.run(_fetch(catalog, profile))
    if as_json:
        show_json({"products": products})
        return Exit.DONE
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([clean(product[name] or "") for name in _COLUMNS] for product in products)
    return Exit.DONE


async def _fetch(catalog: str, profile: str | None) -> Sequence[Mapping[str, str | None]]:
    async with open_session(profile) as session:
        return await run_until_stopped(_collect(session, catalog))


async def _collect(session: Session, catalog: str) -> Sequence[Mapping[str, str | None]]:
    names = [names async for names in list_names(session.product_catalog(catalog).products.list)]
    found = {names.get("product_key") or names.get("id"): names for names in names}  # a first of a group comes twice
    return [{name: names.get(name) for name in _COLUMNS} for names in found.values()]
