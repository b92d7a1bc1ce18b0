"""What one may type."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from svc_async._version import __version__
from svc_async.cli.exit_codes import Exit, exit_of, explain
from svc_async.cli.options import FeedOptions, Flag, JobOptions, JournalOptions, PeopleOptions, SyncOptions
from svc_async.errors import SvcError

__all__ = ["run"]

_EPILOGUE = """Exit codes: 0 done, 1 failure, 2 wrong usage or input, 5 some rows failed, 130 interrupted."""

app = App(
    name="svc-async",
    help=f"Audiences, do-not-reach lists and catalogs of the svc ads platform from the command line.\n\n{_EPILOGUE}",
    help_format="plaintext",
    version=__version__,
    result_action="return_value",
)
audience = App(name="audience", help="Send a file of people to a custom audience.", help_format="plaintext")
do_not_reach = App(name="do-not-reach", help="Send a file of people to a do-not-reach list.", help_format="plaintext")
catalog = App(name="catalog", help="Send a feed of products to a product catalog.", help_format="plaintext")
job = App(name="job", help="Look after jobs that keep a journal.", help_format="plaintext")
app.command(audience)
app.command(do_not_reach)
app.command(catalog)
app.command(job)
app.command("svc_async.cli.commands.accounts:app", name="accounts", help="List ad accounts.")
app.command("svc_async.cli.commands.auth:app", name="auth", help="Log in and out, and show the credentials in use.")
app.command("svc_async.cli.commands.stream:app", name="stream", help="Follow a stream of events.")
app.command("svc_async.cli.commands.webhook:app", name="webhook", help="Register, receive and check webhooks.")
app.command(
    "svc_async.cli.commands.demo:demo",
    help="Run the main job on an embedded sandbox: a messy customer file becomes an audience.",
)
app.command(
    "svc_async.cli.commands.sandbox:sandbox",
    help="""Serve an embedded sandbox of the platform until interrupted (Ctrl-C, exit code 0).

