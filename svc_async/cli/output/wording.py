"""How numbers are written for people."""

__all__ = ["count", "format_duration", "name_count"]

_SINGULAR = {
    "additions": "addition",
    "changes": "change",
    "refreshes": "refresh",
    "removals": "removal",
    "invalid_rows": "invalid row",
}


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_count(number: int, name: str) -> str:
    """Return what stands behind the number of a count with this name: `invalid row` behind 1, else `invalid rows`."""
    return _SINGULAR.get(name, name) if number == 1 else name.replace("_", " ")


def format_duration(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
