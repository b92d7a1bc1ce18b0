"""Webhooks: the URLs to which the service delivers events, and replays of past events."""

import logging
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import SplitResult, urlsplit

import attrs

from svc_async.deprecation import deprecate
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import ApiError, InvalidArgument, WebhookInvalid
from svc_async.value_rules import DURATION, SECONDS_OR_INFINITE, instance_of
from svc_async.wire.checks import length, related, required, satisfies
from svc_async.wire.params import Check, find_wrong_text, first_problem, to_utc
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Reply, Route, Surface

__all__ = ["DeletedWebhook", "ReplayJob", "ReplayTerms", "Webhook", "WebhookCheck", "Webhooks", "check_url"]

_log = logging.getLogger("svc_async")
_MINUTE = timedelta(minutes=1)
_POLL = 2.0
"""Seconds between two reads of a webhook that is being checked."""
_NEXT_JOB = 60.0
"""Seconds until a replay is requested again while another one runs."""


# Unspecified: the fields of these records (contract UNS-webhook-payloads).
@attrs.frozen(kw_only=True)
class Webhook(Record):
    """A registered webhook.

    Attributes:
        valid: whether it passed its last check; nothing is delivered to an invalid one.
    """

    id: str
    url: str
    valid: bool
    created_at: Timestamp | None = None


@attrs.frozen(kw_only=True)
class WebhookCheck(Record):
    """The result of a requested check.

    Attributes:
        valid: whether the webhook passed; this may mean only that the check was triggered.
        attempted: whether the check was triggered, if the service reports nothing else.
    """

    valid: bool | None = None
    attempted: bool | None = None


@attrs.frozen(kw_only=True)
class DeletedWebhook(Record):
    """A webhook that was deleted.

    Attributes:
        deleted: whether it was; None if the service says it in a form that cannot be read.
    """

    deleted: bool | None = True


@attrs.frozen(kw_only=True)
class ReplayJob(Record):
    """A job that delivers past events again; an event `replay_job_status` reports its end."""

    job_id: str
    created_at: Timestamp | None = None


@attrs.frozen(kw_only=True)
class ReplayTerms:
    """The service's conditions for a replay.

    Attributes:
        reach: how far back it can go.
        start_age: the minimum age of its first minute.
        end_age: the minimum age of its last minute.
    """

    # Unspecified: all three (contract UNS-replay-job).
    reach: timedelta = attrs.field(default=timedelta(hours=24), validator=DURATION)
    start_age: timedelta = attrs.field(default=timedelta(minutes=31), validator=DURATION)
    end_age: timedelta = attrs.field(default=timedelta(minutes=10), validator=DURATION)

    def earliest(self, start: datetime, end: datetime) -> datetime:
        """Return the time from which a window can be replayed."""
        return max(start + self.start_age, end + self.end_age)


_TERMS = ReplayTerms()
_ANY_TERMS = instance_of(ReplayTerms, "ReplayTerms(...)")


def _is_plain_https(url: str) -> bool:
    parts = _split(url)
    # An explicit :443 is a port as well.
    return parts.scheme == "https" and ":" not in parts.netloc.rpartition("@")[2].rpartition("]")[2]


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


# Each check relies on those before it.
_URL: tuple[Check, ...] = (
    length("url", 200, least=1),
    required("url"),
    satisfies(
        "url",
        lambda url: re.fullmatch(r"[!-~]+", url) is not None,
        "must consist of visible ASCII characters: percent-encode others, or write a host name in its xn-- form",
    ),
    satisfies("url", lambda url: bool(_split(url).hostname), "must be an absolute URL with a host"),
    satisfies("url", _is_plain_https, "must use https and carry no port number", rule_ids=("WH-01", "WH-02")),
    satisfies(
        "url",
        lambda url: "@" not in _split(url).netloc and "#" not in url,
        "must have neither user information nor a fragment",
    ),
)


def check_url(url: str) -> None:
    """Check, without a request, that a URL has the form of a webhook's.

    Args:
        url: as in `Webhooks.create`.

    Raises:
        InvalidArgument: it breaks a rule.
    """
    if problem := first_problem((find_wrong_text, *_URL), {"url": url}):
        raise problem


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