Its URLs and credentials are printed to stdout as `export` lines that a shell can read, and to stderr as a summary.""",
)
app.command("svc_async.cli.commands.trigger:trigger", help="Trigger an event on a running sandbox.")


def _no_option(_: object, file: Path) -> None:
    if str(file).startswith("-") and str(file) != "-":
        raise ValueError(f"Unknown option {file}.")


Input = Annotated[Path, Parameter(allow_leading_hyphen=True, validator=_no_option)]
"""A file; `-` is standard input."""
_DEFAULTS = JobOptions()
_JOURNAL = JournalOptions()
_PEOPLE = PeopleOptions()
_FEED = FeedOptions()
_SYNC = SyncOptions()


@audience.command
def upload(
    file: Input,
    /,
    *,
    account: str | None = None,
    audience: str | None = None,
    options: JobOptions = _DEFAULTS,
    people: PeopleOptions = _PEOPLE,
    journal: JournalOptions = _JOURNAL,
    effective_at: str | None = None,
    expires_at: str | None = None,
) -> int:
    """Add the people of a file to an audience.

    Values are normalised and hashed on this machine. Rows that cannot be sent do not hold up the others.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Needed, unless --sandbox has one for you.
        audience: The custom audience. Needed, unless --sandbox has one for you.
        options: What all jobs have in common.
        people: What files of people have in common.
        journal: What jobs that can be taken up again have in common.
        effective_at: From when the people belong to the audience, in ISO 8601 with a time zone. [default: now]
        expires_at: Until when. [default: 13 months from now]
    """
    from svc_async.ads.vocabulary import BatchOperationType  # noqa: PLC0415 - help and errors come at once
    from svc_async.cli.commands.audience import run as run_job  # noqa: PLC0415

    return run_job(
        file,
        BatchOperationType.UPDATE,
        options,
        people,
        journal,
        account=account,
        audience=audience,
        effective_at=effective_at,
        expires_at=expires_at,
    )


@audience.command
def remove(
    file: Input,
    /,
    *,
    account: str | None = None,
    audience: str | None = None,
    options: JobOptions = _DEFAULTS,
    people: PeopleOptions = _PEOPLE,
    journal: JournalOptions = _JOURNAL,
) -> int:
    """Take the people of a file out of an audience: everybody who has one of their identifiers.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Needed, unless --sandbox has one for you.
        audience: The custom audience. Needed, unless --sandbox has one for you.
        options: What all jobs have in common.
        people: What files of people have in common.
        journal: What jobs that can be taken up again have in common.
    """
    from svc_async.ads.vocabulary import BatchOperationType  # noqa: PLC0415
    from svc_async.cli.commands.audience import run as run_job  # noqa: PLC0415

    return run_job(file, BatchOperationType.DELETE, options, people, journal, account=account, audience=audience)


@audience.command(name="sync")
def sync_audience(
    file: Input,
    /,
    *,
    account: str | None = None,
    audience: str | None = None,
    options: JobOptions = _DEFAULTS,
    people: PeopleOptions = _PEOPLE,
    sync: SyncOptions = _SYNC,
) -> int:
    """Make an audience hold the people of a file and nobody else, by sending only what changed since the last sync.

    What was accepted is kept in a file of the audience. Who was added by other means is not known, and stays.

    Args:
        file: All people who belong to the audience: CSV (with a header), JSON lines or Parquet; - is standard input.
        account: The ad account. Needed, unless --sandbox has one for you.
        audience: The custom audience. Needed, unless --sandbox has one for you.
        options: What all jobs have in common.
        people: What files of people have in common.
        sync: What syncs have in common.
    """
    from svc_async.cli.commands.audience import run_sync  # noqa: PLC0415

    return run_sync(file, options, people, sync, account=account, audience=audience)


@do_not_reach.command(name="upload")
def upload_do_not_reach(
    file: Input,
    /,
    *,
    account: str | None = None,
    list_id: Annotated[str | None, Parameter(name="--list")] = None,
    options: JobOptions = _DEFAULTS,
    people: PeopleOptions = _PEOPLE,
    journal: JournalOptions = _JOURNAL,
    expires_at: str | None = None,
) -> int:
    """Put the people of a file on a do-not-reach list, by e-mail address and phone number.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Needed, unless --sandbox has one for you.
        list_id: The do-not-reach list.
        options: What all jobs have in common.
        people: What files of people have in common.
        journal: What jobs that can be taken up again have in common.
        expires_at: Until when, in ISO 8601 with a time zone. [default: 13 months from now]
    """
    from svc_async.ads.vocabulary import BatchOperationType  # noqa: PLC0415
    from svc_async.cli.commands.do_not_reach import run as run_job  # noqa: PLC0415

    action = BatchOperationType.UPDATE
    return run_job(file, action, options, people, journal, account=account, list_id=list_id, expires_at=expires_at)


@do_not_reach.command(name="remove")
def remove_do_not_reach(
    file: Input,
    /,
    *,
    account: str | None = None,
    list_id: Annotated[str | None, Parameter(name="--list")] = None,
    options: JobOptions = _DEFAULTS,
    people: PeopleOptions = _PEOPLE,
    journal: JournalOptions = _JOURNAL,
) -> int:
    """Take the people of a file off a do-not-reach list.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Needed, unless --sandbox has one for you.
        list_id: The do-not-reach list.
        options: What all jobs have in common.
        people: What files of people have in common.
        journal: What jobs that can be taken up again have in common.
    """
    from svc_async.ads.vocabulary import BatchOperationType  # noqa: PLC0415
    from svc_async.cli.commands.do_not_reach import run as run_job  # noqa: PLC0415

    return run_job(file, BatchOperationType.DELETE, options, people, journal, account=account, list_id=list_id)


@catalog.command(name="upload")
def upload_products(
    feed: Input,
    /,
    *,
    catalog: str | None = None,
    options: JobOptions = _DEFAULTS,
    feeds: FeedOptions = _FEED,
    journal: JournalOptions = _JOURNAL,
) -> int:
    """Make and change the products of a merchant's feed. Products that are not in the feed stay.

    Args:
        feed: A feed in CSV or TSV (with a header), RSS 2.0 or Atom, compressed or not; - is standard input.
        catalog: The product catalog. Needed, unless --sandbox makes one for you.
        options: What all jobs have in common.
        feeds: What feeds have in common.
        journal: What jobs that can be taken up again have in common.
    """
    from svc_async.cli.commands.catalog import run_upload  # noqa: PLC0415

    return run_upload(feed, options, feeds, journal, catalog=catalog)


@catalog.command(name="delete")
def delete_products(
    file: Input,
    /,
    *,
    catalog: str | None = None,
    options: JobOptions = _DEFAULTS,
    feeds: FeedOptions = _FEED,
    journal: JournalOptions = _JOURNAL,
) -> int:
    """Delete products for good, by the keys that the service has made of them.

    Args:
        file: A table with a column product_key; - is standard input.
        catalog: The product catalog. Needed, unless --sandbox makes one for you.
        options: What all jobs have in common.
        feeds: What feeds have in common.
        journal: What jobs that can be taken up again have in common.
    """
    from svc_async.cli.commands.catalog import run_delete  # noqa: PLC0415

    return run_delete(file, options, feeds, journal, catalog=catalog)


@catalog.command(name="sync")
def sync_catalog(
    feed: Input,
    /,
    *,
    catalog: str | None = None,
    options: JobOptions = _DEFAULTS,
    feeds: FeedOptions = _FEED,
    sync: SyncOptions = _SYNC,
) -> int:
    """Make a catalog hold the products of a feed, by sending only what changed since the last sync.

    Products that a sync has sent and that are no longer in the feed are deleted for good.

    Args:
        feed: A feed in CSV or TSV (with a header), RSS 2.0 or Atom, compressed or not; - is standard input.
        catalog: The product catalog. Needed, unless --sandbox makes one for you.
        options: What all jobs have in common.
        feeds: What feeds have in common.
        sync: What syncs have in common.
    """
    from svc_async.cli.commands.catalog import run_sync  # noqa: PLC0415

    return run_sync(feed, options, feeds, sync, catalog=catalog)


@job.command
def status(path: Path, /, *, json: Flag = False) -> int:
    """Say how far a job is, what is in doubt and what to do next; also while it runs.

    Args:
        path: The job's journal.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.job import status as tell  # noqa: PLC0415

    return tell(path, as_json=json)


