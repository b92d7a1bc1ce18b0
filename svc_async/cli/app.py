"""What one may type."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from svc_async._version import __version__
from svc_async.cli.exits import Exit, exit_of, explain
from svc_async.cli.options import Flag, JobOptions
from svc_async.errors import SvcError

__all__ = ["run"]

_EPILOGUE = """Exit codes: 0 done, 1 failure, 2 wrong usage or input, 5 some rows failed, 130 interrupted."""

app = App(
    name="svc-async",
    help=f"Audiences of the svc ads platform from the command line.\n\n{_EPILOGUE}",
    help_format="plaintext",
    version=__version__,
    result_action="return_value",
)
audience = App(name="audience", help="Send a file of people to a custom audience.", help_format="plaintext")
accounts = App(name="accounts", help="Look at ad accounts.", help_format="plaintext")
auth = App(name="auth", help="Log a user in and out, and see who calls.", help_format="plaintext")
stream = App(name="stream", help="Follow what happens.", help_format="plaintext")
app.command(audience)
app.command(accounts)
app.command(auth)
app.command(stream)

_DEFAULTS = JobOptions()


@audience.command
def upload(
    file: Path,
    /,
    *,
    options: JobOptions = _DEFAULTS,
    effective_at: str | None = None,
    expires_at: str | None = None,
) -> int:
    """Add the people of a CSV file to an audience.

    Values are normalised and hashed on this machine. Rows that cannot be sent do not hold up the others.

    Args:
        file: A CSV file in UTF-8 with a header.
        options: What uploads and removals have in common.
        effective_at: From when the people belong to the audience, in ISO 8601 with a time zone. [default: now]
        expires_at: Until when. [default: 13 months from now]
    """
    from svc_async.ads.custom_audiences import BatchOperationType  # noqa: PLC0415 - help and errors come at once
    from svc_async.cli.audience import run as run_job  # noqa: PLC0415

    return run_job(file, BatchOperationType.UPDATE, options, effective_at=effective_at, expires_at=expires_at)


@audience.command
def remove(file: Path, /, *, options: JobOptions = _DEFAULTS) -> int:
    """Take the people of a CSV file out of an audience: everybody who has one of their identifiers.

    Args:
        file: A CSV file in UTF-8 with a header.
        options: What uploads and removals have in common.
    """
    from svc_async.ads.custom_audiences import BatchOperationType  # noqa: PLC0415
    from svc_async.cli.audience import run as run_job  # noqa: PLC0415

    return run_job(file, BatchOperationType.DELETE, options)


@accounts.command(name="list")
def list_accounts(*, profile: str | None = None, json: Flag = False) -> int:
    """List the ad accounts that the credentials may use.

    Args:
        profile: Take credentials and hosts from this profile, not from SVC_* variables.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.accounts import run as run_list  # noqa: PLC0415

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
    from svc_async.cli.auth import login as run_login  # noqa: PLC0415

    return run_login(profile, callback=callback, browser=not no_browser, as_json=json)


@auth.command
def whoami(*, profile: str | None = None, check: Flag = False, json: Flag = False) -> int:
    """Say which credentials a command would use, and where they came from. Secrets are not shown.

    Args:
        profile: Look at this profile, not at SVC_* variables.
        check: Ask the service, too: for the accounts of a user, for the webhooks of an app.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.auth import whoami as run_whoami  # noqa: PLC0415

    return run_whoami(profile, check=check, as_json=json)


@auth.command
def logout(*, profile: str | None = None, json: Flag = False) -> int:
    """Make the token of a profile stop working, and take it out of the profile; the app stays there.

    Args:
        profile: The profile. [default: SVC_PROFILE, or "default"]
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.auth import logout as run_logout  # noqa: PLC0415

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
    from svc_async.cli.stream import run as follow  # noqa: PLC0415

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
    from svc_async.cli.serve import run as serve  # noqa: PLC0415

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
    from svc_async.cli.trigger import run as run_trigger  # noqa: PLC0415

    return run_trigger(event, user=user, changes=set or (), url=url, as_json=json)


@app.command
def demo(*, rows: int = 200_000, seed: int = 7, json: Flag = False) -> int:
    """See the main job run: a messy customer file becomes an audience on an embedded sandbox.

    Args:
        rows: Rows of the file.
        seed: Decides what stands in them.
        json: Print one JSON object and say nothing else.
    """
    from svc_async.cli.demo import run as run_demo  # noqa: PLC0415

    return run_demo(rows=rows, seed=seed, as_json=json)


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
    from svc_async.cli.consoles import complain  # noqa: PLC0415 - nothing is to be said usually

    sys.stdout.flush()
    complain(message)
