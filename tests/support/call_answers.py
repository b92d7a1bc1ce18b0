"""Answers of calls, as a session returns them beside their values."""

from svc_async.wire.envelope import CallAnswer

__all__ = ["make_call_answer"]


def make_call_answer(request_id: str | None = None) -> CallAnswer:
    return CallAnswer(status=200, headers={}, body=b"{}", request_id=request_id, attempts=1, seconds=0.0, waited=0.0)
