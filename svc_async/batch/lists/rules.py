"""The service's rules for the operations on one kind of list."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import attrs

from svc_async.errors import InvalidArgument
from svc_async.wire.params import timestamp, to_utc

__all__ = ["ListRules"]


@attrs.frozen(kw_only=True)
class ListRules:
    """The service's rules for the operations on one kind of list.

    Attributes:
        identifiers: the keys of a user.
        times: the times of an operation; the last one is its end.
        default_times: the times that an Update is built with where none are given.
        begin: what the end must be later than.
        latest_end: returns the latest end that may be given, if there is one.
        contract: the contract ids of the rules of operations, bytes, type, users, times, end, keys and values.
    """

    identifiers: Sequence[str]
    times: Sequence[str]
    default_times: Callable[[datetime], Mapping[str, datetime]]
    begin: str
    latest_end: Callable[[datetime], datetime] | None = None
    contract: Mapping[str, str]

    def make_error(self, where: str, rule: str, about: str) -> InvalidArgument:
        """Return the error of an argument that breaks a rule."""
        return InvalidArgument(where, rule, rule_ids=(self.contract[about],))

    def check_times(self, times: Mapping[str, datetime | None], where: str, now: datetime) -> None:
        """Check the order of the times of an operation, to the second, as they are sent.

        Raises:
            InvalidArgument: a time is not a datetime, or has no zone, or the end is too early or too late.
        """
        given = {name: moment for name, moment in times.items() if moment is not None}
        for name, moment in given.items():
            to_utc(f"{where}{name}", moment)
        end = given.get("expires_at")
        start = given.get("effective_at", now)
        if timestamp(end or self.default_times(now)["expires_at"]) <= timestamp(start):
            is_past = end is not None and timestamp(end) <= timestamp(now)
            rule = "must be later than now: it is past" if is_past else f"must be later than {self.begin}"
            raise self.make_error(f"{where}expires_at", rule, "end")
        latest = self.latest_end and self.latest_end(now)
        if end is not None and latest is not None and timestamp(end) > timestamp(latest):
            rule = f"must be within 13 months, by {latest.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
            raise self.make_error(f"{where}expires_at", rule, "end")
