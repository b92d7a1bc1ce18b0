"""The CRC check, and the effect of its outcome on a webhook.

A webhook is `valid` from its first passed check on. A wrong answer, a redirect or a TLS error makes it invalid at once;
a temporary failure (4XX, 5XX, timeout, closed connection) only once the last passed check is more than 28 hours ago.
Every 30 minutes, counted from its creation, a webhook is checked if its last passed check is at least 24 hours ago.
"""

import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal

import attrs
import msgspec

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.push.outbound import Attempt, Outbound, Signer, TargetAnswer, TargetRequest, Verdict, sign
from svc_async.sandbox.state.store import Ids, format_time

__all__ = ["INTERVAL", "INVALID_AFTER", "RECHECK_AFTER", "CrcChecks", "Occasion", "Webhook"]

Occasion = Literal["creation", "put", "every_30_minutes"]

INTERVAL = timedelta(minutes=30)  # WH-20
RECHECK_AFTER = timedelta(hours=24)  # WH-20
INVALID_AFTER = timedelta(hours=28)  # WH-28, the 4 hours of grace included (WH-28b)

_TIMEOUT = 10.0  # Unspecified: seconds until a check times out (ASM-01)
_AT_ONCE = frozenset({Verdict.WRONG_TOKEN, Verdict.REDIRECT, Verdict.TLS})
_RULES: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.OK: "ASM-32",
        Verdict.WRONG_TOKEN: "WH-21",
        Verdict.REDIRECT: "WH-22",
        Verdict.TLS: "WH-23",
        Verdict.CLIENT_ERROR: "WH-24",
        Verdict.SERVER_ERROR: "WH-25",
        Verdict.TIMEOUT: "WH-26",
        Verdict.CLOSED: "WH-27",
        Verdict.UNMAPPED: "WH-03",
    }
)


@attrs.define(kw_only=True, eq=False)
class Webhook:
    """A registered URL and its validity.

    Attributes:
        last_ok: the time of the last passed check.
        checks: all checks so far.
        deleted: whether it was deleted.
    """

    id: str
    url: str
    created_at: datetime
    last_ok: datetime
    valid: bool = True
    deleted: bool = False
    checks: list[Attempt] = attrs.field(factory=list[Attempt], repr=False)

    @property
    def public_fields(self) -> dict[str, object]:
        """The webhook as the service shows it (ASM-44)."""
        return {"id": self.id, "url": self.url, "valid": self.valid, "created_at": format_time(self.created_at)}

    @property
    def takes_deliveries(self) -> bool:
        """Whether events are delivered to it (ASM-40)."""
        return self.valid and not self.deleted

    def apply(self, check: Attempt, *, revives: bool) -> None:
        """Apply the outcome of a check.

        Args:
            check: the check.
            revives: whether a passed check makes an invalid webhook valid again.
        """
        self.checks.append(check)
        if check.ok:
            self.last_ok = check.time
            self.valid = self.valid or revives
        elif check.verdict in _AT_ONCE or check.time - self.last_ok > INVALID_AFTER:
            self.valid = False


@attrs.frozen(kw_only=True)
class CrcChecks:
    """Checks webhooks: on creation, on PUT, and every 30 minutes if due (WH-37)."""

    background: BackgroundTasks
    outbound: Outbound
    signer: Signer
    ids: Ids
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    async def check_new(self, url: str) -> Attempt:
        """Check a URL before it is registered (WH-04)."""
        return await self._check(url, "creation")

    async def revalidate(self, webhook: Webhook) -> Attempt:
        """Check a webhook at its owner's request; a passed check makes it valid again (WH-12, WH-12b)."""
        check = await self._check(webhook.url, "put")
        webhook.apply(check, revives=True)
        return check

    def schedule(self, webhook: Webhook) -> None:
        """Check a webhook every 30 minutes from now on."""
        # Unspecified: the start of the 30 minutes; here the creation of the webhook.
        self._schedule_tick(INTERVAL - (self.background.clock.now() - webhook.created_at) % INTERVAL, webhook)

    def _schedule_tick(self, pause: timedelta, webhook: Webhook) -> None:
        self.background.call_later(pause.total_seconds(), lambda: self._tick(webhook), moves_time=False)

    def _tick(self, webhook: Webhook) -> None:
        if webhook.deleted:
            return
        self._schedule_tick(INTERVAL, webhook)
        # Unspecified: that an invalid webhook is not checked any more, so that only PUT makes it valid (ASM-41).
        if webhook.valid and self.background.clock.now() - webhook.last_ok >= RECHECK_AFTER:
            self.background.start(self._recheck(webhook))

    async def _recheck(self, webhook: Webhook) -> None:
        check = await self._check(webhook.url, "every_30_minutes")
        webhook.apply(check, revives=False)

    async def _check(self, url: str, occasion: Occasion) -> Attempt:
        # Unspecified: that each check has a token of its own (ASM-35) and nothing else in its query (ASM-30), and that
        # it is not signed (ASM-34).
        token, dialect = self.ids.secret(f"crc_token:{next(self._numbers)}", 32), self.signer.dialect
        query = f"crc_token={token}"
        if dialect is not None:
            query = dialect.write_form(query.encode()).decode()
        return await self.outbound.send(
            TargetRequest(method="GET", url=url, query=query, headers={}),
            occasion=occasion,
            max_wait=_TIMEOUT,
            accept=lambda answer: self._classify(answer, token),
            rules=_RULES,
        )

    def _classify(self, answer: TargetAnswer, token: str) -> Verdict:
        # Unspecified: that any 2XX status will do with the right token (ASM-32); WH-21 speaks of 2XX.
        expected = sign(self.signer.consumer_secret, token.encode())
        body = answer.body if self.signer.dialect is None else self.signer.dialect.serve_json(answer.body)
        return Verdict.OK if _parse_response_token(body) == expected else Verdict.WRONG_TOKEN


def _parse_response_token(body: bytes) -> object:
    """Parse the answer; one that is not JSON, or has no token, is wrong (ASM-36)."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return answer.get("response_token") if isinstance(answer, dict) else None
