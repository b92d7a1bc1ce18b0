"""What one may type."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

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
accounts = App(name="accounts", help="Look at ad accounts.", help_format="plaintext")
do_not_reach = App(name="do-not-reach", help="Send a file of people to a do-not-reach list.", help_format="plaintext")
catalog = App(name="catalog", help="Send a feed of products to a product catalog.", help_format="plaintext")
auth = App(name="auth", help="Log a user in and out, and see who calls.", help_format="plaintext")
job = App(name="job", help="Look after jobs that keep a journal.", help_format="plaintext")
stream = App(name="stream", help="Follow what happens.", help_format="plaintext")
webhook = App(name="webhook", help="Register, receive and check webhooks.", help_format="plaintext")
app.command(audience)
app.command(do_not_reach)
app.command(catalog)
app.command(job)
app.command(accounts)
app.command(auth)
app.command(stream)
app.command(webhook)


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


@accounts.command(name="list")
def list_accounts(*, profile: str | None = None, json: Flag = False) -> int:
    """List the ad accounts that the credentials may use.

    Args:
        profile: Take credentials and hosts from this profile, not from SVC_* variables.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.accounts import run as run_list  # noqa: PLC0415

    return run_list(profile, as_json=json)


@auth.command
def login(
    *, profile: str | None = None, callback: str | None = None, no_browser: Flag = False, json: Flag = False
) -> int:
    """Have a user grant access to your app, and store the token in a profile that only you can read.

    The app and the hosts are taken from the profile if it is there, else from SVC_* variables. The page shows a PIN,
    which is read from stdin, unless there is a callback.

    Args:
        profile: The profile to store. [default: SVC_PROFILE, or "default"]
        callback: Listen for the user's return here, such as http://127.0.0.1:8766/done. Configure it in the app's
            settings.
        no_browser: Only print the page's URL.
        json: Print one JSON object; the page's URL goes to stderr.
    """
    from svc_async.cli.commands.auth import login as run_login  # noqa: PLC0415

    return run_login(profile, callback=callback, browser=not no_browser, as_json=json)


@auth.command
def whoami(*, profile: str | None = None, check: Flag = False, json: Flag = False) -> int:
    """Say which credentials a command would use, and where they came from. Secrets are not shown.

    Args:
        profile: Look at this profile, not at SVC_* variables.
        check: Ask the service, too: for the accounts of a user, for the webhooks of an app.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.auth import whoami as run_whoami  # noqa: PLC0415

    return run_whoami(profile, check=check, as_json=json)


@auth.command
def logout(*, profile: str | None = None, json: Flag = False) -> int:
    """Make the token of a profile stop working, and take it out of the profile; the app stays there.

    Args:
        profile: The profile. [default: SVC_PROFILE, or "default"]
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.auth import logout as run_logout  # noqa: PLC0415

    return run_logout(profile, as_json=json)


@stream.command
def tail(name: Literal["activity", "filtered"], /, *, profile: str | None = None, json: Flag = False) -> int:
    """Print events as they come until it is stopped (Ctrl-C, exit code 0).

    It connects again by itself, asks for what it missed, and says so on stderr. It needs the app's consumer key and
    secret, or its bearer token.

    Args:
        name: "activity": the events of the app's subscriptions. "filtered": the posts that match the app's rules.
        profile: Take credentials and hosts from this profile, not from SVC_* variables.
        json: Print each event as one JSON object in one line, as it came.
    """
    from svc_async.cli.commands.stream import run as follow  # noqa: PLC0415

    return follow(name, profile, as_json=json)


