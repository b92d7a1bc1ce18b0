"""Rules of the filtered stream, and the stream itself (FS-01 to FS-07)."""

from typing import Any

from svc_async.sandbox.api.v2 import CONNECT, PAGING, connect, make_refusal, operation, paginate
from svc_async.sandbox.push.channels import StreamRule
from svc_async.sandbox.push.rule_language import MalformedRule, parse_rule
from svc_async.sandbox.refusal import Basis, invalid, refuse
from svc_async.sandbox.server.decoding import boolean, csv, json_field
from svc_async.sandbox.server.operations import Answer, Call
from svc_async.sandbox.server.reading import read_fields, read_items
from svc_async.sandbox.server.rendering import OpenResponse
from svc_async.sandbox.state.store import format_time

__all__ = ["OPERATIONS"]

_PATH = "/2/tweets/search/stream/rules"
_TAG_LENGTH = 200  # Unspecified: of a rule's tag; that of a subscription is public (ASM-51).

_FIELDS = (
    json_field("value", "string", required=True, rule="FS-01"),
    json_field("tag", "string", max_length=_TAG_LENGTH, rule="FS-01"),
)


def _manage(call: Call) -> Answer:
    if len(call.sent.keys() & {"add", "delete"}) != 1:
        refuse(invalid("FS-01", "the body has either add or delete", "add"))
    return _add(call) if "add" in call.sent else _delete(call)


def _add(call: Call) -> Answer:
    """Accept new rules; report those that are malformed, duplicate or beyond the limit (FS-02, FS-03)."""
    given, findings = read_items(_FIELDS, call.sent["add"], at="add", rule="FS-01")
    refuse(*findings)
    app_channels, most = call.app_channels, call.sandbox.config.stream_rules_max
    taken = {rule.rule.text for rule in app_channels.rules.values()}
    added: list[StreamRule] = []
    errors: list[dict[str, Any]] = []
    for index, new in enumerate(given):
        try:
            rule = parse_rule(new["value"], call.now)
        except MalformedRule as error:
            title, detail = "InvalidRule", str(error)
        else:
            if rule.text in taken:
                title, detail = "DuplicateRule", "a rule with this value is there already"
            elif len(taken) >= most:
                title, detail = "RulesCapExceeded", f"there are {most} rules already"
            else:
                taken.add(rule.text)
                number, rule_id = next(app_channels.numbers), app_channels.new_id("rule")
                added.append(StreamRule(id=rule_id, number=number, rule=rule, tag=new.get("tag")))
                continue
        errors.append({"title": title, "detail": f"add[{index}]: {detail}", "value": new["value"]})
    malformed = sum(error["title"] == "InvalidRule" for error in errors)
    if given and malformed == len(given):
        # Unspecified: a request with nothing but malformed rules is refused as a whole.
        refusal = make_refusal(400, "InvalidRules", "none of the rules can be added", rule="FS-01", basis=Basis.ASSUMED)
        refusal.more["errors"] = errors
        raise refusal
    if not call.params["dry_run"]:
        app_channels.rules.update({rule.id: rule for rule in added})
    summary = {
        "created": len(added),
        "not_created": len(errors),
        "valid": len(given) - malformed,
        "invalid": malformed,
    }
    return _answer(call, summary, errors, [rule.public_fields for rule in added])


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
