"""The receiver of webhooks.

gate        what a request is, decided without I/O          dedupe, inbox   who has handled what; what is to be done
receiver    accepts, acknowledges, handles                  lanes           a bounded queue that keeps order by key
adapters    aiohttp and ASGI                                testing         signed requests for your own tests
"""

from svc_async.webhooks.ack import Ack
from svc_async.webhooks.dedupe import DedupeStore, MemoryDedupe, SqliteDedupe
from svc_async.webhooks.delivery import DeliveryContext, NotHandled
from svc_async.webhooks.inbox import SqliteInbox
from svc_async.webhooks.receiver import WebhookReceiver
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = [
    "Ack",
    "DedupeStore",
    "DeliveryContext",
    "MemoryDedupe",
    "NotHandled",
    "SigningKey",
    "SqliteDedupe",
    "SqliteInbox",
    "WebhookReceiver",
]
