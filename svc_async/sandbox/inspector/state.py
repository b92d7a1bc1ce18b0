"""The state of a sandbox as tables: accounts, audiences with their sizes, line items, cards, catalogs, webhooks."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import attrs

from svc_async.sandbox.context import Context
from svc_async.sandbox.inspector.rows import describe_text
from svc_async.sandbox.push.crc_checks import Webhook
from svc_async.sandbox.server.request_log import mask_url
from svc_async.sandbox.state.store import Row, format_time

__all__ = ["describe_state"]

_ROWS = 100
"""Rows of a table that are shown: the latest."""


@attrs.frozen
class _Table:
    name: str
    columns: Sequence[str]
    list_rows: Callable[[Context], Iterable[Sequence[Any]]]


def describe_state(sandbox: Context) -> dict[str, Any]:
    """Return the tables, each with the number of its rows and the latest of them."""
    return {"time": format_time(sandbox.clock.now()), "tables": [_show(table, sandbox) for table in _TABLES]}


def _show(table: _Table, sandbox: Context) -> dict[str, Any]:
    rows = list(table.list_rows(sandbox))
    shown = [[_show_cell(cell) for cell in row] for row in rows[-_ROWS:]]
    return {"name": table.name, "columns": table.columns, "total": len(rows), "rows": shown}


def _show_cell(cell: Any) -> Any:
    if cell is None or isinstance(cell, bool | int | float):
        return cell
    return describe_text(format_time(cell) if isinstance(cell, datetime) else str(cell))


def _list_accounts(sandbox: Context) -> Iterable[Sequence[Any]]:
    users = {row.id: row.fields.get("screen_name", "") for row in sandbox.store["users"]}
    for row in sandbox.store["accounts"]:
        yield row.id, row.fields["name"], users.get(row.owner, row.owner), row.fields["timezone"], _name_status(row)


def _list_audiences(sandbox: Context) -> Iterable[Sequence[Any]]:
    now = sandbox.clock.now()
    for kind, name in (("custom_audiences", "custom audience"), ("do_not_reach_lists", "do-not-reach list")):
        for row in sandbox.store[kind]:
            size = sandbox.store.audiences[row.id].count(now)
            yield row.id, row.fields["name"], name, row.owner, size, _name_status(row)


def _list_line_items(sandbox: Context) -> Iterable[Sequence[Any]]:
    for row in sandbox.store["line_items"]:
        fields = row.fields
        yield row.id, fields["name"], row.owner, fields["campaign_id"], fields["objective"], _name_status(row)


def _list_cards(sandbox: Context) -> Iterable[Sequence[Any]]:
    for kind in ("cards", "poll_cards", "video_conversation_cards"):
        for row in sandbox.store[kind]:
            card_type = row.fields.get("card_type") or kind.removesuffix("s").replace("_", " ")
            yield row.id, row.fields.get("name"), row.owner, card_type, _name_status(row)


def _list_catalogs(sandbox: Context) -> Iterable[Sequence[Any]]:
    products = Counter(row.owner for row in sandbox.store["products"])
    sets = Counter(row.owner for row in sandbox.store["product_sets"])
    users = {row.id: row.fields.get("screen_name", "") for row in sandbox.store["users"]}
    for row in sandbox.store["product_catalogs"]:
        yield row.id, row.fields["name"], users.get(row.owner, row.owner), products[row.id], sets[row.id]


def _list_webhooks(sandbox: Context) -> Iterable[Sequence[Any]]:
    for channels in sandbox.channels.list_all():
        for hook in channels.webhooks.values():
            valid = "valid" if hook.valid else "invalid"
            yield hook.id, mask_url(hook.url), valid, hook.last_ok, len(hook.checks), _describe_last_check(hook)


def _describe_last_check(hook: Webhook) -> str:
    if not hook.checks:
        return ""
    check = hook.checks[-1]
    return f"{check.verdict} ({check.rule})"


def _list_subscriptions(sandbox: Context) -> Iterable[Sequence[Any]]:
    for channels in sandbox.channels.list_all():
        for each in channels.subscriptions.values():
            chosen = ", ".join(f"{name} {value}" for name, value in each.filter.items())
            yield each.id, each.name, chosen, each.tag, each.webhook_id
        for rule in channels.rules.values():
            yield rule.id, "filtered stream", rule.rule.text, rule.tag, None


def _name_status(row: Row) -> str:
    if row.deleted:
        return "deleted"
    return str(row.fields.get("entity_status") or row.fields.get("approval_status") or "").lower()


_TABLES = (
    _Table("Accounts", ("Id", "Name", "User", "Time zone", "Status"), _list_accounts),
    _Table("Audiences", ("Id", "Name", "Kind", "Account", "Size", "Status"), _list_audiences),
    _Table("Line items", ("Id", "Name", "Account", "Campaign", "Objective", "Status"), _list_line_items),
    _Table("Cards", ("Id", "Name", "Account", "Type", "Status"), _list_cards),
    _Table("Catalogs", ("Id", "Name", "User", "Products", "Product sets"), _list_catalogs),
    _Table("Webhooks", ("Id", "URL", "State", "Last passed check", "Checks", "Last check"), _list_webhooks),
    _Table("Subscriptions and rules", ("Id", "Event type", "Filter", "Tag", "Webhook"), _list_subscriptions),
)
