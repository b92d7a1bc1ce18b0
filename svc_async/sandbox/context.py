"""What all calls of one sandbox share, from its settings to its state."""

import attrs

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.clock import Clock
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.push.channels import AppChannels, Channels
from svc_async.sandbox.replay import Replay
from svc_async.sandbox.state.grants import App, Grants, Token
from svc_async.sandbox.state.paging import Paginator
from svc_async.sandbox.state.store import Store

__all__ = ["Context", "Seed"]


@attrs.frozen
class Seed:
    """The records of the seed that one starts from.

    Attributes:
        apps: the first is the one that the users of the seed granted access to.
        tokens: the access tokens of these users, in their order.
    """

    apps: tuple[App, ...]
    tokens: tuple[Token, ...]
    account_id: str
    audience_id: str
    do_not_reach_list_id: str

    def get_app_keys(self, number: int) -> dict[str, str]:
        """Return the keys and secrets of an app."""
        app = self.apps[number]
        secret = {} if app.client_secret is None else {"client_secret": app.client_secret}
        return {
            "consumer_key": app.consumer_key,
            "consumer_secret": app.consumer_secret,
            "client_id": app.client_id,
            **secret,
        }

    def credentials(self, number: int) -> dict[str, str]:
        """Return what a user signs requests of the first app with."""
        app, token = self.apps[0], self.tokens[number]
        return {
            "consumer_key": app.consumer_key,
            "consumer_secret": app.consumer_secret,
            "token": token.token,
            "token_secret": token.secret,
        }


@attrs.frozen(kw_only=True)
class Context:
    """The parts of one sandbox that its calls work on.

    Attributes:
        replay: the recording that requests are answered from instead.
    """

    config: SandboxConfig
    clock: Clock
    background: BackgroundTasks
    store: Store
    grants: Grants
    channels: Channels
    paginator: Paginator
    seed: Seed
    replay: Replay | None = None

    @property
    def app_channels(self) -> AppChannels:
        """The channels of the seed's first app."""
        return self.channels.of_app(self.seed.apps[0])
