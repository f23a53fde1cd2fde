"""Forms made of schemas: what a person fills in, and the value that it means. Pure.

A schema is a part of JSON Schema that was checked when the question was asked (docs/threads.md, "Replies"). Whatever a
form of fields cannot express is `Unfit`, and is answered as JSON. What a form means is checked by the server all the
same: nothing here decides whether a reply is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

FIELDS_MOST: Final = 40
"""A form has at most 50 fields (`app.body`), some of which are not for the reply."""
DEPTH_MOST: Final = 3
_OPTIONS_MOST: Final = 30
_LONG_CHARS: Final = 200
"""Above it, or without a bound, text gets several lines."""
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")
_SCALARS: Final = ("string", "integer", "number")
_CHOSEN: Final = "yes"

ABSENT: Final = object()
"""What a member is that is left out."""


class Unfit(Exception):
    """No form of fields can express this."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One field.

    `kind` is ``boolean, choice, choices, text, area, integer, number`` or ``lines``; `path` is how the server calls it.
    `is_required`: it must be filled in; `is_asked`: it must where the object is there that it is a member of.
    `options` are values with their words; of a ``choices`` field each has a box of its own, `name` and its number.
    """

    name: str
    path: str
    label: str
    kind: str
    is_required: bool
    hint: str = ""
    default: str = ""
    options: tuple[tuple[Any, str], ...] = ()
    is_nullable: bool = False
    is_asked: bool = True
    items: str = ""
    most_chars: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields in the form."""
        if self.kind != "choices":
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(len(self.options)))

    @property
    def must_be_written(self) -> bool:
        """Whether an empty field is no answer; where null may be one, it means that."""
        return self.is_required and not self.is_nullable


@dataclass(frozen=True, slots=True)
class Group:
    """Members of an object. `key` names them in it; those that must be filled in come first."""

    path: str
    label: str
    hint: str
    is_required: bool
    members: tuple[tuple[str, Leaf | Group], ...]
    is_nullable: bool = False


Node = Leaf | Group


@dataclass
class _Maker:
    """Numbers fields as it comes to them, so that the same schema always gives the same names."""

    definitions: Mapping[str, Any]
    made: int = 0

    def node(
        self, schema: Any, *, path: str, label: str, is_required: bool, is_asked: bool = True, depth: int = 0
    ) -> Node:
        plain, is_nullable = _plain(schema, self.definitions)
        label = str(plain.get("title") or label)
        hint = str(plain.get("description") or "")
        if plain.get("type") == "object":
            return self._group(plain, path, label, hint, is_required=is_required, depth=depth, is_nullable=is_nullable)
        kind = _kind(plain, self.definitions)
        leaf = Leaf(
            name=f"reply-{self.made}", path=path, label=label, kind=kind, is_required=is_required, is_asked=is_asked,
            hint=" ".join(part for part in (_sentence(hint), _bounds(plain, kind)) if part), is_nullable=is_nullable,
            **_details(plain, kind, self.definitions, is_required=is_required),
        )  # fmt: skip
        self.made += len(leaf.names)
        if self.made > FIELDS_MOST:
            raise Unfit
        return leaf

    def _group(
        self, plain: Mapping[str, Any], path: str, label: str, hint: str, *, is_required: bool, depth: int,
        is_nullable: bool,
    ) -> Group:  # fmt: skip
        properties = plain.get("properties", {})
        if not properties or depth >= DEPTH_MOST or set(plain.get("required", ())) - set(properties):
            raise Unfit
        asked = {key: key in plain.get("required", ()) for key in properties}
        is_there = is_required and not is_nullable
        members = tuple(
            (key, self.node(child, path=f"{path}.{key}", label=key, depth=depth + 1, is_asked=asked[key],
                            is_required=is_there and asked[key]))
            # A schema is kept with its members sorted: no order of its author's is left to follow.
            for key, child in sorted(properties.items(), key=lambda member: not asked[member[0]])
        )  # fmt: skip
        return Group(path, label, hint, is_required, members, is_nullable)


def form_of(schema: Mapping[str, Any], label: str) -> Node:
    """Return the form for a reply.

    Raises:
        Unfit: No form of fields can express the schema.
    """
    return _Maker(schema.get("$defs", {})).node(schema, path="reply", label=label, is_required=True)


