"""Stops a worker at the worst moment: it has committed that it is about to send, and nothing has checked it since.

Nothing but the pause is brought about here. A process that is continued goes on with the check, and with the bytes of
the request if the check lets it, before another thread of it can find out that it was given up.
"""

import signal
import threading
from pathlib import Path

from svc_async.batch.journal.journal import JournalLedger
from tests.campaigns.crash.changes import change

__all__ = ["is_stopped", "prepare_stops", "request_stop"]

_requested = threading.Event()


def prepare_stops() -> None:
    """Have this process look whether it is to stop, whenever it is about to check that a request may go out."""
    check = JournalLedger.check_sendable

    def stop_and_check(ledger: JournalLedger) -> None:
        if _requested.is_set():
            _requested.clear()
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # returns when the process is continued
        check(ledger)

    change(JournalLedger, "check_sendable", stop_and_check)


def request_stop() -> None:
    """Have this process stop directly before the check of its next request."""
    _requested.set()


def is_stopped(process: int) -> bool:
    """Return whether a process is stopped."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"
