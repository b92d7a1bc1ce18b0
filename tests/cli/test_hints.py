"""Each hint is given somewhere, and says what to do in the words of Python and of the command."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import svc_async
from svc_async.cli.exit_codes import explain
from svc_async.errors import AccessDenied, Hint, InvalidArgument, SvcError, UnusableFile, UnusableState, WrongState

PACKAGE = Path(svc_async.__file__).parent
OF_THE_COMMAND = re.compile(r"--[a-z]|svc-async ")
OF_PYTHON = re.compile(r"[a-z]=|\w\(|Session|open_source")


def find_given() -> frozenset[str]:
    return frozenset(
        each.attr
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "cli"
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "Hint"
    )


@pytest.mark.long("parses each module of the package")
def test_each_hint_is_given_by_the_library() -> None:
    assert find_given() == {hint.name for hint in Hint}


def test_a_hint_is_said_in_the_words_of_the_caller() -> None:
    for hint in Hint:
        error = UnusableFile("file", "people.csv", "cannot be used", hint=hint)
        in_python, in_the_command = str(error), explain(error)
        assert in_python == f"file people.csv cannot be used; {hint}"
        assert not OF_THE_COMMAND.search(hint)
        assert in_the_command.startswith("file people.csv cannot be used; ")
        assert in_the_command == in_python or not OF_PYTHON.search(in_the_command)


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("map", "must be given", hint=Hint.MAP_A_COLUMN, rule_ids=["AUTH-10"]),
        UnusableFile("file", "people.csv", "is empty", hint=Hint.DOWNLOAD_IT),
        UnusableState("shop", "is damaged", hint=Hint.READ_THE_LOG, parameter="job"),
        WrongState("the session is closed", hint=Hint.OPEN_IT),
        AccessDenied("there is no user", hint=Hint.GIVE_A_USER),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_hint_is_data_beside_the_message_and_survives_pickling(error: SvcError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert copy.hint is error.hint is not None
    assert error.hint not in str(error.args[0])
    assert str(copy) == str(error) == f"{error.args[0]}; {error.hint}"
