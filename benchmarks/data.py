"""Made-up people: the same rows in every run."""

import csv
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

__all__ = ["FOUR_COLUMNS", "make_emails", "make_four_identifiers", "write_customers"]

FOUR_COLUMNS = ("email", "phone_number", "handle", "svc_id")

_FIRST = ("Ada", "bo", "Cleo", "dev", "Eve", "finn", "Gus", "hana", "Ida", "jun", "Kai", "lena", "Mia", "noor")
_LAST = ("Abel", "berg", "Costa", "dunn", "Evans", "fox", "Garcia", "hill", "Ito", "jones", "Khan", "lee", "Moe")
_DOMAINS = ("example.com", "Example.org", "mail.example.net", "post.example")


def make_emails(count: int, *, seed: int = 1) -> Iterator[str]:
    """Yield distinct addresses, some with capitals."""
    rng = random.Random(seed)
    for number in range(count):
        yield f"{rng.choice(_FIRST)}.{rng.choice(_LAST)}{number}@{rng.choice(_DOMAINS)}"


def make_four_identifiers(count: int, *, missing: float, seed: int = 1) -> Sequence[tuple[str | None, ...]]:
    """Return rows of `FOUR_COLUMNS`; each of the last three values is missing with this probability."""
    rng = random.Random(seed)

    def maybe(value: str) -> str | None:
        return value if rng.random() >= missing else None

    return [
        (
            email,
            maybe(f"+4366{rng.randrange(10**8, 10**9)}"),
            maybe(f"@{rng.choice(_FIRST)}_{number}"),
            maybe(str(10**9 + number)),
        )
        for number, email in enumerate(make_emails(count, seed=seed))
    ]


def write_customers(file: Path, rows: int, *, first: int = 0) -> None:
    """Write a file of e-mails: those of this many rows, without the first ones of all."""
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(("email",))
        writer.writerows((email,) for email in islice(make_emails(first + rows), first, None))
