"""What an agent asks, as values: what is shown to decide by, the form for the answer, or the answer that stands. Pure.

Forms are of five kinds: ``boolean`` (two buttons), ``decisions`` (one for each action that LangChain's own middleware
holds), ``fields`` (made of the schema), ``any`` (text or JSON, where everything is allowed) and ``json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.pages import forms
from app.pages.jsonview import JSONView, json_view
from app.pages.threads_decisions import Action, actions_of, decisions_names, read_decisions
from app.pages.threads_fields import ABSENT, Leaf, Node, Reading, Unfit, form_of, leaves
from app.pages.threads_sent import Sent
from app.pages.threads_view import Content, heading_of
from continuity.errors import MalformedError
from continuity.members import is_blank

JSON_FIELD: Final = "reply-json"
TEXT_FIELD: Final = "reply-text"
AS_FIELD: Final = "reply-as"
WHOLE: Final = "reply"
"""Problems that belong to no field."""


@dataclass(frozen=True, slots=True)
class AskForm:
    """The form of an open question: `node` of one made of fields, `actions` of LangChain's."""

    kind: str
    node: Node | None = None
    actions: tuple[Action, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields that may come."""
        if self.node is not None:
            return tuple(name for leaf in leaves(self.node) for name in leaf.names)
        if self.kind == "decisions":
            return decisions_names(self.actions)
        return {"boolean": ("reply-0",), "any": (AS_FIELD, TEXT_FIELD, JSON_FIELD), "json": (JSON_FIELD,)}[self.kind]

    def read(self, values: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
        """Return the reply that the fields mean, and what they lack by the names of fields."""
        if self.kind == "decisions":
            return read_decisions(self.actions, values)
        if self.kind == "any" and values.get(AS_FIELD) != "json":
            text = values.get(TEXT_FIELD, "").replace("\r\n", "\n")
            return text, {} if not is_blank(text) else {TEXT_FIELD: "Write your reply."}
        if self.kind in {"any", "json"}:
            return _json(values)
        reading = Reading(values)
        value = reading.read(self.node or _YES_OR_NO)
        return (None if value is ABSENT else value), reading.problems

    def field_of(self, path: str) -> str:
        """Return the name of the field that a path of the server's is about, or `WHOLE`."""
        if self.node is None:
            return JSON_FIELD if self.kind in {"any", "json"} else WHOLE
        found = [leaf for leaf in leaves(self.node) if path == leaf.path or path.startswith(f"{leaf.path}[")]
        return found[0].name if found else WHOLE


_YES_OR_NO: Final = Leaf("reply-0", WHOLE, "", "boolean", is_required=True)


@dataclass(frozen=True, slots=True)
class AskView:
    """One question. `shown` are the members of what the agent shows; `form` is None once it is answered."""

    waiting_id: str
    revision: int
    is_approval: bool
    heading: str
    shown: tuple[tuple[str, Content], ...]
    at: float
    schema: JSONView
    form: AskForm | None
    sent: Sent
    reply: Content | None = None
    answered: float | None = None
    answered_by: str = ""

    def problem(self, name: str) -> str:
        return self.sent.problem(self.waiting_id, name)

    def value(self, name: str, default: str = "") -> str:
        """Return what somebody wrote into a field, else what it begins with."""
        # A question that was asked again may have other fields by the same names.
        if self.sent.form != self.waiting_id or self.sent.values.get("revision") != str(self.revision):
            return default
        return self.sent.value(self.waiting_id, name)


def ask_form(question: Mapping[str, Any]) -> AskForm:
    """Return the form for a question."""
    schema, shown = question["schema"], question["shown"]
    if schema.get("type") == "boolean" and not set(schema) & {"enum", "const", "anyOf", "oneOf", "allOf"}:
        return AskForm("boolean")
    if actions := actions_of(schema, shown):
        return AskForm("decisions", actions=actions)
    if not set(schema) - {"title", "description"}:
        return AskForm("any")
    try:
        return AskForm("fields", form_of(schema, "Your reply"))
    except Unfit:
        return AskForm("json")


def ask_views(questions: Sequence[Mapping[str, Any]], sent: Sent, names: Mapping[str, str]) -> tuple[AskView, ...]:
    """Make the values; `names` are of those who have answered."""
    return tuple(_view(question, sent, names) for question in questions)


def _view(question: Mapping[str, Any], sent: Sent, names: Mapping[str, str]) -> AskView:
    form = ask_form(question) if question["state"] == "open" else None
    heading, shown = _heading(question, is_listed=form is not None and form.kind == "decisions")
    answer = question.get("reply", ABSENT)
    actor = question.get("answered_by", "")
    return AskView(
        waiting_id=question["waiting_id"], revision=question["revision"], is_approval=question["kind"] == "approval",
        heading=heading, shown=shown, at=question["at"], schema=json_view(question["schema"]), form=form, sent=sent,
        reply=None if answer is ABSENT else answer_view(answer), answered=question.get("answered"),
        answered_by=names.get(actor, actor),
    )  # fmt: skip


def answer_view(value: Any) -> Content:
    """Show an answer: a yes as a yes."""
    if isinstance(value, bool):
        return Content("Yes, approved" if value else "No, denied", None)
    return Content.of(value)


def _heading(question: Mapping[str, Any], *, is_listed: bool) -> tuple[str, tuple[tuple[str, Content], ...]]:
    """Return what to call a question, and what is shown beside; LangChain's actions stand at their own fields."""
    shown = question["shown"]
    if is_listed:
        shown = {key: value for key, value in shown.items() if key not in {"action_requests", "review_configs"}}
    return heading_of({**question, "shown": shown})


def _json(values: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    text = values.get(JSON_FIELD, "")
    if not text.strip():
        return None, {JSON_FIELD: "Write one JSON value."}
    try:
        return forms.json_value(text), {}
    except MalformedError:
        return None, {JSON_FIELD: "This is not one JSON value as AtMem keeps it. Text stands in double quotes."}
