"""What is wrong with a command line, and what was probably meant."""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from difflib import get_close_matches
from textwrap import shorten
from types import MappingProxyType

from cyclopts import (
    CoercionError,
    CycloptsError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

__all__ = ["describe_usage"]

_WITH_FILES = frozenset({"audience", "catalog", "do-not-reach"})
_WITH_SYNC = frozenset({"audience", "catalog"})
_DRY_RUN = "--dry-run"
_DRY_RUNS = frozenset({_DRY_RUN, "--dryrun", "--dry_run"})
_LONGEST = 1_000
"""Characters of a message of the parser that are shown, on one line."""
_OPTIONS_OF_ALL = ("--help", "--quiet", "--verbose", "--version")
"""The options that need no command."""
_SIMILARITY = 0.75
_ONE_FILE = (
    "A command takes one file at a time: run it for one after the other, except a sync, which needs all rows at once. "
    "CSV files with the same columns are joined by `awk 'NR == 1 || FNR > 1' A.csv B.csv | svc-async … -`."
)
_LISTS = ("--audience", "--list", "--catalog")
"""The options that name the list of a command; each command has at most one of them."""
_NAMES_OF_LISTS = frozenset({*_LISTS, "--custom-audience", "--do-not-reach", "--do-not-reach-list", "--dnr"})
_VALUES: Mapping[type, str] = MappingProxyType(
    {int: "a whole number", float: "a number", timedelta: "a duration, such as 30d or 12h"}
)
_JOURNALS = frozenset({"--journal", "--journals", "--job"})
_REPORT = "`svc-async job report --out FILE` writes the report of a job that has a journal."
_NO_JOURNAL = (
    "A sync needs no journal: its state keeps what was accepted. After an interruption, run the same command again."
)
_ABSENT: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("do-not-reach", "sync"): (
            "A do-not-reach list cannot be synced: `svc-async do-not-reach upload` adds and renews everybody in a "
            "file, `svc-async do-not-reach remove` takes the people in a file off the list."
        ),
        **{
            ("do-not-reach", verb): (
                "An account has at most one do-not-reach list: account.do_not_reach_lists of a session in Python "
                "creates and lists it, and the ads manager of the platform shows its id."
            )
            for verb in ("create", "list")
        },
    }
)
"""What is said of commands that somebody may look for."""


def describe_usage(error: CycloptsError, list_groups: Callable[[], Mapping[str, Collection[str]]]) -> str:
    """Return what is wrong with a command line, what was probably meant, and whose help tells more.

    Args:
        error: what is wrong.
        list_groups: returns the names of the commands in each group; that imports all of them.
    """
    return f"{_describe(error, list_groups)} See `{' '.join(['svc-async', *(error.command_chain or ()), '--help'])}`."


def _describe(error: CycloptsError, list_groups: Callable[[], Mapping[str, Collection[str]]]) -> str:
    problem: str | None = None
    if isinstance(error, UnknownCommandError):
        problem = _describe_command(error, list_groups)
    elif isinstance(error, UnknownOptionError):
        problem = _describe_option(error)
    elif isinstance(error, UnusedCliTokensError):
        one_file = f" {_ONE_FILE}" if not _WITH_FILES.isdisjoint(error.command_chain or ()) else ""
        problem = f"Unexpected argument: {', '.join(map(str, error.unused_tokens or ()))}.{one_file}"
    elif isinstance(error, CoercionError):
        option, value = error.token and error.token.keyword, error.target_type and _VALUES.get(error.target_type)
        problem = f"{option} must be {value}." if option and value else None
    return f"{problem or shorten(str(error), _LONGEST)} {_advise_on_dry_run(error)}".rstrip()


def _advise_on_dry_run(error: CycloptsError) -> str:
    """Return how a job can be tried that has no dry run; empty for other errors."""
    group, *_ = error.command_chain or ("",)
    given: Collection[str | None] = ()
    if isinstance(error, UnknownOptionError):
        given = {_find_option(error)}
    elif isinstance(error, ValidationError) and error.argument is not None:  # where the file is expected
        given = {token.value for token in error.argument.tokens}
    if _DRY_RUNS.isdisjoint(given) or group not in _WITH_FILES or "sync" in (error.command_chain or ()):
        return ""
    trial = "`--sandbox` sends the file to an embedded sandbox and lists the rows that fail"
    if group not in _WITH_SYNC:
        return f"Instead, {trial}."
    return f"Only a sync has a plan: `svc-async {group} sync {_DRY_RUN}` tells what a sync would send; {trial}."


def _describe_command(
    error: UnknownCommandError, list_groups: Callable[[], Mapping[str, Collection[str]]]
) -> str | None:
    """Describe an option before the name of the command, a subcommand without its group, or one that is looked for."""
    token, *_ = error.unused_tokens or ("",)
    if token.startswith("-"):
        if near := get_close_matches(token, _OPTIONS_OF_ALL, 1, _SIMILARITY):
            return f"Unknown option: {token}. Did you mean {near[0]}?"
        return f"{token.partition('=')[0]} must follow the name of a command."
    if error.command_chain:
        return _ABSENT.get((error.command_chain[-1], token))
    found = [f"`svc-async {name} {token}`" for name, commands in list_groups().items() if token in commands]
    return f'Unknown command "{token}". Did you mean {" or ".join(found)}?' if found else None


def _find_option(error: UnknownOptionError) -> str:
    return (error.token.keyword or error.token.value or "").partition("=")[0]


def _describe_option(error: UnknownOptionError) -> str | None:
    """Describe an option that has another name here, or that the command has no use for."""
    option = _find_option(error)
    if option in _JOURNALS and "sync" in (error.command_chain or ()):
        return f"Unknown option: {option}. {_NO_JOURNAL}"
    if option == "--report" and "job" in (error.command_chain or ()):
        return f"Unknown option: {option}. {_REPORT}"
    if option not in _NAMES_OF_LISTS:
        return None
    known = {name for argument in error.argument_collection for name in argument.names}
    meant = next((each for each in _LISTS if each in known), None)
    return f"Unknown option: {option}. Did you mean {meant}?" if meant else None
