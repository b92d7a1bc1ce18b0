"""What workers of a campaign on a real cluster have besides the SDK; imported by them, and never sent as a copy."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from distributed import Worker

from svc_async.batch import uploader
from svc_async.batch.journal.journal import JournalLedger
from svc_async.batch.ledger import Ledger
from svc_async.store import postgres
from tests.campaigns.crash.changes import change
from tests.campaigns.crash.stopping import prepare_stops
from tests.support.small_limits import SmallLimits

__all__ = ["CONTROLS", "LiveSetting"]


def _forget_journals() -> None:
    change(uploader, "JournalLedger", lambda *_, **__: Ledger())


def _remove_fence() -> None:
    change(postgres, "_TAKE_UP", vars(postgres)["_TAKE_UP"].replace("epoch + 1", "epoch"))
    change(JournalLedger, "check_sendable", lambda _: None)


CONTROLS: Mapping[str, Callable[[], None]] = MappingProxyType({"journals": _forget_journals, "fence": _remove_fence})
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
