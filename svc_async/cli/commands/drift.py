"""`svc-async drift`: how the answers of the service differ from what this SDK knows."""

import json
import tomllib
from collections.abc import Awaitable, Callable, Collection, Mapping
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import attrs

from svc_async.cli.exit_codes import Exit, describe, explain
from svc_async.cli.options import Flag, JsonFlag
from svc_async.cli.outcome import check_report, write_json_report, write_report
from svc_async.cli.output.console import count, print_error, say, show_json, show_list
from svc_async.cli.sessions import open_session, run_in
from svc_async.drift import DriftFinding, DriftKind, DriftReport
from svc_async.errors import AccessDenied, InvalidArgument, SvcError, UnusableFile
from svc_async.jobs.html_report import read_style
from svc_async.printable import clean
from svc_async.private_files import check_replaceable, report_os_error, write_private
from svc_async.run_files import PAGE_BEGINNING
from svc_async.session import Session

__all__ = ["drift"]

T = TypeVar("T")

_RECORDS = 50
"""Records of a page that are asked for; the media library and the products have no larger ones."""
_LARGEST_FILE = 2**22
"""Bytes of a file of known drift; a report has less."""
_MOST_DOTS = 1_000
"""Dots in one of its lines: the time that a TOML parser takes is quadratic in them."""
_IDENTITY = ("operation", "kind", "place", "found")
"""The fields of a finding that make it the same as another."""
_BEGINNING = "# Known drift. `svc-async drift --accepted FILE --accept` adds to it what is new.\n"


