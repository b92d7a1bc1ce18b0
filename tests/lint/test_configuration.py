"""The tables of how-to-configure.md and how-to-observe.md are those of the code."""

import re
from pathlib import Path

from svc_async import monitoring, profiles
from svc_async.monitoring import Subscribers

ROOT = Path(__file__).parents[2]
CONFIGURE = (ROOT / "docs/how-to-configure.md").read_text(encoding="utf-8")
OBSERVE = (ROOT / "docs/how-to-observe.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(?P<variable>SVC_\w+)` \|(?: `(?P<setting>\w+)`)? \|", re.MULTILINE)
NAME = re.compile(r"\bSVC_(?!TEST_)[A-Z_]+[A-Z]\b")
MEMBERS = {"SVC_TIMELINE"}
"""Values of the service that look like variables."""


def list_settings() -> set[str]:
    """Return what a profile may contain: whatever else is refused, by name."""
    return set(profiles.SETTINGS)


def test_every_variable_that_the_code_reads_is_documented() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "svc_async").rglob("*.py"))
    named = {*NAME.findall(sources)} - MEMBERS
    read = {f"SVC_{setting.upper()}" for setting in list_settings()} | {"SVC_PROFILE", "SVC_LOG"}

    assert named <= read
    assert {row["variable"] for row in ROW.finditer(CONFIGURE)} == read


def test_every_setting_of_a_profile_is_documented_beside_its_variable() -> None:
    documented = {row["setting"]: row["variable"] for row in ROW.finditer(CONFIGURE) if row["setting"]}
    assert documented == {setting: f"SVC_{setting.upper()}" for setting in list_settings()}


def test_every_event_is_documented() -> None:
    events = {name for name in monitoring.__all__ if name != Subscribers.__name__}
    assert {*re.findall(r"`(\w+Event)`", OBSERVE)} == events


def test_every_metric_is_documented() -> None:
    code = (ROOT / "svc_async/telemetry.py").read_text(encoding="utf-8")
    created = {*re.findall(r"meter\.create_\w+\(\s*\"([\w.]+)\"", code)}
    assert len(created) >= 13
    assert [name for name in created if f"`{name}`" not in OBSERVE] == []
