"""Rules of the filtered stream, and the stream itself (FS-01 to FS-07)."""

from collections.abc import Sequence
from typing import Any

import attrs

from svc_async.sandbox.api.v2 import CONNECT, PAGING, connect, make_refusal, operation, paginate
from svc_async.sandbox.push.channels import StreamRule
from svc_async.sandbox.push.rule_language import MalformedRule, parse_rule
from svc_async.sandbox.refusal import Basis, invalid, refuse
from svc_async.sandbox.server.decoding import boolean, csv, json_field
from svc_async.sandbox.server.operations import Answer, Call
from svc_async.sandbox.server.reading import read_fields
from svc_async.sandbox.server.rendering import OpenResponse
from svc_async.sandbox.state.store import format_time

__all__ = ["OPERATIONS"]

_PATH = "/2/tweets/search/stream/rules"
_LONGEST = 2_048  # FS-02
_TAG_LENGTH = 200  # Unspecified: of a rule's tag; that of a subscription is public (ASM-51).

_FIELDS = (
    json_field("value", "string", required=True, rule="FS-01"),
    json_field("tag", "string", max_length=_TAG_LENGTH, rule="FS-01"),
)


@attrs.frozen
class _NewRule:
    """A rule that a request adds."""

    value: str
    tag: str | None
    at: str


@attrs.define
class _Outcome:
    """The result of adding rules: the accepted ones, and errors for the others."""

    rules: list[StreamRule] = attrs.field(factory=list[StreamRule])
    errors: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])
    invalid: int = 0

    def refuse(self, new: _NewRule, title: str, detail: str) -> None:
        self.errors.append({"title": title, "detail": f"{new.at}: {detail}", "value": new.value})


def _manage(call: Call) -> Answer:
    if len(call.sent.keys() & {"add", "delete"}) != 1:
        refuse(invalid("FS-01", "the body has either add or delete", "add"))
    return _add(call) if "add" in call.sent else _delete(call)


def _add(call: Call) -> Answer:
    result = _check_new_rules(call, _read_new_rules(call.sent["add"]))
    if result.invalid and not result.rules and result.invalid == len(result.errors):
        # Unspecified: a request with nothing but malformed rules is refused as a whole.
        error = make_refusal(400, "InvalidRules", "none of the rules can be added", rule="FS-01", basis=Basis.ASSUMED)
        error.more["errors"] = result.errors
        raise error
    if not call.params["dry_run"]:
        call.app_channels.rules.update({rule.id: rule for rule in result.rules})
    created, refused = len(result.rules), len(result.errors)
    summary = {
        "created": created,
        "not_created": refused,
        "valid": created + refused - result.invalid,
        "invalid": result.invalid,
    }
    return _answer(call, summary, result.errors, [rule.public_fields for rule in result.rules])


def _read_new_rules(given: Sequence[Any]) -> list[_NewRule]:
    added: list[_NewRule] = []
    for index, element in enumerate(given):
        at = f"add[{index}]"
        if not isinstance(element, dict):
            refuse(invalid("FS-01", "must be an object", at))
        good, findings = read_fields(_FIELDS, element, at=f"{at}.")
        refuse(*findings)
        added.append(_NewRule(good["value"], good.get("tag"), at))
    return added


def _check_new_rules(call: Call, added: Sequence[_NewRule]) -> _Outcome:
    """Accept new rules; report those that are malformed, duplicate or beyond the limit (FS-02, FS-03)."""
    result = _Outcome()
    taken = {rule.rule.text for rule in call.app_channels.rules.values()}
    for new in added:
        try:
            rule = _parse_rule(call, new)
        except MalformedRule as error:
            result.refuse(new, "InvalidRule", str(error))
            result.invalid += 1
            continue
        if rule.rule.text in taken:
            result.refuse(new, "DuplicateRule", "a rule with this value is there already")
        elif len(taken) >= call.sandbox.config.stream_rules_max:
            result.refuse(new, "RulesCapExceeded", f"there are {call.sandbox.config.stream_rules_max} rules already")
        else:
            taken.add(rule.rule.text)
            result.rules.append(rule)
    return result


def _parse_rule(call: Call, new: _NewRule) -> StreamRule:
    if len(new.value) > _LONGEST:
        raise MalformedRule(f"a rule takes up to {_LONGEST} characters")
    app_channels = call.app_channels
    rule = parse_rule(new.value, call.now)
    return StreamRule(id=app_channels.new_id("rule"), number=next(app_channels.numbers), rule=rule, tag=new.tag)


def _delete(call: Call) -> Answer:
    given, findings = read_fields((_IDS,), call.sent["delete"], at="delete.")
    refuse(*findings)
    rules = call.app_channels.rules
    ids = [str(rule_id) for rule_id in dict.fromkeys(given["ids"])]
    known = [rule_id for rule_id in ids if rule_id in rules]
    errors = [
        {"title": "RuleNotFound", "detail": "there is no such rule", "value": rule_id}
        for rule_id in ids
        if rule_id not in rules
    ]
    if not call.params["dry_run"]:
        for rule_id in known:
            del rules[rule_id]
    return _answer(call, {"deleted": len(known), "not_deleted": len(errors)}, errors)


def _answer(
    call: Call, summary: dict[str, int], errors: list[dict[str, Any]], shown: list[dict[str, str]] | None = None
) -> Answer:
    given = {"data": shown} if shown else {}
    failed = {"errors": errors} if errors else {}
    return Answer({**given, "meta": {"sent": format_time(call.now), "summary": summary}, **failed})


def _list(call: Call) -> Answer:
    wanted = call.params["ids"]
    chosen = [rule for rule in call.app_channels.rules.values() if wanted is None or rule.id in wanted]
    result, meta = paginate(call, chosen, default=None)
    return Answer({"data": [rule.public_fields for rule in result], "meta": {"sent": format_time(call.now), **meta}})


async def _connect(call: Call, response: OpenResponse) -> None:
    if not call.app_channels.rules:
        # Unspecified: status and name (ASM-60).
        raise make_refusal(409, "RuleConfigurationIssue", "the stream has no rules", rule="ASM-60")
    await connect(call, response, "filtered")


_IDS = json_field("ids", "array", required=True, min_items=1, rule="FS-01")

OPERATIONS = (
    operation(
        id="stream_rules.manage",
        method="POST",
        path=_PATH,
        handler=_manage,
        query=(
            boolean("dry_run", default=False, rule="FS-01"),
            json_field("add", "array", min_items=1, rule="FS-01"),
            json_field("delete", "object", rule="FS-01"),
        ),
        limit="stream_rules",
        rule="FS-01",
        body="object",
    ),
    operation(
        id="stream_rules.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(csv("ids", rule="FS-01"), *PAGING),
        limit="stream_rules",
        rule="FS-01",
        basis=Basis.PUBLIC,
    ),
    operation(
        id="filtered_stream.connect",
        method="GET",
        path="/2/tweets/search/stream",
        serve=_connect,
        query=CONNECT,
        limit="filtered_connects",
        rule="FS-01",
        basis=Basis.PUBLIC,
    ),
)
