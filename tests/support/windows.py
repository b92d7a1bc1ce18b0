"""Windows of rate limits whose first request has been answered, and all that they admit."""

from svc_async.governor.windows import SECOND, Window

__all__ = ["MINUTE", "QUARTER", "open_window", "take_all"]

MINUTE = 60 * SECOND
QUARTER = 15 * MINUTE


def open_window(window: Window, *, at: int = 0) -> Window:
    """Send the first request and have it answered."""
    window.take(1, at)
    window.settle(1, at)
    window.on_success(at)
    return window


def take_all(window: Window, now: int) -> int:
    """Take as often as the window admits; return how often."""
    sent = 0
    while window.admits(1, now):
        window.take(1, now)
        sent += 1
    return sent
