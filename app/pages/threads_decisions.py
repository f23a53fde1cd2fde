"""The answer that LangChain's own approval middleware takes: one decision for each action that it holds. Pure.

What is shown has ``action_requests`` (``name, args, description``) and ``review_configs``, which say for an action by
its name what may be decided: ``approve, reject, edit, respond``. A reply is ``{"decisions": […]}``, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.pages import forms
from app.pages.jsonview import JSONView, json_view
from continuity.errors import MalformedError

_ACTIONS_MOST: Final = 12
_WORDS: Final = {
    "approve": ("Approve", "It is done as it stands here."),
    "reject": ("Reject", "It is not done; the agent is told, with your words if there are any."),
    "edit": ("Approve with other arguments", "It is done with the arguments that you write."),
    "respond": ("Answer in its place", "It is not done; the agent takes your words as its result."),
}


@dataclass(frozen=True, slots=True)
class Action:
    """One action that is held. `choices` are (value, words, hint) in the order of LangChain."""

    number: int
    name: str
    description: str
    arguments: JSONView
    editable: str
    choices: tuple[tuple[str, str, str], ...]

    def field(self, what: str) -> str:
        return f"reply-{self.number}-{what}"

    @property
    def allowed(self) -> tuple[str, ...]:
        return tuple(value for value, _, _ in self.choices)


def actions_of(schema: Mapping[str, Any], shown: Mapping[str, Any]) -> tuple[Action, ...]:
    """Return the actions of a question of that middleware; none when it is another question."""
    requests = shown.get("action_requests")
    if "decisions" not in schema.get("properties", {}) or not isinstance(requests, list):
        return ()
    if not 0 < len(requests) <= _ACTIONS_MOST or not all(isinstance(each, Mapping) for each in requests):
        return ()
    configs = shown.get("review_configs")
    return tuple(_action(number, each, configs) for number, each in enumerate(requests))


def decisions_names(actions: tuple[Action, ...]) -> tuple[str, ...]:
    """Return the names of all fields."""
    return tuple(action.field(what) for action in actions for what in ("type", "message", "args"))


def read_decisions(actions: tuple[Action, ...], values: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return the reply that the fields mean, and what they lack by the names of fields."""
    problems: dict[str, str] = {}
    decisions = [_decision(action, values, problems) for action in actions]
    return {"decisions": decisions}, problems


def _action(number: int, request: Mapping[str, Any], configs: Any) -> Action:
    name, arguments = str(request.get("name", "")), request.get("args", request.get("arguments", {}))
    allowed = _allowed(name, configs)
    return Action(
        number, name, str(request.get("description") or ""), json_view(arguments),
        json.dumps(arguments, ensure_ascii=False, indent=2),
        tuple((value, *words) for value, words in _WORDS.items() if value in allowed),
    )  # fmt: skip


def _allowed(name: str, configs: Any) -> tuple[str, ...]:
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, Mapping) and config.get("action_name", config.get("name")) == name:
            found = config.get("allowed_decisions")
            known = tuple(value for value in _WORDS if value in found) if isinstance(found, list) else ()
            return known or ("approve", "reject")
    return ("approve", "reject")


def _decision(action: Action, values: Mapping[str, str], problems: dict[str, str]) -> dict[str, Any]:
    kind = values.get(action.field("type"), "")
    message = values.get(action.field("message"), "").replace("\r\n", "\n")
    if kind not in action.allowed:
        problems[action.field("type")] = "Decide about this one as well: all are answered together."
        return {}
    if kind == "edit":
        return _edited(action, values, problems)
    if kind == "respond" and not message.strip():
        problems[action.field("message")] = "Write the answer."
    said = {"message": message} if kind in {"reject", "respond"} and message.strip() else {}
    return {"type": kind, **said}


def _edited(action: Action, values: Mapping[str, str], problems: dict[str, str]) -> dict[str, Any]:
    try:
        arguments = forms.json_value(values.get(action.field("args"), ""))
    except MalformedError:
        arguments = None
    if not isinstance(arguments, Mapping):
        problems[action.field("args")] = "Must be a JSON object, as the arguments stand above."
    return {"type": "edit", "edited_action": {"name": action.name, "args": arguments}}
