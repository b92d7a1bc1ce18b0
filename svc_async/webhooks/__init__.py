"""The receiver of webhooks.

receiver       entry points: aiohttp, ASGI, `handle`     verification   what a request is, decided without I/O
run            what belongs to one event loop: claims,    keyed_queue    order by key
               stores, queues, workers                    stores         handled events, and events to be handled
dispatch       calls handlers, commits or reports         settings       `Ack`, and the keywords of the receiver
log_lines      what the log says                          stats          counts, and whether the receiver is well
testing        signed requests for your own tests
"""

from svc_async.webhooks.dispatch import DeliveryContext, NotHandled, TooManyAttempts
from svc_async.webhooks.receiver import WebhookReceiver
from svc_async.webhooks.settings import Ack
from svc_async.webhooks.stores.dedupe import Claim, DedupeStore, MemoryDedupe
from svc_async.webhooks.stores.sqlite import SqliteDedupe, SqliteInbox
from svc_async.webhooks.verification import Rejected, RejectReason, unwrap
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = [
    "Ack",
    "Claim",
    "DedupeStore",
    "DeliveryContext",
    "MemoryDedupe",
    "NotHandled",
    "RejectReason",
    "Rejected",
    "SigningKey",
    "SqliteDedupe",
    "SqliteInbox",
    "TooManyAttempts",
    "WebhookReceiver",
    "unwrap",
]
