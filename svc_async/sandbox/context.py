"""All that a request meets, from the journal to the state."""

import attrs

from svc_async.sandbox.background import Jobs
from svc_async.sandbox.clock import Clock
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.push.channels import Outlets
from svc_async.sandbox.push.deliveries import Deliveries
from svc_async.sandbox.seed import World
from svc_async.sandbox.server.auth import Verifier
from svc_async.sandbox.server.faults import Faults
from svc_async.sandbox.server.operations import Routes
from svc_async.sandbox.server.rate_limits import Limits
from svc_async.sandbox.server.request_log import Journal
from svc_async.sandbox.state.grants import Registry
from svc_async.sandbox.state.paging import Pages
from svc_async.sandbox.state.store import Store

__all__ = ["Service"]


@attrs.frozen(kw_only=True)
class Service:
    """The parts of one sandbox."""

    config: SandboxConfig
    clock: Clock
    jobs: Jobs
    store: Store
    world: World
    routes: Routes
    registry: Registry
    outlets: Outlets
    verifier: Verifier
    limits: Limits
    pages: Pages
    faults: Faults
    journal: Journal

    @property
    def deliveries(self) -> Deliveries:
        """What was sent to the webhooks of the first app."""
        return self.outlets.of(self.world.apps[0]).deliveries