def leaves(node: Node) -> Iterator[Leaf]:
    """Give every field of a form, in order."""
    if isinstance(node, Leaf):
        yield node
        return
    for _, member in node.members:
        yield from leaves(member)


@dataclass
class Reading:
    """Reads a form. `problems` are by the name of a field."""

    values: Mapping[str, str]
    problems: dict[str, str] = field(default_factory=dict)

    def read(self, node: Node) -> Any:
        """Return the value that the form means, `ABSENT` for a member that is left out."""
        if isinstance(node, Leaf):
            return self._leaf(node)
        found = {key: self.read(member) for key, member in node.members}
        given = {key: value for key, value in found.items() if value is not ABSENT}
        if (node.is_required and not node.is_nullable) or (given and not self._is_left_out(node, given)):
            return given
        return None if node.is_required else ABSENT

    def _is_left_out(self, node: Group, given: Mapping[str, Any]) -> bool:
        """Say whether a group that may be left out holds what stood there at first alone, and lacks something."""
        lacks = any(isinstance(member, Leaf) and member.is_asked and key not in given for key, member in node.members)
        return lacks and all(self.values.get(name, "") == leaf.default for leaf in leaves(node) for name in leaf.names)

    def _leaf(self, leaf: Leaf) -> Any:
        if leaf.kind == "choices":
            chosen = [self.values.get(name) == _CHOSEN for name in leaf.names]
            picked = [value for (value, _), is_chosen in zip(leaf.options, chosen, strict=True) if is_chosen]
            return picked if picked or leaf.is_required else ABSENT
        text = self.values.get(leaf.name, "").replace("\r\n", "\n")
        if not text.strip():
            return self._empty(leaf)
        return _READ[leaf.kind](self, leaf, text)

    def _empty(self, leaf: Leaf) -> Any:
        if leaf.kind == "lines" and leaf.is_required:
            return []
        if leaf.is_required and leaf.is_nullable:
            return None
        if leaf.is_required:
            self.problems[leaf.name] = "Choose one." if leaf.options or leaf.kind == "boolean" else "Fill this in."
        return ABSENT

    def _choice(self, leaf: Leaf, text: str) -> Any:
        if text.isascii() and text.isdigit() and len(text) <= 2 and int(text) < len(leaf.options):  # noqa: PLR2004
            return leaf.options[int(text)][0]
        self.problems[leaf.name] = "Choose one of these."
        return ABSENT

    def _boolean(self, leaf: Leaf, text: str) -> Any:
        if text in {"true", "false"}:
            return text == "true"
        self.problems[leaf.name] = "Choose yes or no."
        return ABSENT

    def _number(self, leaf: Leaf, text: str) -> Any:
        found = _number_of(text.strip(), is_whole=leaf.kind == "integer")
        if found is None:
            self.problems[leaf.name] = (
                "Must be a whole number." if leaf.kind == "integer" else "Must be a number, with a point and no commas."
            )
            return ABSENT
        return found

    def _lines(self, leaf: Leaf, text: str) -> Any:
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        if leaf.items == "string":
            return lines
        found = [_number_of(line, is_whole=leaf.items == "integer") for line in lines]
        if None in found:
            self.problems[leaf.name] = "One of the lines is no number that fits."
            return ABSENT
        return found


_READ: Final = {
    "boolean": Reading._boolean,  # noqa: SLF001 - a table of its own methods
    "choice": Reading._choice,  # noqa: SLF001
    "integer": Reading._number,  # noqa: SLF001
    "number": Reading._number,  # noqa: SLF001
    "lines": Reading._lines,  # noqa: SLF001
    "text": lambda _reading, _leaf, text: text,
    "area": lambda _reading, _leaf, text: text,
}


def _number_of(text: str, *, is_whole: bool) -> int | float | None:
    found = _NUMBER.fullmatch(text)
    if found is None or (is_whole and (found[2] or found[3])):
        return None
    return float(text) if found[2] or found[3] else int(text)


