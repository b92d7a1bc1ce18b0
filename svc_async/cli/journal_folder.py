"""Shows the journals of a folder that `--journals` keeps, for `svc-async job status FOLDER`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from svc_async.batch.journal.record import JournalRecord
from svc_async.cli.exit_codes import explain
from svc_async.cli.job_page import describe_state
from svc_async.cli.output.console import show
from svc_async.cli.output.json_output import show_json
from svc_async.cli.output.wording import count
from svc_async.errors import UnusableFile
from svc_async.printable import clean

__all__ = ["find_journals", "show_journals"]


def find_journals(folder: Path) -> Sequence[Path]:
    """Return the journals in a folder, by name; those of one job are in the order of its runs.

    Raises:
        UnusableFile: there are none.
    """
    found = sorted(folder.glob("*.journal"))
    if not found:
        raise UnusableFile("journal", folder, "is a folder")
    return found


def show_journals(paths: Sequence[Path], *, as_json: bool) -> None:
    """Print a line for each journal: its name, its state and how many rows were accepted."""
    if as_json:
        show_json([_summarize(record) for record in _read(paths)])
        return
    for record in _read(paths):
        if isinstance(record, UnusableFile):
            show((clean(Path(record.path).name), "bold"), f": {explain(record)}")
        else:
            facts = f"{describe_state(record)}, {count(record.report.accepted, 'row')} accepted"
            show((clean(Path(record.name).name), "bold"), f": {facts}")


def _read(paths: Sequence[Path]) -> Iterator[JournalRecord | UnusableFile]:
    for path in paths:
        try:
            yield JournalRecord.read(path)
        except UnusableFile as error:  # the others are shown
            yield error


def _summarize(record: JournalRecord | UnusableFile) -> Mapping[str, Any]:
    if isinstance(record, UnusableFile):
        return {"journal": record.path, "state": None, "accepted": None, "problem": explain(record)}
    state = describe_state(record)
    return {"journal": record.name, "state": state, "accepted": record.report.accepted, "problem": None}
