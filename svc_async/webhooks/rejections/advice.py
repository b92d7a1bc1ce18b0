"""The cause and the next step of each reason to reject a request; the log and the reference have them from here."""

from collections.abc import Mapping

import attrs

from svc_async.webhooks.rejections.reasons import RejectReason
from svc_async.wire.hmac_sha256 import SIGNATURE_HEADER

__all__ = ["ADVICE", "ADVICE_AFTER_FAILURE", "Advice"]


@attrs.frozen
class Advice:
    """What a reason means.

    Attributes:
        cause: why requests are rejected for this reason.
        next_step: what to do about it.
    """

    cause: str
    next_step: str


ADVICE: Mapping[RejectReason, Advice] = {
    RejectReason.NOT_FOUND: Advice(
        "the path is not that of receiver.asgi(path), which begins where the application is mounted: "
        "app.mount('/hooks/svc', receiver.asgi('/hooks/svc')) serves /hooks/svc/hooks/svc",
        "nothing if another URL was meant: others probe public ones; otherwise leave the prefix of the mount out of "
        "the path: app.mount('/hooks', receiver.asgi('/svc'))",
    ),
    RejectReason.METHOD: Advice(
        "the request is neither GET nor POST", "nothing: the service sends neither; others probe public URLs"
    ),
    RejectReason.CRC_TOKEN: Advice(
        "a GET has no crc_token, several, or one in which an event could be written",
        "nothing if the service did not send it; otherwise pass the query on as it was received",
    ),
    RejectReason.ENCODED: Advice(
        "the body has a Content-Encoding, and the signature covers the bytes as sent",
        "switch off compression in the proxy before the receiver",
    ),
    RejectReason.TOO_LARGE: Advice(
        "the body is larger than max_body", "raise max_body if the service sends deliveries of this size"
    ),
    RejectReason.TOO_MANY_BODIES: Advice(
        "max_bodies deliveries, or max_bytes of them, are being read or wait for their answer",
        "find what delays the answers, such as a slow store, or raise max_bodies and max_bytes",
    ),
    RejectReason.TOO_SLOW: Advice(
        "the body did not arrive within read_deadline",
        "remove ASGI middleware that reads the body before the receiver; otherwise check the network, or raise "
        "read_deadline",
    ),
    RejectReason.BROKEN: Advice(
        "the connection ended within the body, or Content-Length is no number",
        "nothing: the service delivers again; if it persists, check the proxy before the receiver",
    ),
    RejectReason.ALREADY_READ: Advice(
        "Content-Length promises a body, and none is left",
        "let nothing consume the body before the receiver, such as an http middleware of Starlette or FastAPI that "
        "iterates request.stream() (request.body() there keeps it), or a middleware of aiohttp that calls "
        "request.read(), request.text(), request.json() or request.post()",
    ),
    RejectReason.SIGNATURE_REPEATED: Advice(
        "a signature header is there more than once", "check the proxy before the receiver: the service sends one"
    ),
    RejectReason.SIGNATURE_MISSING: Advice(
        f"there is no signature header, by default {SIGNATURE_HEADER}",
        "nothing if the service did not send it; otherwise let the proxy pass the header on, or name it in "
        "SigningKey(header=)",
    ),
    RejectReason.SIGNATURE_MALFORMED: Advice(
        "the signature is not sha256= followed by the base64 of 32 bytes",
        "nothing if the service did not send it; otherwise compare it with `svc-async webhook sign`",
    ),
    RejectReason.SIGNATURE_WRONG: Advice(
        "no key made the signature over exactly these bytes",
        "check that keys has the consumer secret of the app that owns the webhook, and that nothing changes the body",
    ),
    RejectReason.NOT_AN_OBJECT: Advice(
        "the body is signed and no JSON object", "report it to the service: it has signed what is no event"
    ),
    RejectReason.TOO_MANY_EVENTS: Advice(
        "the body has more than 10,000 events", "report it to the service: no delivery should be as large"
    ),
    RejectReason.HANDLER_FAILED: Advice(
        "a handler failed, and the answer waits for handlers (Ack.inline)",
        "find the handler and the line in the log of errors",
    ),
    RejectReason.QUEUE_FULL: Advice(
        "maxsize events, or max_bytes of them, wait for handlers",
        "make handlers faster, or raise workers or the maxsize and max_bytes of ack",
    ),
    RejectReason.ACCEPT_FAILED: Advice(
        "a store or order_by failed", "find the exception in the log of errors: a full disk, a database that is away"
    ),
    RejectReason.CLAIMED_ELSEWHERE: Advice(
        "another receiver has the event and has not handled it yet",
        "nothing: the service delivers again, and by then the event is handled or free",
    ),
    RejectReason.TOO_LATE: Advice(
        "the event was not accepted, or not handled (Ack.inline), within the deadline of ack, by default 8 seconds",
        "nothing if it is rare: the handlers go on, and a repeated delivery is answered when they finish; otherwise "
        "make the store or the handlers faster, or answer before the handlers with Ack.enqueue or Ack.durable",
    ),
    RejectReason.NOT_RUNNING: Advice(
        "the receiver was not started, or is closing",
        "enter the receiver in the lifespan of the application, with `async with receiver`",
    ),
}
ADVICE_AFTER_FAILURE = Advice(
    "the receiver has ended because of an unexpected exception",
    "find the exception in the log of errors and report it, and start the receiver again",
)
"""Of `not_running`, if the receiver was started, and nothing has closed it."""
