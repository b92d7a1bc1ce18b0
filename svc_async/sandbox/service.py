"""All that a request meets, from the journal to the state."""

import attrs

from svc_async.sandbox.auth import Verifier
from svc_async.sandbox.calls import Routes
from svc_async.sandbox.clock import Clock
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.deliveries import Deliveries
from svc_async.sandbox.faults import Faults
from svc_async.sandbox.jobs import Jobs
from svc_async.sandbox.journal import Journal
from svc_async.sandbox.limits import Limits
from svc_async.sandbox.outlets import Outlets
from svc_async.sandbox.paging import Pages
from svc_async.sandbox.registry import Registry
from svc_async.sandbox.store import Store
from svc_async.sandbox.world import World

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
