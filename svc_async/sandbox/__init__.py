"""A strict emulator of the service: an HTTP server on a free port, with its state in memory.

It imports nothing else of this project, so that it disagrees when the client is wrong; but for `replay`, which reads
the files that a client has recorded.

    async with Sandbox(seed=7, clock=VirtualClock()) as sandbox:
        session = Session(UserCredentials(**sandbox.credentials), endpoints=..., clock=sandbox.clock)
        ...
        assert len(sandbox.audience(sandbox.audience_id).users) == 3
"""

from svc_async.sandbox.api.ads.line_item_fields import CampaignFields, LineItemFields
from svc_async.sandbox.clock import SystemClock, VirtualClock
from svc_async.sandbox.config import RateRule, SandboxConfig
from svc_async.sandbox.kinds import WrongArgument
from svc_async.sandbox.push.crc_checks import Webhook
from svc_async.sandbox.push.deliveries import Deliveries, Delivery
from svc_async.sandbox.push.outbound import Target
from svc_async.sandbox.push.streams import Hub
from svc_async.sandbox.replay import Difference
from svc_async.sandbox.sandbox import Sandbox
from svc_async.sandbox.server.faults import Fault, Faults
from svc_async.sandbox.server.request_log import LoggedRequest, RequestLog
from svc_async.sandbox.state.audiences import AudienceView, Member

__all__ = [
    "AudienceView",
    "CampaignFields",
    "Deliveries",
    "Delivery",
    "Difference",
    "Fault",
    "Faults",
    "Hub",
    "LineItemFields",
    "LoggedRequest",
    "Member",
    "RateRule",
    "RequestLog",
    "Sandbox",
    "SandboxConfig",
    "SystemClock",
    "Target",
    "VirtualClock",
    "Webhook",
    "WrongArgument",
]
