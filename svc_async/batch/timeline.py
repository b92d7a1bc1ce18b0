"""The course of a job, in a bounded number of samples.

Time is divided into slots of equal width. Whenever a job outgrows the slots, their width doubles, and of two samples
that then share a slot the later one is kept.
"""

from typing import TypeVar

import attrs

from svc_async.batch.report import Progress

__all__ = ["SLOTS", "SLOT_WIDTH", "Timeline", "widen_slots"]

T = TypeVar("T")

SLOTS = 512
SLOT_WIDTH = 0.0625
"""Seconds that a slot covers at first."""


def widen_slots(slots: dict[int, T], width: float, *, seconds: float) -> tuple[dict[int, T], float]:
    """Return samples by slot, and the width of a slot, so that a moment falls into one of the slots.

    Args:
        slots: the samples by slot, in ascending order.
        width: the seconds that a slot covers.
        seconds: the moment.
    """
    while seconds >= SLOTS * width:
        slots, width = {slot // 2: sample for slot, sample in slots.items()}, width * 2
    return slots, width


@attrs.define
class Timeline:
    """Collects the samples of a job."""

    _slots: dict[int, Progress] = attrs.field(factory=dict[int, Progress], init=False)
    _width: float = attrs.field(default=SLOT_WIDTH, init=False)

    @property
    def samples(self) -> list[Progress]:
        """The samples, from the beginning to the last progress."""
        return [Progress(), *self._slots.values()]

    def add(self, progress: Progress) -> None:
        """Add a progress; of several in one slot the last is kept."""
        self._slots, self._width = widen_slots(self._slots, self._width, seconds=progress.seconds)
        self._slots[int(progress.seconds / self._width)] = progress