@attrs.frozen(eq=False)
class Webhooks:
    """The webhooks of the app; their calls carry its bearer token (contract AUTH-25)."""

    _pipeline: Pipeline = attrs.field(repr=False)

    async def create(self, url: str) -> Webhook:
        """Register a URL. The service checks it immediately, so the receiver must be running.

        Args:
            url: `https://`, without port, user information and fragment, at most 200 characters.

        Raises:
            BadRequest: the URL was refused: code `CrcValidationFailed`, `UrlValidationFailed`, `DuplicateUrlFailed`
                or `WebhookLimitExceeded`.

        Contract: WH-09, `webhooks.create`.
        """
        return await self._pipeline.send(_CREATE(url=url))

    def list(self) -> Pager[Webhook]:
        """List the webhooks, valid or not.

        Contract: WH-10, `webhooks.list`.
        """
        return Pager(self._pipeline, _LIST())

    async def delete(self, webhook_id: str) -> DeletedWebhook:
        """Delete a webhook; nothing more is delivered to it.

        Contract: WH-11, `webhooks.delete`.
        """
        return await self._pipeline.send(_DELETE(webhook_id=webhook_id))

    async def validate(self, webhook_id: str) -> WebhookCheck:
        """Request a check of a webhook, which makes an invalid one valid again if it passes.

        Contract: WH-12, `webhooks.validate`.
        """
        return await self._pipeline.send(_VALIDATE(webhook_id=webhook_id))

    async def ensure(self, url: str, *, within: float = 60.0) -> Webhook:
        """Ensure that a URL is registered and valid.

        Args:
            url: as in `create`.
            within: seconds to wait until the webhook is valid.

        Raises:
            WebhookInvalid: it did not become valid in time.
            BadRequest: the URL was refused; see `create`.
        """
        SECONDS_OR_INFINITE.check("within", within)
        deadline = self._pipeline.clock.monotonic() + within
        known = await self._find(url) or await self._create_or_find(url)
        if known.valid:
            return known
        await self.validate(known.id)
        return await self._wait_until_valid(known, deadline)

    async def replay(self, webhook_id: str, *, from_date: datetime, to_date: datetime) -> ReplayJob:
        """Replay the events of a window, including those that were delivered before.

        Args:
            webhook_id: the webhook.
            from_date: the first minute, at most 24 hours ago.
            to_date: the last minute, after `from_date`.

        Raises:
            Conflict: another job is running (code `ReplayConflictError`); there is one at a time.
            BadRequest: the window cannot be replayed.

        Contract: WH-50, `webhooks.replay`.
        """
        return await self._replay(_REPLAY, webhook_id, from_date, to_date, _TERMS)

    @deprecate("replay_account_activity is deprecated by the service since 2026-03-25: use webhooks.replay")
    async def replay_account_activity(self, webhook_id: str, *, from_date: datetime, to_date: datetime) -> ReplayJob:
        """Replay by the deprecated path; use `replay`.

        Args:
            webhook_id: the webhook.
            from_date: the first minute, at most 24 hours ago.
            to_date: the last minute, after `from_date`.

        Contract: WH-51, `account_activity.replay`.
        """
        return await self._replay(_REPLAY_OLD, webhook_id, from_date, to_date, _TERMS)

    async def replay_gap(
        self,
        since: datetime,
        *,
        webhook_id: str | None = None,
        within: float = 7200.0,
        terms: ReplayTerms = _TERMS,
    ) -> Sequence[ReplayJob]:
        """Replay the events since a time until now, as far back as the service allows.

        A replay ends some minutes ago, and there is one at a time, so a gap that reaches until now takes two jobs
        and a wait of about half an hour between them. Expect duplicates, and recognise them by their `event_uuid`.
        What is out of reach is lost, and a line in the log says from when until when.

        A replay brings what the service tried to deliver. As far as is known it tries nothing while a webhook is
        invalid: no replay brings the events of that time, and no line says so, since the service does not tell when a
        webhook became invalid. `activity.stream(since=)` requests them, up to 24 hours back.

        Args:
            since: the time up to which all events arrived; events older than 24 hours are out of reach.
            webhook_id: the webhook, if the app has several.
            within: seconds until the last job must have been accepted.
            terms: the service's conditions for a replay.

        Raises:
            InvalidArgument: the app has several webhooks or none, or `since` has no time zone or lies in the future.
            Conflict: another job was running for too long.
            WebhookInvalid: the webhook is invalid, so nothing would be delivered; see `ensure`.
        """
        SECONDS_OR_INFINITE.check("within", within)
        _ANY_TERMS.check("terms", terms)
        deadline = self._pipeline.clock.monotonic() + within
        now = self._pipeline.clock.now()
        first = _floor_minute("since", since)
        if first > now:  # in a later minute: the clock of `since` may be seconds ahead
            raise InvalidArgument("since", "must not be in the future")
        windows = _split_window(first, now, terms)
        webhook = await self._find_valid(webhook_id)
        _warn_if_lost(first, windows[0][0])
        return [await self._replay_window(webhook, start, end, terms, deadline) for start, end in windows]

    async def _find(self, url: str) -> Webhook | None:
        self._pipeline.check(_CREATE(url=url))
        async for webhook in self.list():
            if webhook.url == url:
                return webhook
        return None

    async def _create_or_find(self, url: str) -> Webhook:
        try:
            return await self.create(url)
        except ApiError as refusal:
            if not refusal.has_code("DuplicateUrlFailed"):
                raise
            known = await self._find(url)  # another process was faster
            if known is None:
                raise
            return known

    async def _wait_until_valid(self, webhook: Webhook, deadline: float) -> Webhook:
        while True:
            found = await self._find(webhook.url)
            if found is not None and found.valid:
                return found
            if found is None or self._pipeline.clock.monotonic() + _POLL > deadline:
                raise WebhookInvalid(webhook.id)
            await self._pipeline.clock.sleep(_POLL)

    async def _find_valid(self, webhook_id: str | None) -> Webhook:
        webhooks = [each for each in await self.list().collect() if webhook_id in {None, each.id}]
        if len(webhooks) != 1:
            raise InvalidArgument("webhook_id", "must name a webhook of the app; it can be left out if there is one")
        if not webhooks[0].valid:
            raise WebhookInvalid(webhooks[0].id)
        return webhooks[0]

    async def _replay_window(
        self, webhook: Webhook, start: datetime, end: datetime, terms: ReplayTerms, deadline: float
    ) -> ReplayJob:
        clock = self._pipeline.clock
        await clock.sleep(max(0.0, (terms.earliest(start, end) - clock.now()).total_seconds()))
        while True:
            first = max(start, _find_first_minute(clock.now(), terms))
            try:
                job = await self._replay(_REPLAY, webhook.id, first, end, terms)
                _warn_if_lost(start, first)
                return job
            except ApiError as refusal:
                is_late = clock.monotonic() + _NEXT_JOB > deadline
                if is_late or not refusal.has_code("ReplayConflictError"):
                    raise
            await clock.sleep(_NEXT_JOB)

    async def _replay(
        self, route: Route[ReplayJob], webhook_id: str, from_date: datetime, to_date: datetime, terms: ReplayTerms
    ) -> ReplayJob:
        oldest = self._pipeline.clock.now() - terms.reach
        hours = f"{terms.reach / timedelta(hours=1):g}"
        checks = (
            related(("to_date", "from_date"), lambda end, start: end > start, "must be after from_date"),
            satisfies("from_date", lambda start: start >= oldest, f"must be at most {hours} hours ago"),
        )
        window = {"from_date": _format_minute("from_date", from_date), "to_date": _format_minute("to_date", to_date)}
        request = route(webhook_id=webhook_id, **window)
        problem = first_problem(checks, {"from_date": from_date, "to_date": to_date})
        return await self._pipeline.send(request.with_problem(problem))


