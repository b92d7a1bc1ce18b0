"""What an error reporter sees of an error: it and all that led to it, and the locals of frames."""

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

__all__ = ["find_shown", "list_frames"]

TESTS = str(Path(__file__).parents[1])


def find_shown(error: BaseException, *texts: str) -> list[str]:
    """Return where one of some texts is to be seen: in any frame but those of the tests, and in any exception."""
    shown = []
    for found in list_chain(error):
        if contains(f"{found!r} {found} {found.args}", texts):
            shown.append(f"{type(found).__name__}: itself")
        for file, name, values in list_frames(found.__traceback__):
            if not file.startswith(TESTS):
                shown += [
                    f"{Path(file).name}:{name}:{local}" for local, value in values.items() if contains(value, texts)
                ]
    return shown


def contains(text: str, texts: tuple[str, ...]) -> bool:
    return any(each in text for each in texts)


def list_chain(error: BaseException) -> Iterator[BaseException]:
    """Return an error and all that led to it."""
    waiting, seen = [error], set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += [each for each in (found.__cause__, found.__context__) if each is not None]


def list_frames(trace: TracebackType | None) -> Iterator[tuple[str, str, dict[str, str]]]:
    summary = traceback.StackSummary.extract(traceback.walk_tb(trace), capture_locals=True)
    for frame in summary:
        yield frame.filename, frame.name, dict(frame.locals or {})
