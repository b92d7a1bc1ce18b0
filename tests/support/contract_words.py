"""The words of the contract and of the client's models, by section, as `svc_async/wire/words.toml` lists them.

`python -m tests.support.contract_words` writes that file, by which files of dialects are checked.
"""

import pkgutil
import re
import textwrap
import tomllib
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

import svc_async.ads
import svc_async.events
import svc_async.platform
from svc_async.open_enum import OpenEnum
from svc_async.sandbox import Sandbox
from svc_async.sandbox.server.rendering import Format
from svc_async.wire.records import Record
from tests.support.contract import ENUMS, OPERATIONS, RECORDS

__all__ = ["WORDS", "list_words"]

WORDS = Path(__file__).parents[2] / "svc_async" / "wire" / "words.toml"
_CONTRACT = Path(__file__).parents[1] / "contract"
_AROUND_RECORDS = """
    connection_issue detail error error_description expires_in next_token parameter payload previous_token replay_event
    replay_job_status result_count subscription total_subscriptions
"""
"""Names in answers and deliveries that are in no record: those around records, and those of refusals and tokens."""
_HEADER = re.compile(r"`(x-[a-z0-9-]+)`")


def list_words() -> dict[str, set[str]]:
    """Return the words of each section."""
    operations = [*_read("operations")["operation"], *(row for row in OPERATIONS.values())]
    served = Sandbox().operations
    pages = {each.path for each in served if each.format is Format.HTML}
    paths = {each["path"] for each in operations} | {each.path for each in served}
    parameters = [parameter for each in operations for parameter in each.get("parameter", ())]
    records = [*RECORDS.values(), *_read("beyond/events")["record"], *_read("beyond/cards")["record"]]
    fields = [field for record in records for field in record.get("field", ())]
    names = {part for each in (*parameters, *fields) for part in each["name"].split(".") if each.get("in") != "path"}
    names |= {param.name for each in served for param in each.query}
    names |= {*_AROUND_RECORDS.split()}
    values = {scope for each in served for scope in each.scopes}
    others = {str(value) for each in ENUMS.values() for value in each["values"]}
    for kind in _list_classes():
        if issubclass(kind, Enum):
            values |= {str(member.value) for member in kind}
        else:
            names |= {field.name for field in attrs.fields(kind) if not field.name.startswith("_")}
    headers = {f"x-{kind}rate-limit-{part}" for kind in ("", "account-") for part in ("limit", "remaining", "reset")}
    headers |= {name for rule in _read("rules")["rule"] for name in _HEADER.findall(rule["statement"])}
    return {
        "paths": paths - pages,
        "pages": pages,
        "headers": headers,
        "names": names,
        "values": values,
        "other_values": others - values,
    }


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_CONTRACT / f"{name}.toml").read_text(encoding="utf-8"))


def _list_classes() -> Iterator[type[Any]]:
    """Yield the records and the enumerations of the client."""
    for package in (svc_async.ads, svc_async.platform, svc_async.events):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for found in vars(import_module(module.name)).values():
                is_own = isinstance(found, type) and found.__module__ == module.name
                if is_own and issubclass(found, OpenEnum | Record):
                    yield found


def _write() -> str:
    sections = ["# The words of the contract and of the records; `python -m tests.support.contract_words` writes them."]
    for section, words in list_words().items():
        # A blank within a word does not break a line.
        listed = ", ".join(f'"{word.replace(" ", chr(0))}"' for word in sorted(words))
        lines = textwrap.wrap(listed, 118, break_long_words=False, break_on_hyphens=False)
        sections.append("\n".join([f"{section} = [", *(f"  {line.replace(chr(0), ' ')}" for line in lines), "]"]))
    return "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    WORDS.write_text(_write(), encoding="utf-8")
