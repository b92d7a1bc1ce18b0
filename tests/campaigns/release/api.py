"""The public Python API as names with signatures, and what a change of them breaks.

What docs/api lists is public. `api.json` has the surface of the last release, a name a line; griffe finds what breaks.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import griffe

ROOT = Path(__file__).parents[3]
FILE = Path(__file__).with_name("api.json")
_DIRECTIVE = re.compile(r"^::: (svc_async[\w.]*)$", re.MULTILINE)

Surface = Mapping[str, Mapping[str, Any]]
"""For each public name its kind, and what callers depend on."""


@attrs.frozen(order=True)
class Break:
    """A change after which code of a user may fail.

    Attributes:
        name: the path of what changed, such as `svc_async.session.Session.account`.
        explanation: what changed.
    """

    name: str
    explanation: str

    def is_in(self, notes: str) -> bool:
        """Return whether release notes name it: the class, function or method, in backticks."""
        parts = [part.partition("(")[0] for part in self.name.split(".")]
        return any(re.search(rf"`[^`]*\b{re.escape(part)}\b[^`]*`", notes) for part in parts[-2:])


def read_surface(root: Path = ROOT) -> Surface:
    """Return the surface of the code."""
    package = griffe.load("svc_async", search_paths=[root], resolve_aliases=False)
    listed = {name for page in (root / "docs" / "api").rglob("*.md") for name in _DIRECTIVE.findall(page.read_text())}
    found: dict[str, Mapping[str, Any]] = {}
    for name in package.exports or ():
        if str(name) in package.members:
            found[f"svc_async.{name}"] = {"kind": "attribute", "value": _get_target(package.members[str(name)])}
    for path in sorted(listed):
        part = package[path.removeprefix("svc_async.")]
        target = part.final_target if part.is_alias else part
        found.update(_describe(target))
    return dict(sorted(found.items()))


def _get_target(member: griffe.Object | griffe.Alias) -> str:
    return str(member.target_path if isinstance(member, griffe.Alias) else member.path)


def _describe(thing: griffe.Object | griffe.Alias, path: str | None = None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what there is of a thing and its members, those that it inherits from a class of the SDK among them."""
    path = path or thing.path
    if isinstance(thing, griffe.Function):
        parameters = [described for each in thing.parameters for described in _describe_parameter(each, thing)]
        yield path, {"kind": "function", "parameters": parameters, "returns": _text(thing.returns)}
    elif isinstance(thing, griffe.Attribute):
        yield path, {"kind": "attribute", "annotation": _text(thing.annotation), "value": _text(thing.value)}
    elif isinstance(thing, griffe.Class):
        yield path, {"kind": "class", "bases": [str(base) for base in thing.bases]}
    if isinstance(thing, griffe.Class):
        for name, inherited in thing.inherited_members.items():
            if not name.startswith("_"):
                yield from _describe(inherited.final_target, f"{path}.{name}")
    for name, member in thing.members.items():
        if not member.is_alias and not member.is_module and (name == "__init__" or not name.startswith("_")):
            yield from _describe(member, f"{path}.{name}")


def _describe_parameter(parameter: griffe.Parameter, function: griffe.Object) -> Iterator[Sequence[str | None]]:
    """Yield the name, kind, type and default of a parameter, or of each keyword of a typed dictionary in its place."""
    kind, annotation = parameter.kind, parameter.annotation
    if isinstance(annotation, griffe.ExprSubscript) and annotation.canonical_path == "typing.Unpack":
        assert isinstance(annotation.slice, griffe.Expr)
        yield from _describe_keywords(function.modules_collection, annotation.slice.canonical_path)
    else:
        yield [parameter.name, kind.value if kind else "", _text(annotation), _text(parameter.default)]


def _describe_keywords(modules: griffe.ModulesCollection, path: str) -> Iterator[Sequence[str | None]]:
    kind = modules[path]
    for base in kind.bases:
        if base.canonical_path != "typing.TypedDict":
            yield from _describe_keywords(modules, base.canonical_path)
    for name, field in kind.attributes.items():
        yield [name, griffe.ParameterKind.keyword_only.value, _text(field.annotation), "..."]


def _text(expression: object) -> str | None:
    return None if expression is None else str(expression)


def find_breaks(old: Surface, new: Surface) -> list[Break]:
    """Return what breaks between two surfaces."""
    found = griffe.find_breaking_changes(_build(old), _build(new))
    return sorted(
        {Break(each.obj.path, f"{each.obj.path}: {each.kind.value} {each.details}".rstrip()) for each in found}
    )


def _build(surface: Surface) -> griffe.Module:
    """Return the objects of griffe that a surface describes; modules are what is in no surface."""
    root = griffe.Module("svc_async")
    for path in sorted(surface):
        parent: Any = root
        *folders, name = path.split(".")[1:]
        for folder in folders:
            if folder not in parent.members:
                parent.set_member(folder, griffe.Module(folder))
            parent = parent.members[folder]
        parent.set_member(name, _make(name, surface[path]))
    return root


def _make(name: str, described: Mapping[str, Any]) -> griffe.Object:
    match described["kind"]:
        case "class":
            return griffe.Class(name, bases=list(described["bases"]))
        case "function":
            parameters = [
                griffe.Parameter(each, kind=griffe.ParameterKind(kind), annotation=annotation, default=default)
                for each, kind, annotation, default in described["parameters"]
            ]
            return griffe.Function(name, parameters=griffe.Parameters(*parameters), returns=described["returns"])
        case _:
            return griffe.Attribute(name, annotation=described.get("annotation"), value=described.get("value"))


def dump(surface: Surface) -> str:
    """Return a surface as JSON, a name a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(described)}" for name, described in surface.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load(text: str) -> Surface:
    """Return the surface that `dump` wrote."""
    surface: Surface = json.loads(text)
    return surface
