"""What the forms of a workflow's controls bring, read field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.auth.csrf import FIELD
from app.body import read_form
from app.pages.explanations import Control
from continuity import limits
from continuity.errors import MalformedError
from continuity.jsontext import canonical_bytes, loads_strict

PASSWORD: Final = "password"  # noqa: S105 - a name
"""Name of the field of controls that ask for the password by themselves."""
_DIGITS: Final = 9
_RESULT: Final = "result"
_NUL: Final = "\0"
_WRITTEN: Final = {
    "effect_id": "Id of the effect", "result": "Result for the agent", "reason": "Reason", "content": "Message",
}  # fmt: skip
_REPLY: Final = "reply-"
"""How the fields of an answer begin, which have their names from what a thread asks."""
_CHOICE_CHARS: Final = 7
"""What is no longer than the longest word of a choice was not written by anybody."""
_UNKEPT: Final = "Holds a character that cannot be kept: the one with the number zero."


@dataclass(frozen=True, slots=True)
class Filled:
    """A form as somebody sent it, to be shown again with what it lacks.

    `answer` tells two forms of a control apart. `is_outdated`: it was sent from a page of an earlier session.
    """

    control: Control | None = None
    operation: str = ""
    answer: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    is_outdated: bool = False

    def is_for(self, control: Control, operation: str = "", answer: str = "") -> bool:
        """Say whether it is this form; without `answer`, whether it is any of the control's."""
        return self.control is control and self.operation == operation and answer in {"", self.answer}

    def value(self, name: str, control: Control, operation: str = "", answer: str = "") -> str:
        return self.values.get(name, "") if self.is_for(control, operation, answer) else ""

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """What somebody took the trouble to write, as labels and texts."""
        return texts_of(self.values)

    def problem(self, name: str, control: Control, operation: str = "", answer: str = "") -> str:
        return self.problems.get(name, "") if self.is_for(control, operation, answer) else ""


def fields(*names: str, secret: str = FIELD) -> dict[str, str]:
    """Return the fields of the form; only `names` may be there, and whichever is missing is empty.

    `secret` may be there too and is not returned: nothing that is shown again can hold it.

    Raises:
        MalformedError: There is another field.
    """
    given = read_form()
    if not given.keys() <= {*names, FIELD, secret}:
        raise MalformedError("The form has a field that this control does not know.")
    return {name: given.get(name, "") for name in names}


def texts_of(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what is prose or data among the fields of a form, as labels and texts."""
    replies = sorted(name for name, text in values.items() if name.startswith(_REPLY) and len(text) > _CHOICE_CHARS)
    named = [*_WRITTEN.items(), *((name, "Reply") for name in replies)]
    return tuple((label, values[name]) for name, label in named if values.get(name))


def password() -> str:
    """Return the password that the form brings, empty when it brings none."""
    return read_form().get(PASSWORD, "")


def number(given: Mapping[str, str], name: str) -> int:
    """Return a count that the page had written into the form itself.

    Raises:
        MalformedError: It is none.
    """
    text = given[name]
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        raise MalformedError(f"{name} must be a whole number.")
    return int(text)


def reason_problem(text: str) -> dict[str, str]:
    """Say what a reason lacks."""
    if not text.strip():
        return {"reason": "Say why: whoever reads the history later was not here."}
    if _NUL in text:
        return {"reason": _UNKEPT}
    if len(text) > limits.REASON_CHARS:
        return {"reason": f"At most {limits.REASON_CHARS:,} characters; these are {len(text):,}."}
    return {}


def effect_problems(given: Mapping[str, str]) -> dict[str, str]:
    """Say what the description of an effect lacks."""
    found = {}
    effect_id = given["effect_id"]
    if not effect_id.strip():
        found["effect_id"] = "Name the effect as the destination does, so that others can find it there."
    elif _NUL in effect_id:
        found["effect_id"] = _UNKEPT
    elif len(effect_id) > limits.EFFECT_ID_CHARS:
        found["effect_id"] = f"At most {limits.EFFECT_ID_CHARS:,} characters; these are {len(effect_id):,}."
    try:
        result = json_value(given[_RESULT])
    except MalformedError:
        found[_RESULT] = "This is not one JSON value as AtMem keeps it. Text stands in double quotes."
    else:
        if not found and len(canonical_bytes({"effect_id": effect_id, "result": result})) > limits.RECEIPT_BYTES:
            found[_RESULT] = f"At most {limits.RECEIPT_BYTES // 1024} KiB."
    return found


def json_value(text: str) -> Any:
    """Read any JSON value by the strict rules of the product; nothing is null.

    Raises:
        MalformedError: It is not one.
    """
    if not text.strip():
        return None
    try:
        whole = loads_strict(b'{"result":' + text.encode() + b"}")
    except UnicodeEncodeError:
        raise MalformedError("It holds half of a character.") from None
    if set(whole) != {_RESULT}:
        raise MalformedError("It must be one value.")
    return whole[_RESULT]