@job.command
def resume(path: Path, /, *, json: Flag = False) -> int:
    """Run the command again with which a job was begun, from any folder; it goes on where the job had come to.

    Credentials come from the same profile, or from the environment. What was read from standard input is not asked for
    again.

    Args:
        path: The job's journal.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.job_journal import recorded_command  # noqa: PLC0415

    return run([*recorded_command(path), *(["--json"] if json else [])])


@job.command
def report(path: Path, /, *, out: Path | None = None) -> int:
    """Write what became of a job, finished or not: totals, failures by reason, and how it went on against the limit.

    Args:
        path: The job's journal.
        out: Write to this file: .html for people, .json for programs. [default: JSON to stdout]
    """
    from svc_async.cli.commands.job import report as write  # noqa: PLC0415

    return write(path, out=out)


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say and give the exit code."""
    try:
        code: object = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _complain(f"{' '.join(str(error).split())} See `svc-async --help`.")
        return Exit.USAGE
    except SvcError as error:
        _complain(explain(error))
        return exit_of(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        _complain(f"the system refused: {error.strerror or type(error).__name__}")
        return Exit.FAILURE
    return code if isinstance(code, int) else Exit.DONE


def _complain(message: str) -> None:
    from svc_async.cli.console import complain  # noqa: PLC0415 - nothing is to be said usually

    sys.stdout.flush()
    complain(message)
