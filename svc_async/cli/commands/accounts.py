"""`svc-async accounts`: the ad accounts of the user."""

import asyncio
import json

from cyclopts import App
from rich.table import Table

from svc_async.ads.accounts import Account
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import count, say, show_json, stdout
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import run_until_stopped
from svc_async.printable import clean
from svc_async.session import Session
from svc_async.wire.writing import to_json

__all__ = ["app"]

app = App(name="accounts")


@app.command(name="list")
def list_accounts(*, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """List the ad accounts that the credentials can access.

    Args:
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    accounts, unreadable = asyncio.run(_fetch(profile))
    if as_json:
        show_json(json.loads(to_json({"accounts": accounts, "unreadable": unreadable})))
    elif accounts:
        stdout().print(_table(accounts))
    elif not unreadable:
        say("These credentials have no accounts.")
    if unreadable:
        say(f"{count(unreadable, 'account')} could not be read.", needed=True)
    return Exit.DONE


async def _fetch(profile: str | None) -> tuple[list[Account], int]:
    """Return the accounts, and how many more could not be read."""
    async with open_session(profile) as session:
        return await run_until_stopped(_collect(session))


async def _collect(session: Session) -> tuple[list[Account], int]:
    pages = [page async for page in session.accounts.list().pages()]
    return [account for page in pages for account in page.items], sum(len(page.unreadable) for page in pages)


def _table(accounts: list[Account]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("ID", "Name", "Status", "Time zone"):
        table.add_column(heading)
    for account in accounts:
        facts = (account.id, account.name, account.approval_status, account.timezone)
        table.add_row(*(clean(fact or "") for fact in facts))
    return table
