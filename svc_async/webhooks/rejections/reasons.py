"""Why requests are rejected."""

from enum import StrEnum

__all__ = ["RejectReason"]


class RejectReason(StrEnum):
    """Why a request is rejected; statistics count by reason."""

    NOT_FOUND = "not_found"
    METHOD = "method_not_allowed"
    CRC_TOKEN = "crc_token_refused"  # noqa: S105 - it names a parameter
    ENCODED = "body_encoded"
    TOO_LARGE = "body_too_large"
    TOO_MANY_BODIES = "too_many_bodies"
    TOO_SLOW = "body_too_slow"
    BROKEN = "body_broken"
    ALREADY_READ = "body_already_read"
    SIGNATURE_REPEATED = "signature_repeated"
    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_MALFORMED = "signature_malformed"
    SIGNATURE_WRONG = "signature_wrong"
    NOT_AN_OBJECT = "not_a_json_object"
    TOO_MANY_EVENTS = "too_many_events"
    HANDLER_FAILED = "handler_failed"
    QUEUE_FULL = "queue_full"
    ACCEPT_FAILED = "accept_failed"
    CLAIMED_ELSEWHERE = "claimed_elsewhere"
    TOO_LATE = "deadline_passed"
    NOT_RUNNING = "not_running"
