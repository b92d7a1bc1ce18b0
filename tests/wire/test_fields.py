"""What to pass for a row that is no mapping."""

from dataclasses import make_dataclass
from typing import NamedTuple

import pydantic
import pytest

from svc_async.wire.records import describe_mapping


class Named(NamedTuple):
    email: str


class Model(pydantic.BaseModel):
    email: str


class Database:
    """A row of a database, such as asyncpg's, which has keys and is no mapping."""

    def keys(self) -> list[str]:
        return ["email"]


@pytest.mark.parametrize(
    ("row", "proposal"),
    [
        (Named("a@b.example"), "; pass row._asdict() for each row"),
        (Model(email="a@b.example"), "; pass row.model_dump() for each row"),
        (make_dataclass("Data", ["email"])("a@b.example"), "; pass dataclasses.asdict(row) for each row"),
        (Database(), "; pass dict(row) for each row"),
        (("a@b.example",), "; for tuples pass Rows(columns, rows)"),
        (["a@b.example"], "; for tuples pass Rows(columns, rows)"),
        ("a@b.example", ""),
        (b"a", ""),
        (5, ""),
        (Model, ""),
    ],
)
def test_the_proposal_fits_the_type_of_the_row(row: object, proposal: str) -> None:
    assert describe_mapping(row, tuples="Rows(columns, rows)") == proposal
