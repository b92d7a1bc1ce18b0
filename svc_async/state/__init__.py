"""State that several processes share: limits, journals, sync states and stores of events, in PostgreSQL."""

from typing import TYPE_CHECKING

from svc_async.errors import StateUnavailable, TakenUpElsewhere, UnusableState
from svc_async.lazy import make_getattr

if TYPE_CHECKING:
    from svc_async.state.shared_state import SharedState

__all__ = ["SharedState", "StateUnavailable", "TakenUpElsewhere", "UnusableState"]

if not TYPE_CHECKING:
    __getattr__ = make_getattr(__name__, globals(), {"SharedState": "svc_async.state.shared_state"})