def _plain(schema: Any, definitions: Mapping[str, Any], left: int = 8) -> tuple[Mapping[str, Any], bool]:
    """Follow references and wrappings to what a value is; says whether null is allowed beside it."""
    if not isinstance(schema, Mapping) or left == 0:
        raise Unfit
    own = {key: value for key, value in schema.items() if key not in {"$ref", "allOf", "anyOf", "oneOf", "$defs"}}
    names = own.get("type")
    may_be_null = isinstance(names, list) and "null" in names
    if isinstance(names, list):
        others = [name for name in names if name != "null"]
        if len(others) != 1:
            raise Unfit
        own["type"] = others[0]
    inner, is_nullable = _inner(schema)
    if inner is None:
        return own, may_be_null
    found, is_inner_nullable = _plain(_target(inner, definitions), definitions, left - 1)
    return {**found, **own}, (is_nullable or is_inner_nullable) and (names is None or may_be_null)


def _inner(schema: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return the one schema that this one stands for, None when it stands for itself, and whether null may be too."""
    wrapped = [each for keyword in ("allOf", "anyOf", "oneOf") for each in schema.get(keyword, ())]
    others = [each for each in wrapped if each != {"type": "null"}]
    if "$ref" in schema:
        if wrapped:
            raise Unfit
        return {"$ref": schema["$ref"]}, False
    if not wrapped:
        return None, False
    if len(others) != 1:
        raise Unfit
    return others[0], len(others) < len(wrapped) and "allOf" not in schema


def _target(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, Mapping) and "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        found = definitions[schema["$ref"].removeprefix("#/$defs/")]
        return {**found, **rest} if isinstance(found, Mapping) else found
    return schema


def _kind(plain: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the kind of a field. Raises `Unfit`."""
    if "enum" in plain or "const" in plain:
        return "choice"
    name = plain.get("type")
    if name == "array":
        return "choices" if "enum" in _items(plain, definitions) else "lines"
    if name == "string":
        most = plain.get("maxLength")
        return "area" if most is None or most > _LONG_CHARS else "text"
    if name in {"boolean", "integer", "number"}:
        return str(name)
    raise Unfit


def _items(plain: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    items, is_nullable = _plain(plain.get("items"), definitions)
    if is_nullable or ("enum" not in items and items.get("type") not in _SCALARS):
        raise Unfit
    return items


def _details(
    plain: Mapping[str, Any], kind: str, definitions: Mapping[str, Any], *, is_required: bool
) -> dict[str, Any]:
    """Return what a field of this kind has beside the others."""
    if kind in {"choice", "choices"}:
        source = plain if kind == "choice" else _items(plain, definitions)
        values = source["enum"] if "enum" in source else [source["const"]]
        if len(values) > _OPTIONS_MOST:
            raise Unfit
        options = tuple((value, _words(value)) for value in values)
        at = next((str(n) for n, value in enumerate(values) if "default" in plain and value == plain["default"]), "")
        # What must be there and can be one thing alone is chosen already; what may be left out is never agreed to so.
        chosen = "0" if is_required and len(values) == 1 else at
        return {"options": options, "default": chosen if kind == "choice" else ""}
    default = plain.get("default")
    details: dict[str, Any] = {"default": "" if default is None else _default(default, kind)}
    if kind == "lines":
        details["items"] = _items(plain, definitions)["type"]
    if kind in {"text", "area"} and isinstance(plain.get("maxLength"), int):
        details["most_chars"] = plain["maxLength"]
    return details


def _default(value: Any, kind: str) -> str:
    if kind == "lines":
        return "\n".join(str(each) for each in value) if isinstance(value, list) else ""
    return value if isinstance(value, str) else json.dumps(value)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) and value else "nothing" if value is None else json.dumps(value)


def _sentence(text: str) -> str:
    """End what the schema says of a field, so that it does not run into its bounds."""
    return text if not text or text[-1] in ".!?:…" else f"{text}."


def _bounds(plain: Mapping[str, Any], kind: str) -> str:
    """Say in words what numbers, lengths and counts may be."""
    if kind in {"integer", "number"}:
        return _between(plain.get("minimum"), plain.get("maximum"), "")
    if kind in {"text", "area"}:
        return _between(plain.get("minLength"), plain.get("maxLength"), " characters")
    if kind == "lines":
        return " ".join(
            part for part in ("One a line.", _between(plain.get("minItems"), plain.get("maxItems"), "")) if part
        )
    return ""


def _between(least: Any, most: Any, unit: str) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}{unit}."
    if least is not None:
        return f"At least {least}{unit}."
    return "" if most is None else f"At most {most}{unit}."
