"""The exit codes of the command, and how it describes an error to people and to programs."""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from svc_async.errors import (
    AccessDenied,
    ApiError,
    BatchError,
    Forbidden,
    Hint,
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
    UsageCapExceeded,
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
        UsageCapExceeded: "what the plan of the app includes is used up: the page of the app says when it begins anew",
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
_SET_CREDENTIALS = f"set the SVC_* variables, name a profile with --profile, {_TRY}"
_IN_THE_COMMAND: Mapping[Hint, str] = MappingProxyType(
    {
        Hint.NAME_THE_COLUMNS: "name the columns with --columns email,phone",
        Hint.NAME_THE_ENCODING: (
            "save it as UTF-8, or name the encoding of the program that wrote it with --encoding: with another one, "
            "other letters are read, and other people are sent"
        ),
        Hint.MAP_A_COLUMN: "name what a column contains with --map COLUMN=KEY",
        Hint.MAP_OR_IGNORE: (
            "name what each contains with --map COLUMN=KEY, ignore it with --map COLUMN=-, or ignore all of them with "
            "--map '*=-'"
        ),
        Hint.LEAVE_OUT_THE_COLUMN: "if that identifies nothing, ignore its column with --map COLUMN=-",
        Hint.IGNORE_THE_OTHERS: "ignore the others with --map COLUMN=-",
        Hint.LIST_PRODUCT_KEYS: (
            "`svc-async catalog list` prints the product_key of each id, and a sync deletes by id"
        ),
        Hint.USE_A_FEED: "XML is for products: `svc-async catalog`",
        Hint.DOWNLOAD_IT: "download it, or read it from a pipe, as in `curl URL | svc-async audience upload -`",
        Hint.GIVE_ONE_FILE: "the shell expands a pattern that is not quoted; give one file at a time",
        Hint.SET_CREDENTIALS: _SET_CREDENTIALS,
        Hint.NAME_THE_PROFILE: _SET_CREDENTIALS,  # of `auth login`, which may make that profile
        Hint.STORE_A_PROFILE: (
            "`svc-async auth login --profile NAME` makes it; or name another with --profile, set the SVC_* variables, "
            f"{_TRY}"
        ),
        Hint.GIVE_A_USER: (
            "`svc-async auth login`, with --profile for a named profile, gets one, and `svc-async auth whoami` shows "
            "which credentials a command uses"
        ),
        Hint.GIVE_AN_APP: "set SVC_CONSUMER_KEY and SVC_CONSUMER_SECRET, or SVC_BEARER_TOKEN",
        Hint.LIST_ACCOUNTS: "`svc-async accounts list` shows yours, and --sandbox tries the command without any",
        Hint.GIVE_AN_ID: "--sandbox tries the command without any",
        Hint.GIVE_A_JOURNAL: (
            "give the path of a journal, such as FILE.journal, or --job NAME of a job in the shared state; a sync has "
            "a state instead: run it again, or with --dry-run"
        ),
        Hint.MIGRATE: "run `svc-async state migrate` as a role that may create them",
    }
)
"""The hints that the command says in words of its own."""
_WAIT = "run the same command again when that has ended"
_OF_ACCOUNT = " and that it belongs to the account of --account; `svc-async accounts list` shows your accounts"
_WHERE_IDS_ARE: Mapping[str, str] = MappingProxyType(
    {
        "--account": "; `svc-async accounts list` shows yours",
        "--audience": " and that it belongs to the account of --account; `svc-async audience list` shows its audiences",
        "--list": _OF_ACCOUNT,
        "--catalog": "; in Python session.product_catalogs.list() lists yours",
    }
)
"""The end of the advice to check the id of an option."""
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
    if isinstance(error, BatchError) and isinstance(error.__cause__, SvcError):
        return explain(error.__cause__)
    problem = str(error) if error.hint is None else str(error.args[0])
    if isinstance(error, InvalidArgument):
        problem = f"{_OPTIONS.get(error.parameter, error.parameter)} {error.rule}"
    elif isinstance(error, UnusableFile):
        # A file that is in use is called what it is: no option needs to have named it.
        option = _OPTIONS.get(error.parameter, error.parameter)
        name = error.parameter.replace("_", " ") if error.repeatable else option
        problem = f"{name} {error.path} {error.problem}"
    advice = _find_advice(error)
    return f"{problem}; {advice}" if advice else problem


def describe(error: SvcError) -> Mapping[str, Any]:
    """Return what programs can use of an error, ready for JSON; `sent` is about the whole of a job that ended early."""
    if isinstance(error, BatchError) and isinstance(error.__cause__, SvcError):
        return {**describe(error.__cause__), "sent": str(error.sent)}
    facts: dict[str, Any] = {"type": type(error).__name__, "message": explain(error)}
    facts |= {"sent": str(error.sent), "repeatable": error.repeatable}
    if (parameter := getattr(error, "parameter", None)) is not None:
        facts["parameter"] = _OPTIONS.get(parameter, parameter)
    facts |= {} if error.hint is None else {"hint": error.hint.name}
    if not isinstance(error, ApiError):
        return facts
    codes = [reason.code for reason in error.errors]
    return {**facts, "status": error.status, "codes": codes, "request_id": error.request_id}


def _find_advice(error: SvcError) -> str | None:
    if notes := getattr(error, "__notes__", None):  # of the command, which knows what was tried
        return str(notes[0])
    if error.hint is not None:
        return _IN_THE_COMMAND.get(error.hint, error.hint)
    if isinstance(error, UnusableFile) and error.repeatable:
        return _WAIT
    if isinstance(error, NotFound):
        named = (_OPTIONS.get(each.parameter or "") for each in error.errors)
        if options := " and ".join(dict.fromkeys(filter(None, named))):
            return f"check the id that {options} gives{_WHERE_IDS_ARE.get(options, '')}"
    codes = [str(reason.code) for reason in error.errors] if isinstance(error, ApiError) else []
    by_code = (_ADVICE_BY_CODE[code] for code in codes if code in _ADVICE_BY_CODE)
    return next(by_code, None) or next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), None)
