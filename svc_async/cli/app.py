"""The commands, and where each is defined; its module is imported when it is called or asked for help."""

import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter
from rich.console import Console

from svc_async._version import __version__
from svc_async.cli.exit_codes import INTERRUPTED, Exit, Interrupted, describe, exit_of, explain
from svc_async.cli.output.console import output, print_error
from svc_async.cli.output.log import print_log
from svc_async.cli.output.usage import describe_usage
from svc_async.errors import SvcError

__all__ = ["app", "run"]


def _describe_version() -> str:
    from svc_async.users.identifiers import HASH_LIBRARY  # noqa: PLC0415 - for this only; it loads the library

    return f"{__version__} (SHA-256 by {HASH_LIBRARY})"


app = App(
    name="svc-async",
    help="""Audiences, do-not-reach lists and catalogs of the svc ads platform from the command line.

Exit codes: 0 done, 1 failure, 2 wrong usage or input, 5 some rows failed, 130 interrupted.""",
    help_format="markdown",
    version=_describe_version,
    result_action="return_value",
)
app.command("svc_async.cli.commands.accounts:app", name="accounts", help="List ad accounts.")
app.command(
    "svc_async.cli.commands.audience:app",
    name="audience",
    help="List, create and delete custom audiences, and send files of users to them.",
)
app.command("svc_async.cli.commands.auth:app", name="auth", help="Log in and out, and show the credentials in use.")
app.command("svc_async.cli.commands.catalog:app", name="catalog", help="Send a feed of products to a catalog.")
app.command(
    "svc_async.cli.completion:completion",
    help="""Print the completion script of a shell, or install it.

Try it: `source <(svc-async completion bash)`.""",
)
app.command(
    "svc_async.cli.commands.demo:demo",
    help="Run the main job on an embedded sandbox: a messy customer file becomes an audience.",
)
app.command("svc_async.cli.commands.dialect:app", name="dialect", help="Check the words of another platform.")
app.command(
    "svc_async.cli.commands.do_not_reach:app",
    name="do-not-reach",
    help="Send a file of users to a do-not-reach list.",
)
app.command(
    "svc_async.cli.commands.drift:drift",
    help="Compare answers of the service with what this SDK knows, out of a few harmless GETs.",
)
app.command("svc_async.cli.commands.job:app", name="job", help="Inspect and resume jobs that keep a journal.")
app.command(
    "svc_async.cli.commands.sandbox:sandbox",
    help="""Serve an embedded sandbox of the platform until interrupted (Ctrl-C, exit code 0).

Its URLs and credentials are printed to stdout as `export` lines that a shell can read, and to stderr as a summary.""",
)
app.command("svc_async.cli.commands.state:app", name="state", help="Check and maintain the state that processes share.")
app.command("svc_async.cli.commands.stream:app", name="stream", help="Follow a stream of events.")
app.command("svc_async.cli.commands.trigger:trigger", help="Trigger an event on a running sandbox.")
app.command("svc_async.cli.commands.webhook:app", name="webhook", help="Register, receive and check webhooks.")


_TEXT_ONLY = frozenset({"--help", "-h", "--version"})
_VERBOSE = ("--verbose", "-v")
_QUIET = ("--quiet", "-q")
_YES = frozenset({"", "1", "t", "true", "y", "yes"})
"""What follows `--json`, if anything, as cyclopts reads it."""
_MESSAGES = Group("Messages", sort_key=1)


app.meta.name_transform = lambda _: "svc-async"  # of the function below; completion is installed under it


@app.meta.default
def _list_messages(
    *,
    verbose: Annotated[bool, Parameter(name=_VERBOSE, group=_MESSAGES, negative=(), show_default=False)] = False,
    quiet: Annotated[bool, Parameter(name=_QUIET, group=_MESSAGES, negative=(), show_default=False)] = False,
) -> None:
    """List the options of all commands for the help and for shells; `run` reads them.

    Args:
        verbose: Print each request to stderr; SVC_LOG=debug prints each attempt.
        quiet: Print only results and errors: no progress, no notes, no warnings.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code; with `--json`, an error is printed as an object too."""
    options = [*takewhile(lambda each: each != "--", arguments)]
    # An option that asks for JSON counts, whatever else is wrong with the others.
    as_json = any(each.partition("=")[2].lower() in _YES for each in options if _is_json(each))
    as_json = as_json and _TEXT_ONLY.isdisjoint(options)
    verbose, quiet = not set(_VERBOSE).isdisjoint(options), not set(_QUIET).isdisjoint(options)
    rest = [each for each in options if each not in _VERBOSE + _QUIET]
    # `--json` becomes the last option, behind the name of the command, which takes it.
    arguments = [*sorted(rest, key=_is_json), *arguments[len(options) :]]
    try:
        output.begin(" ".join(app.parse_commands(arguments)[0]))  # such as `job status`
    except CycloptsError:
        output.begin("")
    try:
        code = _run(arguments, verbose=verbose, quiet=quiet)
    except (Interrupted, KeyboardInterrupt):
        code, output.error = Exit.INTERRUPTED, INTERRUPTED
    if as_json or output.result is not None:
        output.finish(code)
    return code


def _is_json(option: str) -> bool:
    return option.partition("=")[0] == "--json"


def _run(arguments: Sequence[str], *, verbose: bool, quiet: bool) -> int:
    try:
        with print_log(verbose=verbose, quiet=quiet):
            code: object = app(arguments, console=Console(), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        message = describe_usage(error, lambda: {name: [*app[name]] for name in app if name not in _TEXT_ONLY})
        return _fail(Exit.USAGE, message, {"type": "UsageError", "message": message})
    except SvcError as error:
        return _fail(exit_of(error), explain(error), describe(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"I/O error: {error.strerror or type(error).__name__}"
        return _fail(Exit.FAILURE, message, {"type": "OSError", "message": message})
    return code if isinstance(code, int) else Exit.DONE


def _fail(code: Exit, message: str, facts: Mapping[str, Any]) -> Exit:
    output.error = facts
    sys.stdout.flush()
    print_error(message)
    return code
