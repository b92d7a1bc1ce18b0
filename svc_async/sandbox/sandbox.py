"""`Sandbox`: starts and stops the server, and lets a test inspect and change its state."""

import os
import ssl
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, Unpack

import attrs

from svc_async.sandbox import api
from svc_async.sandbox.api.ads.accounts import add_account, choose_account
from svc_async.sandbox.api.ads.custom_audiences import add_audience
from svc_async.sandbox.api.ads.features import grant_feature
from svc_async.sandbox.api.ads.line_item_fields import CampaignFields, LineItemFields, read_fields
from svc_async.sandbox.api.ads.line_items import add_campaign, add_line_item, choose_campaign
from svc_async.sandbox.api.ads.product_catalogs import add_catalog
from svc_async.sandbox.api.control import CALLS, ControlApi
from svc_async.sandbox.api.oauth import oauth1, pkce
from svc_async.sandbox.api.webhooks import check_url
from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.clock import Clock, SystemClock, VirtualClock, require_event_loop
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.context import Context
from svc_async.sandbox.inspector import Inspector
from svc_async.sandbox.kinds import WrongArgument, check_json_object, check_kind
from svc_async.sandbox.push.channels import Channels, Product
from svc_async.sandbox.push.crc_checks import Webhook
from svc_async.sandbox.push.deliveries import Deliveries, Delivery
from svc_async.sandbox.push.outbound import DeliveryTargets, Target
from svc_async.sandbox.push.public_events import Direction
from svc_async.sandbox.push.streams import Hub
from svc_async.sandbox.refusal import Refusal
from svc_async.sandbox.replay import Difference, Replay
from svc_async.sandbox.seed import create_seed
from svc_async.sandbox.server.auth import Verifier
from svc_async.sandbox.server.faults import Faults
from svc_async.sandbox.server.gatekeeping import Gatekeeper, RateLimits
from svc_async.sandbox.server.operations import Operation, Routes
from svc_async.sandbox.server.request_log import RequestLog
from svc_async.sandbox.server.server import Server
from svc_async.sandbox.state.audiences import AudienceView
from svc_async.sandbox.state.grants import Grants
from svc_async.sandbox.state.paging import Paginator
from svc_async.sandbox.state.store import Store
from svc_async.wire.dialect import Dialect

__all__ = ["Sandbox", "build"]


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
        paginator=Paginator(store.ids.secret("cursor").encode(), empty_before_last=config.empty_page_before_last),
        seed=create_seed(store, grants),
    )


