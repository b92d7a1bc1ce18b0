"""Jobs without one of their protections: each of them must do damage, or the trials would prove nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from svc_async.batch.destination import Verdict
from svc_async.batch.journal.journal import JournalLedger
from svc_async.batch.lane import Command, Event, Lane, Resumed
from svc_async.lists.operations import ListDestination
from svc_async.sync.audience import AudienceTarget
from svc_async.sync.beside import WriteNotes
from svc_async.sync.pages import compare
from svc_async.sync.pages.marks import DOUBT, Action, Decision, decide
from svc_async.sync.state import SyncState
from svc_async.wire import outcome
from svc_async.wire.outcome import Effect, Outcome, Repeat
from tests.campaigns.crash.batch_jobs import Options
from tests.campaigns.crash.changes import change, keep_epoch, keep_no_journal, send_batches_whenever
from tests.campaigns.crash.client import Place
from tests.campaigns.crash.trial import Setting

__all__ = ["CONTROLS", "Control"]

_HANDLE = Lane.handle
_REMOVALS = Action.REMOVE | Action.REMOVE_LATER
_GATEWAY = {"500": 1.0, "502": 1.0, "504": 1.0, "408": 1.0, "503": 1.0}
_LOST = {"closed": 1.0, "reset": 1.0}
_SLOW = {"slow": 1.0}
_AGAIN = {"fine and sent again": 1.0}


@attrs.frozen
class Control:
    """A job without a protection.

    Attributes:
        kind: the kind of job.
        options: what differs in the job.
        prepare: removes the protection, in the process of a client.
        protected: what the same job needs to do no damage, in place of `options`.
        kills: how many clients are killed.
        rests: whether time passes between two clients.
        stops: the share of them that is stopped instead, and continued later.
        places: where they are killed.
        spoils: whether it is the state that is damaged, so that a job that refuses it counts as well.
    """

    kind: str
    options: Options = attrs.field(factory=Options)
    prepare: Callable[[], None] = lambda: None
    protected: Options | None = None
    kills: int = 0
    rests: bool = True
    stops: float = 0.0
    places: Sequence[Place] = ("late",)
    spoils: bool = False

    @property
    def setting(self) -> Setting:
        """The conditions of its trials."""
        return Setting(
            kills=self.kills,
            stops=self.stops,
            rests=self.rests,
            prepare=self.prepare,
            places=self.places,
            cancels=False,
        )


def _trust_counts() -> None:
    change(ListDestination, "evaluate", lambda *_: Verdict())


def _resume_at_once() -> None:
    def handle(lane: Lane, event: Event) -> Command | None:
        return _HANDLE(lane, attrs.evolve(event, pause=0.0) if isinstance(event, Resumed) else event)

    change(Lane, "handle", handle)


def _believe_gateways() -> None:
    rows = dict(vars(outcome)["_BY_STATUS"])
    rows |= {int(status): (rows[int(status)][0], Outcome(Effect.NONE, Repeat.ALWAYS), False) for status in _GATEWAY}
    change(outcome, "_BY_STATUS", rows)


def _add_without_removal() -> None:
    change(AudienceTarget, "replaces", False)


def _ignore_shared_identifiers() -> None:
    change(AudienceTarget, "find_linked", lambda *_: iter(()))


def _trust_doubt() -> None:
    def decide_without_removal(flags: int, *others: Any, **keywords: Any) -> Decision:
        decision = decide(flags, *others, **keywords)
        is_kept = flags & DOUBT and decision.action & Action.UPSERT
        return attrs.evolve(decision, action=decision.action & ~_REMOVALS) if is_kept else decision

    change(compare, "decide", decide_without_removal)


def _sync_at_once() -> None:
    change(SyncState, "find_rest", lambda *_: 0.0)


def _note_nothing() -> None:
    async def pass_over(*_: Any) -> None:
        pass

    change(WriteNotes, "intend", pass_over)
    change(WriteNotes, "check_sendable", lambda _: None)


def _take_any_source() -> None:
    async def accept(*_: Any) -> None:
        pass

    change(JournalLedger, "_check_source", accept)


def _send_whenever() -> None:
    change(SyncState, "check_sendable", lambda *_: None)


CONTROLS: Mapping[str, Control] = {
    "lanes": Control(
        "upload",
        Options(limits=False, keys=8, share=0.4, weights=_LOST, call={"ordering": "none"}),
        protected=Options(limits=False, keys=8, share=0.4, weights=_LOST),
    ),
    "counts": Control("upload", Options(limits=False, share=0.3, weights={"partial": 1.0}), _trust_counts),
    "quarantine": Control(
        "upload",
        Options(limits=False, keys=8, share=0.4, weights=_LOST, call={"quarantine": 0.0}),
        protected=Options(limits=False, keys=8, share=0.4, weights=_LOST),
    ),
    "wait after a resume": Control(
        "upload", Options(limits=False, keys=8, share=0.2, weights=_LOST), _resume_at_once, kills=6
    ),
    "doubt about gateways": Control(
        "upload", Options(limits=False, keys=8, share=0.4, weights=_GATEWAY), _believe_gateways
    ),
    "comparison with the source of a finished journal": Control(
        "removal", Options(limits=False, share=0.0, reuse=1.0), _take_any_source
    ),
    "removal before a change": Control(
        "sync",
        Options(limits=False, keys=30, share=0.05, weights=_LOST, changed=1.0, nights=1),
        _add_without_removal,
    ),
    "repeats of who shares identifiers": Control(
        "sync", Options(limits=False, keys=30, share=0.0, changed=1.0, nights=2), _ignore_shared_identifiers
    ),
    "removal of who is in doubt": Control(
        "sync",
        Options(limits=False, keys=30, share=0.1, weights=_LOST, changes=1.0, changed=1.0, nights=1),
        _trust_doubt,
        kills=4,
        places=("applied", "answered", "late"),
    ),
    "wait between syncs": Control(
        "sync",
        Options(limits=False, keys=30, share=0.1, weights=_LOST, changes=1.0, changed=1.0, nights=1),
        _sync_at_once,
        kills=6,
        rests=False,
    ),
    "notes of removals": Control(
        "sync beside removals", Options(limits=False, keys=30, share=0.0, changes=0.0, nights=4), _note_nothing
    ),
    "a success as the last effect of a request": Control(
        "upload",
        Options(limits=False, keys=8, share=0.4, weights=_AGAIN),
        protected=Options(limits=False, keys=8, share=0.4, weights=_SLOW),
    ),
    "a success as the last effect of a request of a sync": Control(
        "sync",
        Options(limits=False, keys=30, share=0.2, weights=_AGAIN, changed=1.0, nights=1),
        protected=Options(limits=False, keys=30, share=0.2, weights=_SLOW, changed=1.0, nights=1),
    ),
    "check before the bytes of a job": Control(
        "shared upload",
        Options(limits=False, keys=8, share=0.0, reuse=0.0),
        send_batches_whenever,
        kills=12,
        stops=1.0,
        places=("connected",),
    ),
    "epoch of a job": Control(
        "shared upload",
        Options(limits=False, keys=8, share=0.0, reuse=0.0),
        keep_epoch,
        kills=12,
        stops=1.0,
        places=("statement", "connected"),
    ),
    "journal in a database": Control(
        "shared upload",
        Options(limits=False, keys=8, share=0.3, weights=_LOST, reuse=0.0),
        keep_no_journal,
        kills=12,
        rests=False,
    ),
    "check before the bytes of a sync": Control(
        "shared sync",
        Options(limits=False, keys=20, share=0.1, weights=_LOST, changes=1.0, changed=0.8, nights=5),
        _send_whenever,
        kills=12,
        stops=1.0,
        places=("connected",),
    ),
    "epoch of a sync": Control(
        "shared sync",
        Options(limits=False, keys=20, share=0.1, weights=_LOST, changes=1.0, changed=0.2, nights=3),
        keep_epoch,
        kills=8,
        stops=1.0,
        places=("connected", "answered", "received"),
        spoils=True,
    ),
}
