"""The exit codes of the command, and how it describes an error to people and to programs."""

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from svc_async.errors import (
    AccessDenied,
    ApiError,
    BatchError,
    Forbidden,
    InvalidArgument,
    NotFound,
    RateLimited,
    Sent,
    ServerError,
    SvcError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
    UnusableFile,
    WebhookInvalid,
    WrongState,
)

__all__ = ["INTERRUPTED", "Exit", "Interrupted", "describe", "exit_of", "explain"]


class Exit(enum.IntEnum):
    """The exit codes of the command."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    SOME_FAILED = 5
    INTERRUPTED = 130


class Interrupted(Exception):
    """SIGINT (Ctrl-C) or SIGTERM arrived; the work was cancelled and has cleaned up."""


INTERRUPTED: Mapping[str, Any] = {"type": "Interrupted", "message": "SIGINT (Ctrl-C) or SIGTERM arrived"}
"""How an interruption is described to programs."""

_CHECK_THE_RECEIVER = (
    "start the receiver first; `svc-async webhook check URL` shows what is wrong with its answer; a sandbox reaches it "
    "with `svc-async sandbox --forward URL=http://127.0.0.1:PORT/PATH`"
)
_HOSTS = "the hosts (base_url and ads_url of the profile, or SVC_BASE_URL and SVC_ADS_URL)"
_ADVICE: Mapping[type[SvcError], str] = MappingProxyType(
    {
        Unauthorized: "check the credentials (SVC_* variables or --profile)",
        Forbidden: (
            "`svc-async auth whoami` shows whose credentials these are, "
            "`svc-async accounts list` the accounts that they may use"
        ),
        NotFound: f"check the ids, and {_HOSTS}",
        RateLimited: "the limit is used up; try again later",
        ServerError: "the service has an internal problem; try again later",
        WebhookInvalid: _CHECK_THE_RECEIVER,
        TransportError: f"check {_HOSTS}, the network and the proxy",
        UnexpectedAnswer: f"check {_HOSTS} and the proxy: another server may have answered",
    }
)
_ADVICE_BY_CODE: Mapping[str, str] = MappingProxyType(
    {
        "99": (
            "the bearer token was requested too often, or the app's key or secret is wrong: check them, wait up to 15 "
            "minutes (a sandbox: start it again), or set SVC_BEARER_TOKEN and unset SVC_ACCESS_*"
        ),
        "CrcValidationFailed": _CHECK_THE_RECEIVER,
        "DuplicateSubscription": "`svc-async webhook register --move` moves events from one webhook to another",
        "RuleConfigurationIssue": (
            "the stream needs a rule first: in Python, await session.filtered_stream.rules.add([...])"
        ),
        "UrlValidationFailed": "the URL must be public, with https and without a port",
        "WebhookLimitExceeded": "the app has no room for another webhook: register a URL that it has, or delete one",
    }
)
_TRY = "or try without credentials: `svc-async demo`, or --sandbox where a command has it"
_TRY_IN_PYTHON = "or try without credentials: Session.sandbox()"
_IN_PYTHON = "; in Python it is "
"""What begins advice for Python callers, at the end of a message."""
_HOW_TO_AUTHENTICATE = f"set the SVC_* variables, name a profile with --profile, {_TRY}"
_NO_DEFAULT = "'default' is not in "
_HOW_TO_MAKE_DEFAULT = (
    f"`svc-async auth login` makes it; or name another with --profile, set the SVC_* variables, {_TRY}"
)
_WAIT = "run the same command again when that has ended"
_ADVICE_BY_PROBLEM: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "journal": {
            " does not exist$": "--job NAME names a job in the shared state",
            " is a folder$": "give one of the journals in it, such as FOLDER/NAME.journal",
        },
        "file": {
            " at least one of product_key,|has no 'product_key'": (
                "`svc-async catalog list` prints the product_key of each id, and a sync deletes by id"
            ),
            " is xml, but must be one of csv, tsv, jsonl, parquet$": "XML is for products: `svc-async catalog`",
        },
        "failures_file": {"^cannot be written to ": "give another path with --failures-file"},
        "state": {
            " is not a sync state$": "give the file of an earlier sync, or a new name",
            " cannot be created: ": "it is the folder of states by default; name a file in another one with --state",
        },
    }
)
"""Advice by the parameter that a problem is about, and by what the problem says, as a regular expression."""
_GIVE_JOURNAL = "give the journal file, such as FILE.journal"
_SYNC_AGAIN = "a sync has a state instead: run it again, or with --dry-run"
_OF_STATE = (".sqlite", ".state")
"""How the names of the states of syncs mostly end."""
_NOT_A_JOURNAL = " is not a journal"
_HOW_TO_FIND_IDS: Mapping[str, str] = MappingProxyType(
    {
        "account_id": "`svc-async accounts list` shows yours, and ",
        "custom_audience_id": "",
        "do_not_reach_list_id": "",
        "product_catalog_id": "",
    }
)
_OF_ACCOUNT = " and that it belongs to the account of --account; `svc-async accounts list` shows your accounts"
_WHERE_IDS_ARE: Mapping[str, str] = MappingProxyType(
    {
        "--account": "; `svc-async accounts list` shows yours",
        "--audience": _OF_ACCOUNT,
        "--list": _OF_ACCOUNT,
        "--catalog": "; in Python session.product_catalogs.list() lists yours",
    }
)
"""What follows the advice to check the id of an option; the service has no list of audiences."""
_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "SharedState.embedded()": "--embedded",
        "SharedState.open()": "the shared state",
        "account_id": "--account",
        "cluster": "--cluster",
        "custom_audience_id": "--audience",
        "do_not_reach_list_id": "--list",
        "event_type": "--event",
        "product_catalog_id": "--catalog",
        "header": "--columns",
        "state_url": "--state-url",
        "profile": "--profile",
        "refresh_within": "--refresh-days",
        **{
            name: f"--{name.replace('_', '-')}"
            for name in (
                "bad_identifiers",
                "concurrency",
                "effective_at",
                "empty",
                "encoding",
                "expires_at",
                "failures_file",
                "format",
                "map",
                "max_failure_share",
                "max_removal_share",
                "ordering",
                "phone_region",
                "quarantine",
                "report",
                "state",
                "users_per_operation",
            )
        },
    }
)


_USAGE = (AccessDenied, InvalidArgument, UnusableFile, WrongState)


def exit_of(error: SvcError) -> Exit:
    """Return the exit code of an error; that of wrong usage says that nothing was sent."""
    if isinstance(error, BatchError):
        cause = error.__cause__
        return exit_of(cause) if error.sent is Sent.NO and isinstance(cause, SvcError) else Exit.FAILURE
    return Exit.USAGE if isinstance(error, _USAGE) and not error.repeatable else Exit.FAILURE


def explain(error: SvcError) -> str:
    """Explain in one line what went wrong and what to do next."""
    if isinstance(error, InvalidArgument):
        return _explain_problem(error.parameter, error.rule)
    if isinstance(error, UnusableFile) and error.repeatable:
        # The file is called what it is: no option needs to have named it.
        return f"{error.parameter.replace('_', ' ')} {error.path} {error.problem}; {_WAIT}"
    if isinstance(error, UnusableFile):
        return _explain_problem(error.parameter, f"{error.path} {error.problem}")
    if isinstance(error, BatchError) and isinstance(error.__cause__, SvcError):
        return explain(error.__cause__)
    advice = _find_advice(error)
    return f"{error}; {advice}" if advice else str(error)


def describe(error: SvcError) -> Mapping[str, Any]:
    """Return what programs can use of an error, ready for JSON; `sent` is about the whole of a job that ended early."""
    if isinstance(error, BatchError) and isinstance(error.__cause__, SvcError):
        return {**describe(error.__cause__), "sent": str(error.sent)}
    facts: dict[str, Any] = {"type": type(error).__name__, "message": explain(error)}
    facts |= {"sent": str(error.sent), "repeatable": error.repeatable}
    if not isinstance(error, ApiError):
        return facts
    codes = [reason.code for reason in error.errors]
    return {**facts, "status": error.status, "codes": codes, "request_id": error.request_id}


def _find_advice(error: SvcError) -> str | None:
    if notes := getattr(error, "__notes__", None):  # of the command, which knows what was tried
        return str(notes[0])
    if isinstance(error, NotFound) and (options := _find_options(error)):
        return f"check the id that {options} gives{_WHERE_IDS_ARE.get(options, '')}"
    codes = [str(reason.code) for reason in error.errors] if isinstance(error, ApiError) else []
    by_code = (_ADVICE_BY_CODE[code] for code in codes if code in _ADVICE_BY_CODE)
    return next(by_code, None) or next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), None)


def _find_options(error: ApiError) -> str:
    """Return the options that give what an error is about; empty if there are none."""
    options = (_OPTIONS.get(each.parameter or "") for each in error.errors)
    return " and ".join(dict.fromkeys(option for option in options if option))


def _find_advice_on(parameter: str, problem: str) -> str | None:
    known = _ADVICE_BY_PROBLEM.get(parameter, {})
    return next((advice for words, advice in known.items() if re.search(words, problem)), None)


def _explain_problem(parameter: str, problem: str) -> str:
    name = _OPTIONS.get(parameter, parameter)
    problem = problem.partition(_IN_PYTHON)[0]
    if parameter == "profile" and problem.startswith(_NO_DEFAULT):
        return f"there is no profile 'default' in {problem.removeprefix(_NO_DEFAULT)}; {_HOW_TO_MAKE_DEFAULT}"
    if parameter == "journal" and problem.endswith(_NOT_A_JOURNAL):
        path = problem.removesuffix(_NOT_A_JOURNAL)
        next_step = _SYNC_AGAIN if path.endswith(_OF_STATE) else _GIVE_JOURNAL
        return f"{name} {path} is not a journal; {next_step}"
    if parameter in {"credentials", "profile"}:
        return f"{name} {problem.partition('; ')[0]}; {_HOW_TO_AUTHENTICATE}"
    if advice := _find_advice_on(parameter, problem):
        return f"{name} {problem}; {advice}"
    first, *others = problem.split(", and so must ")
    if first == "must be given" and parameter in _HOW_TO_FIND_IDS:
        names = " and ".join([name, *(_OPTIONS.get(other, other) for other in others)])
        return f"{names} {first}; {_HOW_TO_FIND_IDS[parameter]}--sandbox tries the command without any"
    if parameter == "expires_at":
        problem = problem.replace("effective_at", _OPTIONS["effective_at"])
    return f"{name} {problem.replace(_TRY_IN_PYTHON, _TRY)}"