class Sandbox:
    """An emulator of the service.

    Args:
        seed: determines ids, keys and tokens.
        clock: the service's time; by default the machine's.
        port: 0 chooses a free one.
        host: the address to listen on.
        config: the behaviour where the specification is silent.
        dialect: the words that it speaks, if they are not those of the contract: `svc_async.Dialect.load` reads them
            from a file. Arguments and records of this object are in the words of the contract all the same.
        ssl_context: to serve https.

    Raises:
        WrongArgument: an argument is of another type.
    """

    def __init__(
        self,
        *,
        seed: int = 7,
        clock: Clock | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        config: SandboxConfig | None = None,
        dialect: Dialect | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.config = SandboxConfig() if config is None else config
        for name, kind, value in (("seed", int, seed), ("port", int, port), ("host", str, host)):
            check_kind(name, kind, value)
        check_kind("clock", Clock, self.clock)
        check_kind("config", SandboxConfig, self.config)
        check_kind("ssl_context", ssl.SSLContext | None, ssl_context)
        check_kind("dialect", Dialect | None, dialect)
        if dialect is not None:
            self.config = attrs.evolve(self.config, dialect=dialect)
        self.faults = Faults()
        self.requests = RequestLog(self.config.requests_kept, bodies=self.config.bodies_kept)
        self._seed, self._host, self._port, self._tls = seed, host, port, ssl_context
        self._context = build(self.config, self.clock, seed)
        self._limits = RateLimits(self.clock, self.config)
        self._control = self._make_control()
        self._server: Server | None = None

    @classmethod
    def replay(cls, path: str | os.PathLike[str], *, clock: Clock | None = None) -> Self:
        """Return a sandbox that answers from a recording: `Recording(path)` of a session has written it.

        A request gets the answer to the first recorded one that has the same values, as far as these are known: one of
        a name such as `email-1` may be any, but the same everywhere. If there is none, it gets the answer to the first
        of the same method and path, else 404; `differences` says what was expected. What failed fails again, and a
        stream is opened and stays silent.

        Args:
            path: the file.
            clock: the service's time; by default one that begins when the recording did, and jumps over waits.

        Raises:
            UnusableFile: it is not a recording, or is damaged.
        """
        replay = Replay.read(path)
        sandbox = cls(clock=VirtualClock(replay.began, mode="jump") if clock is None else clock)
        sandbox._context = attrs.evolve(sandbox._context, replay=replay)
        return sandbox

    @property
    def differences(self) -> Sequence[Difference]:
        """What a program has done differently from the recording; recorded requests that have not come are the last.

        There are 1,000 at most, and none if the sandbox does not answer from a recording.
        """
        return () if self._context.replay is None else self._context.replay.differences

    async def start(self) -> None:
        """Start to serve.

        Raises:
            RuntimeError: the sandbox is running, or no event loop of asyncio runs.
        """
        if self._server is not None:
            raise RuntimeError("the sandbox is running")
        require_event_loop()
        self._context.channels.open()
        self._server = self._make_server()
        self._port = await self._server.listen(self._host, self._port, self._tls)

    async def aclose(self) -> None:
        """Stop at once; open connections are closed, the state is kept."""
        server, self._server = self._server, None
        if server is not None:
            await self._context.channels.close()
            await server.close()

    async def reset(self) -> None:
        """Return to the state of the seed, or to the beginning of the recording that it answers from.

        Requests, faults, deliveries and rate limits are forgotten.

        The credentials of the seed, the app-only tokens and the targets of `deliver_to` stay valid. The clock stays,
        open streams end, and the numbers of requests continue.
        """
        former = self._context
        self._context = build(self.config, self.clock, self._seed, former.channels.targets)
        self._context.grants.bearers |= former.grants.bearers
        if former.replay is not None:
            self._context = attrs.evolve(self._context, replay=former.replay.restart())
        self._limits = RateLimits(self.clock, self.config)
        self._control.replace(self._context, self._limits)
        if self._server is not None:
            self._server.replace(self._context, self._make_gatekeeper())
        self.faults.clear()
        self.requests.clear()
        await former.channels.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    @property
    def dialect(self) -> Dialect | None:
        """The words that it speaks, if they are not those of the contract."""
        return self.config.dialect

    @property
    def is_running(self) -> bool:
        """Whether it serves: it was started, and not closed."""
        return self._server is not None

    @property
    def base_url(self) -> str:
        """The URL of the main API; valid once the sandbox serves."""
        return self._make_url(self._host)

    @property
    def ads_url(self) -> str:
        """The URL of the advertising API."""
        return f"{self.base_url}/ads"

    @property
    def ads_sandbox_url(self) -> str:
        """The URL of the advertising API's own sandbox."""
        return f"{self.base_url}/ads-sandbox"

    @property
    def inspector_url(self) -> str:
        """The URL of a page that shows what the sandbox receives and sends, for a browser on this machine."""
        return f"{self._make_url(_LOOPBACK.get(self._host, self._host))}/_sandbox/inspector/"

    @property
    def app(self) -> Mapping[str, str]:
        """The keys and secrets of the first app."""
        return MappingProxyType(self._context.seed.get_app_keys(0))

    @property
    def public_app(self) -> Mapping[str, str]:
        """Those of the second app, which is read-only and has no client secret: a public client of OAuth 2.0."""
        return MappingProxyType(self._context.seed.get_app_keys(1))

    @property
    def credentials(self) -> Mapping[str, str]:
        """The credentials of the first user."""
        return MappingProxyType(self._context.seed.credentials(0))

    @property
    def other_credentials(self) -> Mapping[str, str]:
        """The credentials of the second user, who has other accounts."""
        return MappingProxyType(self._context.seed.credentials(1))

    @property
    def user_id(self) -> str:
        """The first user's id."""
        return self._context.seed.tokens[0].user_id

    @property
    def callback_url(self) -> str:
        """A callback URL of the first app, on the loopback interface."""
        return self._context.seed.apps[0].callback_urls[0]

    @property
    def account_id(self) -> str:
        """The first user's account."""
        return self._context.seed.account_id

    @property
    def audience_id(self) -> str:
        """A custom audience of that account."""
        return self._context.seed.audience_id

    @property
    def do_not_reach_list_id(self) -> str:
        """A do-not-reach list of that account."""
        return self._context.seed.do_not_reach_list_id

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The declarations of all operations."""
        return api.OPERATIONS

    def audience(self, audience_id: str) -> AudienceView:
        """Return a view of an audience.

        Raises:
            KeyError: there is none with this id.
        """
        return AudienceView(self._context.store.audiences[audience_id], self.clock)

    def add_audience(self, account_id: str | None = None, *, name: str = "Audience") -> str:
        """Add an audience, by default to the first user's account, and return its id."""
        return add_audience(self._context.store, choose_account(self._context, account_id), name=name).id

    def add_account(self, *, name: str = "Account") -> str:
        """Add an account of the first user and return its id."""
        return add_account(self._context.store, self.user_id, name=name).id

    def add_catalog(self, *, name: str = "Catalog") -> str:
        """Add a product catalog of the first user, whatever the number of its catalogs, and return its id."""
        return add_catalog(self._context.store, self.user_id, name=name).id

    def grant_feature(self, key: str, account_id: str | None = None) -> None:
        """Grant an account a feature, including those that the API cannot add."""
        grant_feature(self._context.store, choose_account(self._context, account_id), key)

    def add_campaign(self, account_id: str | None = None, **fields: Unpack[CampaignFields]) -> str:
        """Add a campaign with these `CampaignFields`, by default to the first user's account, and return its id.

        It raises what `add_line_item` raises.
        """
        store, account_id = self._context.store, choose_account(self._context, account_id)
        return add_campaign(store, account_id, **read_fields(store, "campaigns", fields)).id

    def add_line_item(
        self, account_id: str | None = None, *, campaign_id: str | None = None, **fields: Unpack[LineItemFields]
    ) -> str:
        """Add a line item with these `LineItemFields`, by default to a new campaign, and return its id.

        Raises:
            TypeError: there is no such field.
            ValueError: a value is impossible, or there is no such account or campaign.
        """
        store, account_id = self._context.store, choose_account(self._context, account_id)
        given = read_fields(store, "line_items", fields)
        given["campaign_id"] = choose_campaign(store, account_id, campaign_id)
        return add_line_item(store, account_id, **given).id

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """The first app's webhooks by their ids, with every check and its outcome."""
        return MappingProxyType(self._context.app_channels.webhooks)

    @property
    def deliveries(self) -> Deliveries:
        """The deliveries to the first app's webhooks, and the faults of the next ones."""
        return self._context.app_channels.deliveries

    @property
    def streams(self) -> Mapping[Product, Hub]:
        """The first app's streams, `activity` and `filtered`, and their faults."""
        return self._context.app_channels.streams

    def deliver_to(self, url: str, target: Target) -> None:
        """Map the URL of a webhook to a target; requests to other URLs do not leave the machine.

        Args:
            url: the URL, exactly as registered.
            target: an object with `async handle(method, raw_query, headers, body) -> (status, headers, body)`, an ASGI
                application whose lifespan has begun, or an address such as `http://127.0.0.1:9000/hook`.

        Raises:
            WrongArgument: the URL cannot be registered, or the target is none of these, or not on loopback.
        """
        check_kind("url", str, url)
        try:
            check_url(url)
        except Refusal as refusal:
            raise WrongArgument("url", f"cannot be registered: {refusal.reason}") from None
        self._context.channels.targets.add(url, target)

    async def trigger(
        self,
        event_type: str,
        *,
        user_id: str | None = None,
        payload: Mapping[str, Any] | None = None,
        direction: Direction | None = None,
        keyword: str | None = None,
    ) -> None:
        """Trigger an event, and send it to streams and webhooks.

        Args:
            event_type: such as `post.create`; one that is not documented needs a payload.
            user_id: the user that it happens to, also one whom the seed does not have; by default, the first.
            payload: merged into the default payload; takes precedence.
            direction: of a direct message, from that user's view.
            keyword: its subject.

        Raises:
            WrongArgument: the type is not documented, and there is no payload; or an argument is of another type.
        """
        user_id = self.user_id if user_id is None else user_id
        event = self._context.channels.events.create(
            event_type, user_id=user_id, payload=payload, direction=direction, keyword=keyword
        )
        self._context.channels.publish(event)
        await self.clock.settle()

    async def deliver(self, event: Mapping[str, Any]) -> list[Delivery]:
        """Deliver any JSON object, such as an event of an unknown type, to all webhooks of the first app.

        Raises:
            WrongArgument: it is not a mapping that can be written as JSON.
        """
        check_json_object("event", event)
        sent = [self.deliveries.send(webhook, event) for webhook in list(self._context.app_channels.webhooks.values())]
        await self.clock.settle()
        return sent

    def approve(self, oauth_token: str, *, user_id: str | None = None) -> str:
        """Approve a request token as a user, by default the first; return the verifier or the PIN.

        Raises:
            KeyError: there is no such request token, or no such user.
        """
        grants = self._context.grants
        return oauth1.approve(grants, grants.request_tokens[oauth_token], self._check_user(user_id))

    def approve_oauth2(self, authorization_url: str, *, user_id: str | None = None) -> str:
        """Approve an authorize page as a user, by default the first; return the URL that the browser is redirected to.

        Raises:
            KeyError: there is no such user.
            ValueError: the page would not be shown; the message has the reason.
        """
        try:
            return pkce.approve(self._context, authorization_url, self._check_user(user_id))
        except Refusal as refusal:
            raise ValueError("; ".join(problem.message for problem in refusal.problems)) from None

    def _check_user(self, user_id: str | None) -> str:
        if user_id is not None and self._context.store["users"].get(user_id) is None:
            raise KeyError(user_id)
        return user_id or self.user_id

    def bearer_token(self, consumer_key: str | None = None) -> str:
        """Return the app-only bearer token of an app, by default the first.

        Raises:
            KeyError: there is no such app.
        """
        grants = self._context.grants
        return grants.bearer(grants.apps[consumer_key or self.app["consumer_key"]])

    def invalidate(self, token: str) -> None:
        """Invalidate an access token of OAuth 1.0a (AUTH-17) or of OAuth 2.0, which can still be refreshed.

        Raises:
            ValueError: the sandbox has no such token.
        """
        self._context.grants.invalidate(token)

    def _make_url(self, host: str) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._port}"

    def _make_server(self) -> Server:
        return Server(
            self._context,
            gatekeeper=self._make_gatekeeper(),
            faults=self.faults,
            log=self.requests,
            control=self._control.answer,
        )

    def _make_gatekeeper(self) -> Gatekeeper:
        return Gatekeeper(
            attrs.evolve(self.config, hosts=self.config.hosts | {self._host.lower()}),
            self._context.store["accounts"],
            Routes(self.operations),
            Verifier(self.clock, self._context.grants),
            self._limits,
        )

    def _make_control(self) -> ControlApi:
        return ControlApi(
            sandbox=self._context,
            limits=self._limits,
            log=self.requests,
            faults=self.faults,
            reset=self.reset,
            calls=(*CALLS, *Inspector().calls),
        )


_LOOPBACK: Mapping[str, str] = MappingProxyType({"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"})  # noqa: S104 names of all addresses
