"""The list that batches of users are sent to, and what its answers mean."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import attrs
import msgspec

from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.destination import Verdict
from svc_async.batch.lists.operations import UserOperation
from svc_async.batch.lists.rules import ListRules
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.limits import Limits
from svc_async.batch.recovery import REMOVED, remove_hashes
from svc_async.errors import ErrorDetail
from svc_async.wire.route import Request

__all__ = ["Counted", "ListDestination"]

T = TypeVar("T")

Counted = Literal["users", "operations"]

_NOTHING = "(?!)"
"""A pattern that matches nothing."""


@attrs.frozen(kw_only=True)
class ListDestination(Generic[T]):
    """The list that batches of users are sent to, and what its answers mean.

    Attributes:
        empty: the request without operations.
        confirms: returns whether an answer confirms everything that was sent.
        counted: what the answer counts.
        rules: the rules of the list.
        limits: what one request may hold.
        purpose: what the operations are for, lest a journal take a removal for a finished upload.
        host: where the list is.
        settings: what changes what a job sends of a row, as values for JSON.
    """

    empty: Request[T]
    confirms: Callable[[T, int], bool]
    counted: Counted
    rules: ListRules
    limits: Limits
    purpose: str
    host: str
    settings: Mapping[str, Any]

    @property
    def about(self) -> Mapping[str, Any]:
        """The host, the list with the purpose, and the settings."""
        purpose = "" if self.purpose == BatchOperationType.UPDATE else f" ({self.purpose})"
        return {"host": self.host, "destination": f"{self.empty.method} {self.empty.path}{purpose}", **self.settings}

    def parse_group(self, plain: Any) -> UserOperation:
        """Parse a group from its plain values."""
        return UserOperation.from_plain(self.rules, plain)

    def build_request(self, batch: Batch) -> Request[T]:
        """Return the request that carries a batch."""
        return self.empty.with_body(batch.write_body())

    def evaluate(self, answer: T, batch: Batch) -> Verdict | None:
        """Return the verdict on the rows of a batch; None if the answer counts other rows than were sent."""
        sent = batch.rows if self.counted == "users" else batch.operations
        return Verdict() if self.confirms(answer, sent) else None

    def name_rows(self, batch: Batch) -> Sequence[str | None]:  # noqa: ARG002 - people have no names here
        """Return nothing: a failure contains nothing of a person."""
        return ()

    def redact(self, reason: ErrorDetail, row: str) -> ErrorDetail:
        """Remove every identifier of a row, which is in JSON, and every hash from the service's words."""
        values = sorted(_collect_values(msgspec.json.decode(row)), key=len, reverse=True)
        find_value = re.compile("|".join(map(re.escape, values)) or _NOTHING, re.IGNORECASE)
        # A code or a name may contain a short identifier by chance; a whole word of it is none.
        find_word = re.compile(rf"(?<!\w)(?:{find_value.pattern})(?!\w)", re.IGNORECASE)
        return attrs.evolve(
            reason,
            message=find_value.sub(REMOVED, remove_hashes(reason.message)),
            code=_remove(find_word, reason.code),
            parameter=None if reason.parameter is None else _remove(find_word, reason.parameter),
        )


def _remove(find: re.Pattern[str], words: str | int) -> str:
    return find.sub(REMOVED, remove_hashes(str(words)))


def _collect_values(user: object) -> set[str]:
    if isinstance(user, str):
        return {user} - {""}
    if isinstance(user, dict):
        user = list(user.values())
    return set().union(*map(_collect_values, user)) if isinstance(user, list) else set()
