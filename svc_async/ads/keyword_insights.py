"""How often keywords are used, and related keywords."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import attrs

from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import datetimes, not_empty, together_at_most, window
from svc_async.wire.records import Record
from svc_async.wire.route import Route

__all__ = ["KeywordGranularity", "KeywordInsights", "KeywordInsightsSearch"]


class KeywordGranularity(OpenEnum):
    """The length of a period (contract KW-01)."""

    DAY = "DAY"
    HOUR = "HOUR"


@attrs.frozen(kw_only=True)
class KeywordInsights(Record):
    """Insights into keywords in one country (contract KW-05, KW-06).

    Attributes:
        tweet_volume: how often the keywords themselves were used, one number per period.
    """

    related_keywords: tuple[str, ...] = ()
    tweet_volume: tuple[int, ...] = ()


_SEARCH = Route(
    "GET",
    "/12/insights/keywords/search",
    KeywordInsights,
    checks=(
        not_empty("keywords"),
        together_at_most(("keywords", "negative_keywords"), 10, "keywords"),
        datetimes("start_time", "end_time"),
        window("start_time", "end_time", timedelta(days=7)),
    ),
)


@attrs.frozen(eq=False)
class KeywordInsightsSearch:
    """The insights into keywords."""

    _pipeline: Pipeline = attrs.field(repr=False)

    async def search(
        self,
        *,
        granularity: KeywordGranularity,
        keywords: Sequence[str],
        start_time: datetime,
        end_time: datetime | None = None,
        location: str | None = None,
        negative_keywords: Sequence[str] | None = None,
    ) -> KeywordInsights:
        """Return insights into keywords.

        Args:
            granularity: the length of a period.
            keywords: match any of these; with `negative_keywords` at most 10 (contract KW-03).
            start_time: the start.
            end_time: the end, at most 7 days after `start_time`; the service's default is now (contract KW-04).
            location: a country, in the form of the lookup of targeting locations.
            negative_keywords: match none of these.

        Contract: `keyword_insights.search`.
        """
        return await self._pipeline.send(
            _SEARCH(
                granularity=granularity,
                keywords=keywords,
                start_time=start_time,
                end_time=end_time,
                location=location,
                negative_keywords=negative_keywords,
            )
        )
