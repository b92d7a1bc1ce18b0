"""Webhooks: where the service delivers events to, and what it shall deliver again."""

import re
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import SplitResult, urlsplit

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import ApiError, InvalidArgument, WebhookInvalid
from svc_async.wire.checks import Check, first_problem, length, related, satisfies
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Reply, Route, Surface

__all__ = ["DeletedWebhook", "ReplayJob", "ReplayTerms", "Webhook", "WebhookCheck", "Webhooks"]

_MINUTE = timedelta(minutes=1)
_POLL = 2.0
"""Seconds between two looks at a webhook that is being checked."""
_NEXT_JOB = 60.0
"""Seconds until a replay is asked for again while another one runs."""


# Unspecified: the fields of these records (contract UNS-webhook-payloads).
@attrs.frozen(kw_only=True)
class Webhook(Record):
    """A registered webhook.

    Attributes:
        valid: whether it answered its last check as it must; an invalid one gets nothing.
    """

    id: str
    url: str
    valid: bool
    created_at: Timestamp | None = None


@attrs.frozen(kw_only=True)
class WebhookCheck(Record):
    """What came of a check that was asked for.

    Attributes:
        valid: whether the webhook answered as it must; it may mean only that the check was triggered.
        attempted: whether the check was triggered, where the service says no more.
    """

    valid: bool | None = None
    attempted: bool | None = None


@attrs.frozen(kw_only=True)
class DeletedWebhook(Record):
    """A webhook that is no more."""

    deleted: bool = True


@attrs.frozen(kw_only=True)
class ReplayJob(Record):
    """A job that delivers past events again; its end is told by an event `replay_job_status`."""

    job_id: str
    created_at: Timestamp | None = None


@attrs.frozen(kw_only=True)
class ReplayTerms:
    """What the service demands of a replay.

    Attributes:
        reach: how far back it can go.
        start_age: how old its first minute must be.
        end_age: how old its last minute must be.
    """

    # Unspecified: all three (contract UNS-replay-job).
    reach: timedelta = timedelta(hours=24)
    start_age: timedelta = timedelta(minutes=31)
    end_age: timedelta = timedelta(minutes=10)

    def opens(self, start: datetime, end: datetime) -> datetime:
        """Give when this much can be replayed."""
        return max(start + self.start_age, end + self.end_age)


_TERMS = ReplayTerms()


def _is_plain_https(url: object) -> bool:
    parts = _split(url)
    # An explicit :443 is a port, too.
    return (
        parts is not None
        and parts.scheme == "https"
        and bool(parts.hostname)
        and ":" not in parts.netloc.rpartition("@")[2].rpartition("]")[2]
    )


def _is_bare(url: object) -> bool:
    parts = _split(url)
    return parts is not None and "@" not in parts.netloc and "#" not in str(url)


def _split(url: object) -> SplitResult | None:
    try:
        return urlsplit(url) if isinstance(url, str) and _VISIBLE.fullmatch(url) else None
    except ValueError:
        return None


_VISIBLE = re.compile(r"[!-~]+")


_URL: tuple[Check, ...] = (
    length("url", 200, least=1),
    satisfies("url", _is_plain_https, "must use https and carry no port number (contract WH-01, WH-02)"),
    satisfies("url", _is_bare, "must have neither user information nor a fragment"),
)

_ALL = "/2/webhooks"
_ONE = "/2/webhooks/{webhook_id}"

_CREATE = Route("POST", _ALL, Webhook, surface=Surface.BASE, json=True, checks=_URL)
_LIST = Listing(_ALL, Webhook, surface=Surface.BASE, reply=Reply.META_PAGE)
_DELETE = Route("DELETE", _ONE, DeletedWebhook, surface=Surface.BASE)
_VALIDATE = Route("PUT", _ONE, WebhookCheck, surface=Surface.BASE)
_REPLAY = Route("POST", "/2/webhooks/replay", ReplayJob, surface=Surface.BASE, json=True)
# Unspecified: that the deprecated path takes its window in the query (contract UNS-webhook-payloads).
_REPLAY_OLD = Route(
    "POST",
    "/2/account_activity/replay/webhooks/{webhook_id}/subscriptions/all",
    ReplayJob,
    surface=Surface.BASE,
)


