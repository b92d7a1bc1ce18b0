"""The options of every command with their defaults: what scripts rely on."""

import re

import pytest

from svc_async.sandbox import Sandbox
from tests.support.command import Call
from tests.support.tiers import keep_short

JSON = {"json": "", "verbose": "", "quiet": ""}
RUN = {
    "profile": "",
    "state-url": "state_url of the profile, or SVC_STATE_URL",
    "sandbox": "",
    "failures-file": "FILE.LIST.OPERATION.failures.csv",
    "max-failure-share": "0.0",
    "report": "",
    **JSON,
    "omit-failures": "",
}
BATCH = {
    "columns": "",
    "map": "",
    "encoding": "",
    "empty": "",
    "concurrency": "32",
    "ordering": "key",
    "quarantine": "120.0",
}
FORMAT = {"format": "detected from the content"}
USERS = {**FORMAT, "bad-identifiers": "fail", "phone-region": "", "users-per-operation": "25"}
SYNC = {
    "dry-run": "",
    "max-removal-share": "0.2",
    "state": "the shared state if there is one, else a file of the list in XDG_STATE_HOME/svc_async",
}
AUDIENCE = {"account": "", "audience": "", **RUN, **BATCH, **USERS}
JOURNAL = {"journal": "", "journals": "", "job": ""}
WORKERS = {"cluster": "", "workers": "as many as there are processors"}
CLUSTER = {**WORKERS, "shards": "as the rows need"}
DO_NOT_REACH = {"account": "", "list": "", **RUN, **BATCH, **USERS, **JOURNAL}
CATALOG = {"catalog": "", **RUN, **BATCH, **FORMAT}
PROFILE = {"profile": "", **JSON}
RUNNING_SANDBOX = "SVC_BASE_URL if that is http://, else http://127.0.0.1:8765"
STORED_PROFILE = {"profile": 'SVC_PROFILE, or "default"', **JSON}
STATE = {"state-url": "state_url of the profile, or SVC_STATE_URL", "profile": "", "embedded": "", **JSON}

CHANGE = {**AUDIENCE, **JOURNAL, **CLUSTER, "state": "the one that a sync has made, if any"}
COMMANDS = {
    "accounts list": PROFILE,
    "audience list": {"account": "", **PROFILE},
    "audience create": {"account": "", "description": "", **PROFILE},
    "audience delete": {"account": "", "audience": "", **PROFILE},
    "audience upload": {**CHANGE, "effective-at": "now", "expires-at": "13 months from now"},
    "audience remove": CHANGE,
    "audience sync": {**AUDIENCE, **SYNC, **WORKERS, "refresh-days": "30"},
    "auth login": {**STORED_PROFILE, "callback": "", "no-browser": ""},
    "auth logout": STORED_PROFILE,
    "auth whoami": {**PROFILE, "check": ""},
    "catalog upload": {**CATALOG, **JOURNAL, **CLUSTER},
    "catalog delete": {**CATALOG, **JOURNAL, **CLUSTER},
    "catalog list": {"catalog": "", **PROFILE},
    "catalog sync": {**CATALOG, **SYNC, **WORKERS},
    "completion": {"install": "", **JSON},
    "demo": {"rows": "200000", "seed": "7", **JSON},
    "dialect check": JSON,
    "do-not-reach upload": {**DO_NOT_REACH, **CLUSTER, "expires-at": "13 months from now"},
    "do-not-reach remove": {**DO_NOT_REACH, **CLUSTER},
    "drift": {"accepted": "", "accept": "", "out": "", **PROFILE},
    "job list": STATE,
    "job status": {"job": "", **STATE},
    "job resume": {"job": "", **STATE},
    "job report": {"job": "", "out": "JSON to stdout", **STATE},
    "job watch": {"job": "", "port": "0", "open": "", **STATE},
    "sandbox": {
        "host": "127.0.0.1",
        "port": "8765",
        "seed": "7",
        "server-name": "",
        "forward": "",
        "dialect": "",
        "open": "False",
        **JSON,
    },
    "state check": STATE,
    "state migrate": STATE,
    "state prune": {"older-than": "", **STATE},
    "stream tail": PROFILE,
    "trigger": {
        "user": "the first user of the sandbox",
        "payload": "",
        "set": "",
        "url": "SVC_BASE_URL if that is http://, else http://127.0.0.1:8765",
        **JSON,
    },
    "webhook check": PROFILE,
    "webhook listen": {"host": "127.0.0.1", "port": "9000", "save-dir": "", **PROFILE},
    "webhook register": {"event": "", "user": "", "move": "False", **PROFILE},
    "webhook sign": PROFILE,
    "webhook verify": {"signature": "", **PROFILE},
}
TOLD = {
    "audience upload": ["svc-async audience list shows the ids; a sandbox has 1nmth."],
    "audience remove": ["The next sync of the audience sends them again if its file still has them"],
    "do-not-reach upload": ["The ads manager of the platform, where it is made, shows the id; a sandbox has dnr7k1."],
}
"""What the options alone do not say."""
SHORT = {"accounts list", "audience upload", "job report", "webhook sign"}
CASES = [
    pytest.param(*case, id=case[0], marks=() if case[0] in SHORT else pytest.mark.long) for case in COMMANDS.items()
]
GROUPS = ["", *dict.fromkeys(name.split()[0] for name in COMMANDS if " " in name)]
OPTION = re.compile(r"│ +(?:\* +)?--(?P<name>[\w-]+)(?:.*\[default: (?P<default>.*?)\])?")
COMMAND = re.compile(r"│ +(?P<name>[a-z][\w-]*) ")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


@pytest.mark.parametrize(("command", "options"), CASES)
def test_a_command_has_these_options_and_defaults_each_in_a_line(
    call: Call, command: str, options: dict[str, str]
) -> None:
    ended = call(*command.split(), "--help")

    found = {match["name"]: match["default"] or "" for match in OPTION.finditer(ended.out)}
    assert ended.code == 0
    assert found == options
    lines = [line for line in ended.out.splitlines() if line.startswith("│")]
    assert not [line for line in lines if not re.match(r"│ +(\* +)?(--|[A-Z])", line)]
    assert all(told in " ".join(ended.out.split()) for told in TOLD.get(command, ()))


@pytest.mark.parametrize("group", keep_short(3, [(group,) for group in GROUPS]), ids=lambda group: group or "svc-async")
def test_a_group_lists_its_commands_with_what_they_do(call: Call, group: str) -> None:
    ended = call(*group.split(), "--help")

    depth = len(group.split())
    expected = {name.split()[depth] for name in COMMANDS if name.split()[:depth] == group.split()}
    listed = {match["name"] for match in COMMAND.finditer(ended.out)}
    assert listed == expected
    assert all(re.search(rf"│ +{name} +[A-Z].*\.", ended.out) for name in expected)


def test_the_ids_in_the_help_are_those_of_the_sandbox() -> None:
    sandbox = Sandbox()
    assert (sandbox.audience_id, sandbox.do_not_reach_list_id) == ("1nmth", "dnr7k1")