def drift(
    *,
    accepted: Path | None = None,
    accept: Flag = False,
    out: Path | None = None,
    profile: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Compare answers of the service with what this SDK knows, out of a few harmless GETs.

    It lists accounts, and cards, media, features and the like of the first one; with credentials of an app, its
    webhooks. The report names fields, types, codes, headers and limits, and has no values.

    Exit codes: 0 nothing new, 1 new drift, 2 a call failed or wrong usage.

    Args:
        accepted: A TOML file of known drift, which is not new.
        accept: Add what is new to the file of --accepted, which need not exist.
        out: Write the report to this file: .html to read, .json for programs.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    if out is not None:
        check_report(out, "--out")
    known = _read_known(accepted, may_be_new=accept)
    report = DriftReport()
    failures = run_in(open_session(profile, drift=report), _call)
    findings = report.findings
    new = [each for each in findings if each not in known]
    if accept and accepted is not None:
        _write_known(accepted, {*known, *new})
        say(f"{count(len(new), 'finding')} added to {accepted}.")
        new = []
    code = Exit.USAGE if failures else Exit.FAILURE if new else Exit.DONE
    facts: dict[str, Any] = {
        **report.to_dict(),
        "findings": [{**attrs.asdict(each), "is_new": each in new} for each in findings],
        "failed": [{"call": call, **describe(error)} for call, error in failures.items()],
    }
    first = next(map(describe, failures.values()), None)
    for call, error in failures.items():
        print_error(f"{call}: {explain(error)}")
    if out is not None and out.suffix == ".json":
        write_json_report(out, facts, error=first, exit_code=code, option="--out")
    elif out is not None:
        write_report(out, _render_page(facts), "--out")
    if as_json:
        show_json(facts, error=first)
    else:
        show_list(new, {_name(column): attrgetter(column) for column in _COLUMNS}, none="No new drift.")
        answers = sum(each["compared"] for each in facts["operations"])
        say(f"{count(answers, 'answer')} compared, {count(len(new), 'new finding')} of {len(findings):,}.")
    return code


_COLUMNS = (*_IDENTITY, "expected", "count")


def _name(column: str) -> str:
    return column.removeprefix("is_").capitalize()


async def _call(session: Session) -> Mapping[str, SvcError]:
    """Make the calls, and return the errors of those that failed."""
    failures: dict[str, SvcError] = {}

    async def get(call: str, make: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await make()
        except SvcError as error:
            failures[call] = error
            return None

    try:
        accounts = session.accounts
    except AccessDenied:  # these are credentials of an app
        await get("webhooks.list", session.webhooks.list)
        return failures
    # The only call of those that share five requests in 15 minutes: the command may be repeated at once.
    page = await get("accounts.list", lambda: accounts.list(count=_RECORDS))
    catalogs = await get("product_catalogs.list", session.product_catalogs.list)
    if catalogs is not None and catalogs.items:
        products = session.product_catalog(catalogs.items[0].id).products
        await get("products.list", lambda: products.list(count=_RECORDS))
    if page is None or not page.items:
        return failures
    account_id = page.items[0].id
    account = session.account(account_id)
    calls: Mapping[str, Callable[[], Awaitable[object]]] = {
        "accounts.get": lambda: accounts.get(account_id),
        "account_media.list": lambda: account.account_media.list(count=_RECORDS),
        "account.apps.list": lambda: account.apps.list(count=_RECORDS),
        "cards.list": lambda: account.cards.list(count=_RECORDS),
        "features.list": account.features.list,
        "line_item_curated_categories.list": lambda: account.line_item_curated_categories.list(count=_RECORDS),
        "media_library.list": lambda: account.media_library.list(count=_RECORDS),
        "poll_cards.list": lambda: account.poll_cards.list(count=_RECORDS),
        "video_conversation_cards.list": lambda: account.video_conversation_cards.list(count=_RECORDS),
    }
    for name, make in calls.items():
        await get(name, make)
    return failures


def _read_known(path: Path | None, *, may_be_new: bool) -> Collection[DriftFinding]:
    """Return the drift that a file lists.

    Raises:
        InvalidArgument: it is to be written and not named.
        UnusableFile: it cannot be read, or is something else; the problem names line or field.
    """
    if path is None:
        if may_be_new:
            raise InvalidArgument("--accept", "needs --accepted FILE, the file that it writes")
        return ()
    if may_be_new:
        with report_os_error("--accepted", path, "cannot be written"):
            check_replaceable(path)
        if not path.exists():
            return ()
    with report_os_error("--accepted", path, "cannot be read"), path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise UnusableFile("--accepted", path, f"must have at most {_LARGEST_FILE:,} bytes")
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.count(b".") > _MOST_DOTS:
            raise UnusableFile(
                "--accepted", path, f"must have at most {_MOST_DOTS:,} dots in a line (at line {number})"
            )
    try:
        listed = tomllib.loads(content.decode()).get("finding", [])
    except (ValueError, RecursionError) as error:
        problem = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is nested or not UTF-8"
        raise UnusableFile("--accepted", path, f"must be TOML: {problem}") from None
    if not isinstance(listed, list):
        raise UnusableFile("--accepted", path, "must list what is known as [[finding]]")
    return [_parse_finding(path, number, each) for number, each in enumerate(listed, 1)]


def _parse_finding(path: Path, number: int, entry: object) -> DriftFinding:
    fields = {"found": "", **entry} if isinstance(entry, dict) else {}
    for name in _IDENTITY:
        if not isinstance(fields.get(name), str):
            raise UnusableFile("--accepted", path, f"must have a string {name} in finding {number}")
    if fields["kind"] not in {*DriftKind}:
        raise UnusableFile("--accepted", path, f"must have one of {', '.join(DriftKind)} as kind of finding {number}")
    if len(fields) > len(_IDENTITY):
        raise UnusableFile("--accepted", path, f"must have no other fields than {', '.join(_IDENTITY)}: see {number}")
    operation, kind, place, found = (fields[name] for name in _IDENTITY)
    return DriftFinding(operation=operation, kind=DriftKind(kind), place=place, found=found)


def _write_known(path: Path, known: Collection[DriftFinding]) -> None:
    entries = (
        "\n[[finding]]\n" + "".join(f"{name} = {json.dumps(getattr(each, name))}\n" for name in _IDENTITY)
        for each in sorted(known)
    )
    with report_os_error("--accepted", path, "cannot be written"):
        write_private(path, f"{_BEGINNING}{''.join(entries)}".encode())


def _render_page(facts: Mapping[str, Any]) -> str:
    """Return the report as a page."""
    columns = (*_COLUMNS, "is_new")
    head = "".join(f'<th scope="col">{_name(column)}</th>' for column in columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_escape(finding[column])}</td>' for column in columns)}</tr>\n"
        for finding in facts["findings"]
    )
    operations = "".join(
        f"<dt>{_escape(each['operation'])}</dt><dd>{each['compared']:,} of {each['answers']:,} answers compared</dd>\n"
        for each in facts["operations"]
    )
    failed = "".join(f"<p>{_escape(each['call'])}: {_escape(each['message'])}</p>\n" for each in facts["failed"])
    return f"""{PAGE_BEGINNING}<title>Drift</title>
<style>{read_style()}</style>
</head>
<body>
<main>
<h1>Drift</h1>
{failed}<section>
<table><thead><tr>{head}</tr></thead>
<tbody>
{rows}</tbody></table>
</section>
<section>
<dl>
{operations}</dl>
</section>
</main>
</body>
</html>
"""


def _escape(value: object) -> str:
    return escape(clean(str(value)))
