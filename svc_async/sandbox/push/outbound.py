"""Requests to customers' servers, with their verdict and latency."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

import attrs

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.push.delivery_targets import DeliveryTargets, TargetAnswer, TargetRequest, UnmappedUrl

__all__ = ["Attempt", "Outbound", "Verdict"]

_log = logging.getLogger(__name__)


class Verdict(StrEnum):
    """The classification of an answer, or of its absence."""

    OK = "ok"
    WRONG_TOKEN = "wrong token"  # noqa: S105 the name of a verdict
    NOT_200 = "2XX other than 200"
    REDIRECT = "3XX"
    TLS = "TLS error"
    CLIENT_ERROR = "4XX"
    SERVER_ERROR = "5XX"
    TIMEOUT = "timeout"
    CLOSED = "closed"
    UNMAPPED = "no delivery mapping"


@attrs.frozen(kw_only=True)
class Attempt:
    """A check or a delivery as it was sent, and its outcome.

    Attributes:
        time: when it was sent.
        occasion: `creation`, `put` or `every_30_minutes` for a check; the number of the attempt for a delivery.
        status: None without an answer.
        latency: seconds on the sandbox's clock.
        rule: the rule that the verdict rests on.
        reason: a description, if there is no answer; the beginning of the body, if the answer is a refusal.
    """

    time: datetime
    occasion: str
    method: str
    url: str
    query: str = ""
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    status: int | None = None
    answer_headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    answer_body: bytes = attrs.field(default=b"", repr=False)
    latency: float
    verdict: Verdict
    rule: str
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.verdict is Verdict.OK


_BY_CLASS: Mapping[int, Verdict] = MappingProxyType({3: Verdict.REDIRECT, 4: Verdict.CLIENT_ERROR})
_SUCCESS = 2
_SHOWN = 200  # characters of the body of a refusal
_LONGEST_LETTER = 4  # bytes in UTF-8


@attrs.frozen
class Outbound:
    """Sends requests to customers' servers."""

    clock: Clock
    targets: DeliveryTargets

    async def send(
        self,
        sent: TargetRequest,
        *,
        occasion: str,
        max_wait: float,
        accept: Callable[[TargetAnswer], Verdict],
        rules: Mapping[Verdict, str],
    ) -> Attempt:
        """Send a request, wait for the answer and classify it.

        Args:
            sent: the request.
            occasion: why it is sent, for the record.
            max_wait: seconds on the clock.
            accept: classifies a 2XX answer.
            rules: the rule that each verdict rests on.
        """
        time, began = self.clock.now(), self.clock.monotonic()
        answer, verdict, reason = await self._exchange(sent, max_wait)
        if answer is not None:
            hundreds = answer.status // 100
            verdict = accept(answer) if hundreds == _SUCCESS else _BY_CLASS.get(hundreds, Verdict.SERVER_ERROR)
            reason = "" if hundreds == _SUCCESS else _read_reason(answer.body)
        return Attempt(
            time=time,
            occasion=occasion,
            method=sent.method,
            url=sent.url,
            query=sent.query,
            headers=sent.headers,
            body=sent.body,
            status=None if answer is None else answer.status,
            answer_headers={} if answer is None else answer.headers,
            answer_body=b"" if answer is None else answer.body,
            latency=self.clock.monotonic() - began,
            verdict=verdict,
            rule=rules[verdict],
            reason=reason,
        )

    async def _exchange(self, sent: TargetRequest, max_wait: float) -> tuple[TargetAnswer | None, Verdict, str]:
        try:
            async with self.clock.timeout(max_wait):
                return await self.targets.send(sent), Verdict.OK, ""
        except TimeoutError:
            return None, Verdict.TIMEOUT, f"no answer within {max_wait:g} s"
        except ssl.SSLError as error:
            return None, Verdict.TLS, str(error)
        except ConnectionError as error:
            return None, Verdict.CLOSED, str(error)
        except UnmappedUrl as error:
            return None, Verdict.UNMAPPED, str(error)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 a receiver that breaks is a server that answers 500
            _log.exception("a target in this process failed")
            return TargetAnswer(500), Verdict.SERVER_ERROR, ""


def _read_reason(body: bytes) -> str:
    """Return the beginning of a body on one line, without what a terminal obeys."""
    text = body[: _SHOWN * _LONGEST_LETTER].decode("utf-8", "replace")
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)[:_SHOWN]
