"""The post volume of keywords (KW-01 to KW-07).

The volumes are made up, the same for the same keyword, country and period.
"""

from datetime import timedelta
from math import ceil
from zlib import crc32

from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import csv, text, timestamp
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.reading import parse_time
from svc_async.sandbox.state.store import format_time

__all__ = ["OPERATIONS"]

_PERIODS = {"DAY": timedelta(days=1), "HOUR": timedelta(hours=1)}
_WINDOW = timedelta(days=7)
_TERMS = 10
_RELATED = 30
_BUSIEST = 5_000
_DEFAULT_COUNTRY = "96683cc9126741d1"  # Unspecified: KW-07b names no default


def _search(call: Call) -> Answer:
    keywords, negative = call.params["keywords"], call.params["negative_keywords"] or []
    start = parse_time(call.params["start_time"])
    end = call.now if call.params["end_time"] is None else parse_time(call.params["end_time"])
    country = _find_country(call)
    if len(keywords) + len(negative) > _TERMS:
        refuse(invalid("KW-03", f"and negative_keywords are at most {_TERMS}", "keywords"))
    if end - start > _WINDOW:
        refuse(invalid("KW-04", f"is more than {_WINDOW.days} days after start_time", "end_time"))
    if end <= start:
        refuse(invalid("ASM-95", "must be later than start_time", "end_time"))
    wanted = [keyword for keyword in keywords if keyword not in negative]
    length = _PERIODS[call.params["granularity"]]
    # Unspecified: an incomplete period counts as one.
    periods = [format_time(start + number * length) for number in range(ceil((end - start) / length))]
    volume = [
        sum(crc32(f"{keyword.casefold()}\n{country}\n{period}".encode()) % _BUSIEST for keyword in wanted)
        for period in periods
    ]
    related = [f"{keywords[number % len(keywords)]} {number // len(keywords) + 1}" for number in range(_RELATED)]
    return Answer({"related_keywords": related, "tweet_volume": volume})


def _find_country(call: Call) -> str:
    """Return the one country of the results (KW-07b)."""
    location = call.params["location"]
    if location is None:
        return _DEFAULT_COUNTRY
    row = call.sandbox.store["locations"].get(location)
    if row is None or row.fields["location_type"] != "COUNTRIES":
        refuse(invalid("KW-07", "must be the targeting value of a country", "location"))
    return str(location)


OPERATIONS = (
    Operation(
        id="keyword_insights.search",
        method="GET",
        path="/12/insights/keywords/search",
        handler=_search,
        query=(
            text("granularity", required=True, enum=tuple(_PERIODS), rule="KW-01"),
            csv("keywords", required=True, rule="KW-02"),
            timestamp("start_time", required=True, rule="KW-02"),
            timestamp("end_time", rule="KW-04b"),
            text("location", rule="KW-07"),
            csv("negative_keywords", rule="KW-02b"),
        ),
        limit="keyword_insights",
        rule="KW-06",
    ),
)