@attrs.frozen
class Webhooks:
    """The webhooks of the app; their calls carry its bearer token (contract AUTH-25)."""

    _pipeline: Pipeline

    async def create(self, url: str) -> Webhook:
        """Register a URL. The service checks it at once, so the receiver must be up.

        Args:
            url: `https://`, without port, user and fragment, at most 200 characters.

        Raises:
            BadRequest: the URL was refused: code `CrcValidationFailed`, `UrlValidationFailed`, `DuplicateUrlFailed`
                or `WebhookLimitExceeded`.

        Contract: WH-09, `webhooks.create`.
        """
        return await self._pipeline.send(_CREATE(url=url))

    def list(self) -> Pager[Webhook]:
        """List them, valid or not.

        Contract: WH-10, `webhooks.list`.
        """
        return Pager(self._pipeline, _LIST())

    async def delete(self, webhook_id: str) -> DeletedWebhook:
        """Delete one; nothing is delivered to it any more.

        Contract: WH-11, `webhooks.delete`.
        """
        return await self._pipeline.send(_DELETE(webhook_id=webhook_id))

    async def validate(self, webhook_id: str) -> WebhookCheck:
        """Have one checked, which makes an invalid one valid again if it answers as it must.

        Contract: WH-12, `webhooks.validate`.
        """
        return await self._pipeline.send(_VALIDATE(webhook_id=webhook_id))

    async def ensure(self, url: str, *, within: float = 60.0) -> Webhook:
        """See to it that a URL is registered and valid, whether or not it was before.

        Args:
            url: as in `create`.
            within: seconds to wait until the webhook is valid.

        Raises:
            WebhookInvalid: it was checked, and was not valid in time.
            BadRequest: the URL was refused; see `create`.
        """
        deadline = self._pipeline.clock.monotonic() + within
        known = await self._registered(url) or await self._created(url)
        if known.valid:
            return known
        await self.validate(known.id)
        return await self._valid(known, deadline)

    async def replay(self, webhook_id: str, *, from_date: datetime, to_date: datetime) -> ReplayJob:
        """Have the events of a window delivered again, those that were delivered before among them.

        Args:
            webhook_id: the webhook.
            from_date: the first minute, at most 24 hours ago.
            to_date: the last minute, after `from_date`.

        Raises:
            Conflict: another job runs (code `ReplayConflictError`); there is one at a time.
            BadRequest: the window cannot be replayed.

        Contract: WH-50, `webhooks.replay`.
        """
        return await self._replay(_REPLAY, webhook_id, from_date, to_date, _TERMS)

    async def replay_account_activity(self, webhook_id: str, *, from_date: datetime, to_date: datetime) -> ReplayJob:
        """Replay by the deprecated path; use `replay`.

        Args:
            webhook_id: the webhook.
            from_date: the first minute, at most 24 hours ago.
            to_date: the last minute, after `from_date`.

        Contract: WH-51, `account_activity.replay`.
        """
        warnings.warn(
            "replay_account_activity is deprecated by the service since 2026-03-25: use webhooks.replay",
            DeprecationWarning,
            stacklevel=2,
        )
        return await self._replay(_REPLAY_OLD, webhook_id, from_date, to_date, _TERMS)

    async def replay_gap(
        self,
        since: datetime,
        *,
        webhook_id: str | None = None,
        within: float = 7200.0,
        terms: ReplayTerms = _TERMS,
    ) -> Sequence[ReplayJob]:
        """Have delivered again what came since a moment until now, as far back as the service goes.

        A replay ends some minutes ago, and there is one at a time, so a gap that reaches until now takes two jobs
        and a wait of about half an hour between them. Expect events twice, and tell them by their `event_uuid`.

        Args:
            since: the last moment until which everything arrived; what is older than 24 hours is out of reach.
            webhook_id: the webhook, where the app has several.
            within: seconds until the last job must have been accepted.
            terms: what the service demands of a replay.

        Raises:
            InvalidArgument: the app has several webhooks or none, or `since` has no time zone.
            Conflict: another job ran for too long.
            WebhookInvalid: the webhook is invalid, so that nothing would be delivered; see `ensure`.
        """
        deadline = self._pipeline.clock.monotonic() + within
        now = self._pipeline.clock.now()
        windows = _windows(_minute("since", since), now, terms)
        webhook = await self._only(webhook_id)
        return [await self._replayed(webhook, start, end, terms, deadline) for start, end in windows]

    async def _registered(self, url: str) -> Webhook | None:
        self._pipeline.check(_CREATE(url=url))
        async for webhook in self.list():
            if webhook.url == url:
                return webhook
        return None

    async def _created(self, url: str) -> Webhook:
        try:
            return await self.create(url)
        except ApiError as refusal:
            if not refusal.has_code("DuplicateUrlFailed"):
                raise
            known = await self._registered(url)  # somebody else was faster
            if known is None:
                raise
            return known

    async def _valid(self, webhook: Webhook, deadline: float) -> Webhook:
        while True:
            found = await self._registered(webhook.url)
            if found is not None and found.valid:
                return found
            if found is None or self._pipeline.clock.monotonic() + _POLL > deadline:
                raise WebhookInvalid(webhook.id)
            await self._pipeline.clock.sleep(_POLL)

    async def _only(self, webhook_id: str | None) -> Webhook:
        webhooks = [each for each in await self.list().collect() if webhook_id in {None, each.id}]
        if len(webhooks) != 1:
            raise InvalidArgument("webhook_id", "must name a webhook of the app; it can be left out if there is one")
        if not webhooks[0].valid:
            raise WebhookInvalid(webhooks[0].id)
        return webhooks[0]

    async def _replayed(
        self, webhook: Webhook, start: datetime, end: datetime, terms: ReplayTerms, deadline: float
    ) -> ReplayJob:
        clock = self._pipeline.clock
        await clock.sleep(max(0.0, (terms.opens(start, end) - clock.now()).total_seconds()))
        while True:
            reachable = max(start, _reachable(clock.now(), terms))
            try:
                return await self._replay(_REPLAY, webhook.id, reachable, end, terms)
            except ApiError as refusal:
                is_late = clock.monotonic() + _NEXT_JOB > deadline
                if is_late or not refusal.has_code("ReplayConflictError"):
                    raise
            await clock.sleep(_NEXT_JOB)

    async def _replay(
        self, row: Route[ReplayJob], webhook_id: str, from_date: datetime, to_date: datetime, terms: ReplayTerms
    ) -> ReplayJob:
        oldest = self._pipeline.clock.now() - terms.reach
        hours = f"{terms.reach / timedelta(hours=1):g}"
        checks = (
            related(("to_date", "from_date"), lambda end, start: end > start, "must be after from_date"),
            satisfies("from_date", lambda start: start >= oldest, f"must be at most {hours} hours ago"),
        )
        window = {"from_date": _written("from_date", from_date), "to_date": _written("to_date", to_date)}
        request = row(webhook_id=webhook_id, **window)
        broken = first_problem(checks, {"from_date": from_date, "to_date": to_date})
        return await self._pipeline.send(request.with_problem(broken))


def _windows(start: datetime, now: datetime, terms: ReplayTerms) -> Sequence[tuple[datetime, datetime]]:
    """Cut the time from a minute until now: what can be replayed at once, and what must wait."""
    end = _minute("now", now) + _MINUTE
    start = max(start, _reachable(now, terms))
    settled = _minute("now", now - terms.end_age)
    if start >= settled or terms.opens(start, settled) > now:
        return [(start, end)]
    return [(start, settled), (settled, end)]


def _reachable(now: datetime, terms: ReplayTerms) -> datetime:
    # The second minute within reach: the first one leaves it while the request is on its way.
    return _minute("now", now - terms.reach) + 2 * _MINUTE


def _minute(name: str, moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidArgument(name, "must have a time zone")
    return moment.astimezone(UTC).replace(second=0, microsecond=0)


def _written(name: str, moment: datetime) -> str:
    return f"{_minute(name, moment):%Y%m%d%H%M}"