@app.command
def sandbox(
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    seed: int = 7,
    forward: Annotated[list[str] | None, Parameter(negative=())] = None,
    json: Flag = False,
) -> int:
    """Serve an embedded sandbox of the platform until it is stopped (Ctrl-C, exit code 0).

    Its URLs and credentials are printed as ready `export` lines to stdout, and for people to stderr.

    Args:
        host: The address to listen on. Clients accept http:// on loopback only.
        port: The port; 0 takes a free one.
        seed: Decides ids, keys and tokens.
        forward: URL=URL delivers what goes to a webhook, such as https://hooks.example.test/svc, to a receiver on this
            machine, such as http://127.0.0.1:9000/svc. Give it as often as you need.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.sandbox import run as serve  # noqa: PLC0415

    return serve(host=host, port=port, seed=seed, forward=forward or (), as_json=json)


@app.command
def trigger(
    event: str,
    /,
    *,
    user: str | None = None,
    set: Annotated[list[str] | None, Parameter(negative=())] = None,  # noqa: A002 the option's name
    url: str = "http://127.0.0.1:8765",
    json: Flag = False,
) -> int:
    """Let something happen on a running sandbox, so that its webhooks and streams tell of it.

    Args:
        event: The type of event, such as post.create, dm.received or profile.update.bio.
        user: The id of the user to whom it happens. [default: the first user of the sandbox]
        set: PATH=VALUE changes the event's payload, such as text=Hello or public_metrics.like_count=7. VALUE is JSON
            if it reads as such, else a string. Give it as often as you need.
        url: Where the sandbox is.
        json: Print one JSON object, the payload included, and say nothing else.
    """
    from svc_async.cli.commands.trigger import run as run_trigger  # noqa: PLC0415

    return run_trigger(event, user=user, changes=set or (), url=url, as_json=json)


@app.command
def demo(*, rows: int = 200_000, seed: int = 7, json: Flag = False) -> int:
    """See the main job run: a messy customer file becomes an audience on an embedded sandbox.

    Args:
        rows: Rows of the file.
        seed: Decides what stands in them.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.demo import run as run_demo  # noqa: PLC0415

    return run_demo(rows=rows, seed=seed, as_json=json)


@webhook.command
def listen(
    *,
    host: str = "127.0.0.1",
    port: int = 9000,
    save: Path | None = None,
    profile: str | None = None,
    json: Flag = False,
) -> int:
    """Receive deliveries, answer CRC checks and print events, until it is stopped (Ctrl-C, exit code 0).

    The app's consumer secret is taken from SVC_CONSUMER_SECRET or a profile.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        save: Write each delivery into this folder, byte for byte as it was signed.
        profile: Take the secret from this profile, not from SVC_CONSUMER_SECRET.
        json: Print one JSON object a line and say nothing else: first where it listens, then the events.
    """
    from svc_async.cli.commands.webhook import listen as listen_to  # noqa: PLC0415

    return listen_to(host=host, port=port, save=save, profile=profile, as_json=json)


@webhook.command
def register(
    url: str,
    /,
    *,
    event: Annotated[list[str] | None, Parameter(negative=())] = None,
    user: str | None = None,
    profile: str | None = None,
    json: Flag = False,
) -> int:
    """See to it that a URL is registered and valid, and subscribed to events of a user.

    What stands already is left as it is, so it may be repeated. The receiver must be up: the service checks the URL.

    Args:
        url: The webhook URL: https, without a port.
        event: A type of event that is to come, such as post.create. Give it as often as you need.
        user: The id of the user whose events they are.
        profile: Take credentials and hosts from this profile, not from SVC_* variables.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.register import run as run_register  # noqa: PLC0415

    return run_register(url, events=event or (), user=user, profile=profile, as_json=json)


@webhook.command
def check(url: str, /, *, profile: str | None = None, json: Flag = False) -> int:
    """Ask a webhook URL for the CRC answer as the service does, time it, and say what is wrong with it.

    Args:
        url: The webhook URL.
        profile: Take the secret from this profile, not from SVC_CONSUMER_SECRET.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.webhook import check as check_url  # noqa: PLC0415

    return check_url(url, profile=profile, as_json=json)


@webhook.command
def sign(file: Path, /, *, profile: str | None = None, json: Flag = False) -> int:
    """Print what the signature header of a delivery with this body is.

    Args:
        file: The body, byte for byte.
        profile: Take the secret from this profile, not from SVC_CONSUMER_SECRET.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.webhook import sign_file  # noqa: PLC0415

    return sign_file(file, profile=profile, as_json=json)


@webhook.command
def verify(file: Path, /, *, signature: str, profile: str | None = None, json: Flag = False) -> int:
    """Say whether a signature is good for this body, or what is wrong with it (exit code 1).

    Args:
        file: The body, byte for byte.
        signature: The value of the signature header.
        profile: Take the secret from this profile, not from SVC_CONSUMER_SECRET.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.commands.webhook import verify_file  # noqa: PLC0415

    return verify_file(file, signature=signature, profile=profile, as_json=json)


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
