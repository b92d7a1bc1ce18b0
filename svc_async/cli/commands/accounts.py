"""Lists the ad accounts of the user."""

import asyncio

from rich.table import Table

from svc_async.ads.accounts import Account
from svc_async.cli.console import stderr, stdout
from svc_async.cli.exit_codes import Exit
from svc_async.cli.sessions import session_of
from svc_async.cli.signals import Interrupted, until_stopped
from svc_async.wire.writing import to_json

__all__ = ["run"]


def run(profile: str | None, *, as_json: bool) -> int:
    """Print the accounts and give the exit code."""
    try:
        accounts = asyncio.run(_listed(profile))
    except Interrupted:
        return Exit.INTERRUPTED
    if as_json:
        stdout().print(to_json({"accounts": accounts}).decode())
    elif accounts:
        stdout().print(_table(accounts))
    else:
        stderr().print("These credentials have no accounts.")
    return Exit.DONE


async def _listed(profile: str | None) -> list[Account]:
    async with session_of(profile) as session:
        return await until_stopped(session.accounts.list().collect())


def _table(accounts: list[Account]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("ID", "Name", "Status", "Time zone"):
        table.add_column(heading)
    for account in accounts:
        table.add_row(account.id, account.name, account.approval_status, account.timezone)
    return table
