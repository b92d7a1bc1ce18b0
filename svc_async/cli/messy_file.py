"""A generated customer file, as messy as real ones.

The values in `messy_file.json` were drawn once from Faker (`first_name`, `last_name`, `domain_word` under
`.example`, `phone_number` where it is valid in E.164) for ten locales: cs_CZ, de_DE, en_GB, es_ES, fr_FR, it_IT, pl_PL,
pt_BR, sv_SE, tr_TR, each with the seed 7. The ranges of all phone numbers are known to phonenumbers 8.13, the oldest
that the extra `phone` allows.
"""

import csv
import json
import random
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import attrs

__all__ = ["MessyFile"]

_WRITTEN_EMAILS: Sequence[Callable[[str], str]] = (
    str,
    str,
    str,
    str.upper,
    str.title,
    lambda email: f" {email}",
    lambda email: f"{email}  ",
    lambda email: f"\t{email.title()} ",
)
_BROKEN_EMAILS: Sequence[Callable[[str], str]] = (
    lambda email: email.replace("@", " at "),
    lambda email: email.replace("@", "@@"),
    lambda email: email.partition("@")[0],
    lambda email: email.removesuffix(".example"),
    lambda email: email.replace(".", " .", 1),
    lambda _: "n/a",
)
_WRITTEN_PHONES: Sequence[Callable[[str], str]] = (
    str,
    lambda phone: f"{phone[:3]} {phone[3:6]} {phone[6:]}",
    lambda phone: f"{phone[:3]} ({phone[3:5]}) {phone[5:]}",
    lambda phone: f"{phone[:3]}-{phone[3:7]}-{phone[7:]}",
    lambda phone: f" {phone[:3]} {phone[3:5]}.{phone[5:8]}.{phone[8:]} ",
)
_BROKEN_PHONES: Sequence[Callable[[str], str]] = (
    lambda phone: phone.removeprefix("+"),
    lambda phone: f"0{phone[3:]}",
    lambda phone: phone[:5],
    lambda _: "unknown",
)


@attrs.frozen(kw_only=True)
class MessyFile:
    """A realistic customer file: upper case, spaces, missing and broken values, repeats."""

    rows: int
    seed: int

    def write(self, path: Path) -> None:
        """Write the file."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("Name", "E-Mail", "Phone Number"))
            writer.writerows(self._rows())

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        dice = random.Random(self.seed)  # noqa: S311 - invents people, guards nothing
        known: list[tuple[str, str, str]] = []
        for name, email, phone in self._persons(dice):
            chance = dice.random()
            if known and chance < 0.06:  # noqa: PLR2004 - the share of rows that are repeated unchanged
                yield known[int(dice.random() * len(known))]
                continue
            row = (name, self._email(email, dice), self._phone(phone, dice))
            if chance > 0.8:  # noqa: PLR2004 - the share that may be repeated
                known.append(row)
            yield row
            if chance > 0.9998:  # noqa: PLR2004 - the share that is repeated in upper case with another phone
                known.append((name.upper(), f" {email.upper()}", phone[:-1] + str((int(phone[-1]) + 1) % 10)))

    def _persons(self, dice: random.Random) -> Iterator[tuple[str, str, str]]:
        values: dict[str, list[str]] = json.loads(files("svc_async.cli").joinpath("messy_file.json").read_bytes())
        firsts, lasts, domains, phones = (
            dice.choices(values[name], k=self.rows) for name in ("first_names", "last_names", "domains", "phones")
        )
        for first, last, domain, phone in zip(firsts, lasts, domains, phones, strict=True):
            number = int(dice.random() * 100_000)
            local = f"{first}.{last}{number % 100 or ''}".lower()
            yield f"{first} {last}", f"{local}@{domain}", f"{phone[:-5]}{number:05}"

    def _email(self, email: str, dice: random.Random) -> str:
        chance = dice.random()
        if chance < 0.08:  # noqa: PLR2004 - the share that is missing
            return ""
        if chance < 0.10:  # noqa: PLR2004 - the share that is broken
            return _choose(_BROKEN_EMAILS, dice)(email)
        return _choose(_WRITTEN_EMAILS, dice)(email)

    def _phone(self, phone: str, dice: random.Random) -> str:
        chance = dice.random()
        if chance < 0.35:  # noqa: PLR2004 - the share that is missing
            return ""
        if chance < 0.36:  # noqa: PLR2004 - the share that is broken
            return _choose(_BROKEN_PHONES, dice)(phone)
        return _choose(_WRITTEN_PHONES, dice)(phone)


def _choose(ways: Sequence[Callable[[str], str]], dice: random.Random) -> Callable[[str], str]:
    return ways[int(dice.random() * len(ways))]
