"""Builds the state of a sandbox: the seed, and everything that belongs to it."""

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.clock import Clock
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.context import Context
from svc_async.sandbox.push.channels import Channels
from svc_async.sandbox.push.delivery_targets import DeliveryTargets
from svc_async.sandbox.seed import create_seed
from svc_async.sandbox.state.grants import Grants
from svc_async.sandbox.state.paging import Paginator
from svc_async.sandbox.state.store import Store

__all__ = ["build"]


def build(config: SandboxConfig, clock: Clock, seed: int, targets: DeliveryTargets | None = None) -> Context:
    """Return the state of a seed; `targets` are those of the state that it replaces."""
    store = Store(seed=seed, now=clock.now)
    grants = Grants(store.ids)
    background = BackgroundTasks(clock)
    return Context(
        config=config,
        clock=clock,
        background=background,
        store=store,
        grants=grants,
        channels=Channels(config, background, store, grants, targets),
        paginator=Paginator(
            store.ids.secret("cursor").encode(), config.default_sort, empty_before_last=config.empty_page_before_last
        ),
        seed=create_seed(store, grants, config),
    )
