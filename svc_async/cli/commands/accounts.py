"""`svc-async accounts`: the ad accounts of the user."""

import json
from operator import attrgetter

from cyclopts import App

from svc_async.ads.accounts import Account
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import count, say, show_json, show_list
from svc_async.cli.sessions import open_session, run_in
from svc_async.session import Session
from svc_async.wire.writing import to_json

__all__ = ["app"]

app = App(name="accounts")

_COLUMNS = {
    "ID": attrgetter("id"),
    "Name": attrgetter("name"),
    "Status": attrgetter("approval_status"),
    "Time zone": attrgetter("timezone"),
}


@app.command(name="list")
def list_accounts(*, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """List the ad accounts that the credentials can access.

    Args:
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    accounts, unreadable = run_in(open_session(profile), _fetch)
    if as_json:
        show_json(json.loads(to_json({"accounts": accounts, "unreadable": unreadable})))
    elif accounts or not unreadable:
        show_list(accounts, _COLUMNS, none="These credentials have no accounts.")
    if unreadable:
        say(f"{count(unreadable, 'account')} could not be read.", needed=True)
    return Exit.DONE


async def _fetch(session: Session) -> tuple[list[Account], int]:
    """Return the accounts, and how many more could not be read."""
    pages = [page async for page in session.accounts.list().pages()]
    return [account for page in pages for account in page.items], sum(len(page.unreadable) for page in pages)