def _split_window(start: datetime, now: datetime, terms: ReplayTerms) -> Sequence[tuple[datetime, datetime]]:
    """Split the time from a minute until now into what can be replayed immediately and what must wait."""
    end = _floor_minute("now", now) + _MINUTE
    start = max(start, _find_first_minute(now, terms))
    boundary = _floor_minute("now", now - terms.end_age)
    if start >= boundary or terms.earliest(start, boundary) > now:
        return [(start, end)]
    return [(start, boundary), (boundary, end)]


def _warn_if_lost(start: datetime, first: datetime) -> None:
    """Log the part of a gap that is older than what the service replays."""
    if start < first:
        _log.warning(
            "the events from %s until %s are out of the reach of a replay", start.isoformat(), first.isoformat()
        )


def _find_first_minute(now: datetime, terms: ReplayTerms) -> datetime:
    # The second minute within reach: the first one may leave it before the request arrives.
    return _floor_minute("now", now - terms.reach) + 2 * _MINUTE


def _floor_minute(name: str, moment: datetime) -> datetime:
    return to_utc(name, moment).replace(second=0, microsecond=0)


def _format_minute(name: str, moment: datetime) -> str:
    minute = _floor_minute(name, moment)
    return f"{minute.year:04}{minute:%m%d%H%M}"  # strftime does not pad the year
