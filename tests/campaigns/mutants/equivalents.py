"""The mutants that change nothing a user could see."""

import tomllib
from collections.abc import Mapping
from pathlib import Path


def read_equivalents() -> Mapping[str, str]:
    """Return the ids of equivalent mutants, each with the reason."""
    entries = tomllib.loads(Path(__file__).with_name("equivalents.toml").read_text(encoding="utf-8"))["mutant"]
    return {entry["id"]: entry["reason"] for entry in entries}
