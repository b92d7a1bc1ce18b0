"""How many people targeting criteria reach."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import not_empty
from svc_async.wire.records import Record
from svc_async.wire.route import Route

__all__ = ["AudienceEstimate", "AudienceEstimates", "AudienceOperatorType", "AudienceSize"]


class AudienceOperatorType(OpenEnum):
    """Whether criteria include or exclude (contract EST-01b)."""

    EQ = "EQ"
    NE = "NE"


@attrs.frozen(kw_only=True)
class AudienceSize(Record):
    """The bounds of an estimate."""

    min: int | None = None
    max: int | None = None


@attrs.frozen(kw_only=True)
class AudienceEstimate(Record):
    """An estimate, None where the service answers in another form."""

    # Unspecified: the answer is not documented (UNS-estimate-response); this is the form known of such services.
    audience_size: AudienceSize | None = None


_CREATE = Route(
    "POST",
    "/12/accounts/{account_id}/audience_estimate",
    AudienceEstimate,
    json=True,
    checks=(not_empty("targeting_criteria"),),
)


@attrs.frozen
class AudienceEstimates:
    """The estimates of one account."""

    _pipeline: Pipeline
    account_id: str

    async def create(
        self, *, targeting_criteria: Sequence[Mapping[str, Any]], operator_type: AudienceOperatorType | None = None
    ) -> AudienceEstimate:
        """Estimate how many people criteria reach.

        Args:
            targeting_criteria: the criteria as for creating them, a primary one at least (contract EST-01c).
            operator_type: `NE` negates; the service's default is `EQ`.

        Contract: EST-01, `audience_estimate.create`.
        """
        return await self._pipeline.send(
            _CREATE(account_id=self.account_id, targeting_criteria=targeting_criteria, operator_type=operator_type)
        )
