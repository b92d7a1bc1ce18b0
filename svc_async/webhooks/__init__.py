"""The receiver of webhooks.

verification   what a request is, decided without I/O       stores         handled events, and events to be handled
diagnosis      what is wrong with a signature               keys           keys of events, and order by key
receiver       accepts, acknowledges, handles               adapters       aiohttp and ASGI
run            what belongs to one event loop               bodies         bounds what is read at a time
acceptance     claims, stores and queues events             failures       which exceptions are failures of users' code
dispatch       calls handlers, commits or reports           testing        signed requests for your own tests
"""

from svc_async.webhooks.delivery import DeliveryContext, NotHandled, TooManyAttempts
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
