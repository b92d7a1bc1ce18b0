"""The client's routes, signatures, records and enums against the contract."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import attrs
import pytest

from svc_async import Session, ads
from svc_async.ads.vocabulary import MEMBERSHIP_MONTHS
from svc_async.engine.paging import CountedPager, Pager
from svc_async.open_enum import OpenEnum
from svc_async.wire.route import Listing, Route
from tests.support.client_calls import CALLS, WITHOUT_CALL, bind, has_default, read_parameters
from tests.support.contract import (
    BOUND_IDS,
    ENUMS,
    MORE_FIELDS,
    OPERATIONS,
    RECORDS,
    Row,
    build_arguments,
    find_records,
    list_bounds,
    list_parameters,
)

MODULES = [importlib.import_module(f"{ads.__name__}.{module.name}") for module in pkgutil.iter_modules(ads.__path__)]
NAMES: Mapping[str, Any] = {name: value for module in MODULES for name, value in vars(module).items()}

ROUTES = [
    (f"{module.__name__}.{name}", row)
    for module in MODULES
    for name, row in vars(module).items()
    if isinstance(row, Route | Listing)
]

SEVERAL_ENUMS = {
    "FeatureKey": ("FeatureKeyFilter", "FeatureKeyAccepted", "FeatureKeySeen", "FeatureKeyGate"),
}
"""Enums of the client that hold the values of several of the contract."""
ASSUMED_VALUES = {"AccountAppOsType": {"iOS"}, "HistoryChangeType": {"UPDATE", "DELETE"}}  # of the second, ASM-120
"""Values of enums of which the documents have one as an example."""

OWN_ENUMS: Mapping[str, type[OpenEnum]] = {
    name: kind
    for name, kind in NAMES.items()
    if isinstance(kind, type) and issubclass(kind, OpenEnum) and kind.__module__.startswith(ads.__name__)
}


def find_route(operation: str) -> tuple[str, Any]:
    """Return the one route of the client for an operation of the contract."""
    row = OPERATIONS[operation]
    wanted = row["method"], row["surface"], row["path"]
    found = [(name, route) for name, route in ROUTES if (route.method, route.surface.value, route.path) == wanted]
    assert len(found) == 1, f"operations.toml {operation} ({wanted}) is {[name for name, _ in found]} in the client"
    return found[0]


@pytest.mark.rule("GEN-01", "GEN-02", "TAP-01")
def test_each_operation_is_one_route(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation):
            find_route(operation)


def test_each_route_is_an_operation() -> None:
    known = {(row["method"], row["surface"], row["path"]) for row in OPERATIONS.values()}
    assert [name for name, row in ROUTES if (row.method, row.surface.value, row.path) not in known] == []


@pytest.mark.rule("GEN-15", "EST-01")
def test_parameters_are_sent_where_the_contract_says(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation):
            name, row = find_route(operation)
            is_object = OPERATIONS[operation].get("body_shape") == "object"

            assert getattr(row, "json", False) == is_object, f"operations.toml {operation}, {name}"


@pytest.mark.rule("GEN-03", "GEN-04")
def test_a_route_returns_the_record_of_the_contract(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation):
            response = OPERATIONS[operation]["response"]
            name, row = find_route(operation)
            if response["record"] in RECORDS and response["shape"] != "named_array":
                assert row.into.__name__ == response["record"], f"operations.toml {operation}, {name}"
                assert isinstance(row, Listing) == (response["shape"] in {"list", "array"}), (
                    f"operations.toml {operation}"
                )


@pytest.mark.rule("GEN-06", "GEN-17")
def test_the_checks_of_a_route_have_the_bounds_of_the_contract(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation):
            name, row = find_route(operation)
            values = build_arguments(operation)
            for parameter in list_parameters(OPERATIONS[operation]):
                for kind, (within, beyond) in list_bounds(parameter).items():
                    where = f"operations.toml {operation}, {parameter['name']} {kind}: {name}"
                    kept, broken = (row(**{**values, parameter["name"]: value}).problem for value in (within, beyond))
                    assert kept is None, where
                    assert broken is not None, where
                    assert broken.parameter == parameter["name"], where


@pytest.mark.parametrize("enum", OWN_ENUMS)
def test_an_enum_has_the_values_of_the_contract(enum: str) -> None:
    stated = SEVERAL_ENUMS.get(enum, (enum,))
    values = {value for name in stated for value in ENUMS[name]["values"]} | ASSUMED_VALUES.get(enum, set())
    assert {member.value for member in OWN_ENUMS[enum]} == values, f"enums.toml {enum}"


def test_a_call_has_the_parameters_of_the_contract_and_no_others(subtests: pytest.Subtests, session: Session) -> None:
    for operation in CALLS:
        with subtests.test(operation):
            taken = read_parameters(operation, session)
            listed = {row["name"] for row in list_parameters(OPERATIONS[operation])}

            assert listed - taken.keys() <= BOUND_IDS.keys(), f"operations.toml {operation}: a parameter is missing"
            assert taken.keys() <= listed, f"operations.toml {operation}: a parameter is not in the contract"


@pytest.mark.rule("HIST-02", "LI-01", "LICC-03", "LICC-04", "KW-02", "TAP-02", "VCC-01f", "VCC-05", "POLL-03", "PC-01")
def test_a_required_parameter_has_no_default(subtests: pytest.Subtests, session: Session) -> None:
    for operation in CALLS:
        with subtests.test(operation):
            taken = read_parameters(operation, session)
            for row in list_parameters(OPERATIONS[operation]):
                if row["name"] in taken and row.get("required_stated", True):
                    parameter = taken[row["name"]]
                    assert has_default(parameter) != row["required"], f"operations.toml {operation}, {row['name']}"
                    assert parameter.default in {None, inspect.Parameter.empty}, f"{operation}, {row['name']}"


def test_ids_are_positional_and_all_others_are_keyword_only(subtests: pytest.Subtests, session: Session) -> None:
    for operation in CALLS:
        with subtests.test(operation):
            subjects = {"feature_keys", "products"} if OPERATIONS[operation]["method"] != "GET" else set()
            taken = read_parameters(operation, session)
            for row in list_parameters(OPERATIONS[operation]):
                if row["name"] in taken:
                    is_named = taken[row["name"]].kind is inspect.Parameter.KEYWORD_ONLY
                    assert is_named == (row["in"] != "path" and row["name"] not in subjects), (
                        f"{operation}, {row['name']}"
                    )


@pytest.mark.rule(
    "ACC-04", "HIST-02b", "EST-01b", "FEAT-01b", "FEAT-02b", "KW-01", "LI-06", "LI-14", "LI-15", "POST-04", "POST-08"
)
def test_enums_of_parameters_are_the_contract_s(subtests: pytest.Subtests, session: Session) -> None:
    for operation in CALLS:
        with subtests.test(operation):
            taken = read_parameters(operation, session)
            for row in list_parameters(OPERATIONS[operation]):
                if "enum" in row and ENUMS[row["enum"]].get("value_type") != "int":
                    assert_enum(
                        row["enum"], taken[row["name"]].annotation, f"operations.toml {operation}, {row['name']}"
                    )


@pytest.mark.rule("GEN-08b", "GEN-09", "LIM-05")
def test_only_what_the_service_counts_has_a_total(subtests: pytest.Subtests, session: Session) -> None:
    for operation in CALLS:
        with subtests.test(operation):
            answer = inspect.signature(bind(operation, session), eval_str=True).return_annotation
            counted = any(row["name"] == "with_total_count" for row in OPERATIONS[operation].get("parameter", []))
            assert (CountedPager in iter_types(answer)) == counted, f"operations.toml {operation}"
            if OPERATIONS[operation]["response"]["shape"] == "list":
                assert {Pager, CountedPager} & {*iter_types(answer)}, f"operations.toml {operation}"


@pytest.mark.rule("ACC-09", "AM-03", "CAU-05", "DNR-03", "DNR-07", "HIST-05", "PC-03", "POLL-08", "PSET-06", "TGT-02")
@pytest.mark.parametrize("record", sorted(find_records(OPERATIONS)))
def test_a_record_has_the_fields_of_the_contract(record: str) -> None:
    model = NAMES.get(record)
    assert model is not None, f"records.toml {record} has no model"
    fields = {field.name: field for field in attrs.fields(model) if field.init and field.name != "_extra"}
    rows: dict[str, Row] = {row["name"]: row for row in RECORDS[record]["field"]}
    more = {row["name"] for row in MORE_FIELDS.get(record, [])}
    assert fields.keys() == rows.keys() | more, f"records.toml {record}"
    for name, row in rows.items():
        enum = row.get("items_enum", row.get("enum"))
        if enum and ENUMS[enum].get("value_type") != "int":
            assert_enum(enum, fields[name].type, f"records.toml {record}, {name}")
        if name.endswith("_local_micro"):
            assert int in iter_types(fields[name].type), f"records.toml {record}, {name}"


@pytest.mark.rule("CAU-06c", "DNR-04")
def test_users_stay_on_a_list_for_the_months_of_the_contract() -> None:
    fields = [field for record in RECORDS.values() for field in record["field"] if field["name"] == "expires_at"]
    rules = {field["default_rule"] for field in fields if "default_rule" in field}
    assert {rule.removesuffix(" after the request") for rule in rules} == {f"{MEMBERSHIP_MONTHS} months"}


def test_calls_that_are_left_out_exist_in_the_contract() -> None:
    assert WITHOUT_CALL.keys() <= OPERATIONS.keys()


def assert_enum(enum: str, annotation: Any, where: str) -> None:
    """Check that an annotation contains the enum of the contract, with its values."""
    found = [kind for kind in iter_types(annotation) if isinstance(kind, type) and issubclass(kind, OpenEnum)]
    assert len(found) == 1, f"{where}: {annotation} holds no enum {enum}"
    stated = SEVERAL_ENUMS.get(found[0].__name__, (found[0].__name__,))
    assert enum in stated, f"{where}: {found[0].__name__} is not {enum}"
    values = {value for name in stated for value in ENUMS[name]["values"]} | ASSUMED_VALUES.get(enum, set())
    assert {member.value for member in found[0]} == values, f"enums.toml {enum}"


def iter_types(annotation: Any) -> Iterator[Any]:
    """Yield a type and those inside it."""
    yield getattr(annotation, "__origin__", annotation)
    for inner in get_args(annotation):
        yield from iter_types(inner)
