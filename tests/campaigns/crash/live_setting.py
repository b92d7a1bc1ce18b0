"""What workers of a campaign on a real cluster have besides the SDK; imported by them, and never sent as a copy."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from distributed import Worker

from tests.campaigns.crash.changes import keep_epoch, keep_no_journal, send_batches_whenever
from tests.campaigns.crash.stopping import prepare_stops
from tests.support.small_limits import SmallLimits

__all__ = ["CONTROLS", "LiveSetting"]


def _remove_fence() -> None:
    keep_epoch()
    send_batches_whenever()


CONTROLS: Mapping[str, Callable[[], None]] = MappingProxyType({"journals": keep_no_journal, "fence": _remove_fence})
"""What a control does without."""


class LiveSetting(SmallLimits):
    """Makes requests and limits small, takes away what a control does without, and lets workers be stopped.

    Args:
        users: users of a request.
        requests: requests a minute.
        without: a control.
    """

    def __init__(self, *, users: int, requests: int, without: str | None) -> None:
        super().__init__(users=users, requests=requests)
        self.without = without

    def setup(self, worker: Worker) -> None:
        """Change this process."""
        super().setup(worker)
        if self.without is not None:
            CONTROLS[self.without]()
        prepare_stops()
