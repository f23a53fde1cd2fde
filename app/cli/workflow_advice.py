"""Why a workflow stands where it stands, and the commands with which a person goes on. Pure: a view in, words out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.cli.terminal import plain
from continuity import limits
from continuity.decisions.phases import Phase
from continuity.decisions.states import Status

View = Mapping[str, Any]
_OVER: Final = frozenset({Phase.DONE, Phase.ENDED})
_CONFIRM: Final = (
    "atmem continuity confirm {id} --operation {name} --happened --effect-id EFFECT --reason WHY",
    "atmem continuity confirm {id} --operation {name} --did-not-happen --reason WHY",
    "atmem continuity abandon {id} --operation {name} --reason WHY",
)


@dataclass(frozen=True, slots=True)
class Advice:
    """One sentence on why, and what to do: commands, or one sentence where there is nothing to do."""

    why: str
    commands: tuple[str, ...]


def advise(view: View) -> Advice:
    """Return the advice for a workflow's view."""
    following = next((item for item in view["operations"] if item["status"] != Status.COMPLETED), None)
    why, commands = _BY_PHASE[Phase(view["phase"])]
    if following is None:
        return Advice(why, commands)
    if view["phase"] == Phase.DECISION:
        why = _why_a_person(view, following)
    words = {"id": view["workflow_id"], "name": following["name"], "status": following["status"]}
    return Advice(why.format(**words), tuple(command.format(**words) for command in commands))


def configured(before: View, view: View, *, is_enabled: bool) -> str:
    """Say what enabling or pausing came to, by the views before and after it."""
    if view["revision"] != before["revision"]:
        done = "Recovery is enabled." if is_enabled else "New attempts are paused."
        return f"{done} It is over: workers get the saved results." if view["phase"] in _OVER else done
    if view["phase"] in _OVER:
        return "Nothing was changed: it is over."
    if is_enabled:
        return "Nothing was changed: recovery was enabled already."
    never = view["phase"] == Phase.REVIEW
    return f"Nothing was changed: {'it was never enabled' if never else 'new attempts were paused already'}."


def named(view: View) -> str:
    """Return key and id of a workflow, for a line about it."""
    return f"{plain(view['workflow_key'])} ({view['workflow_id']})"


def _why_a_person(view: View, operation: View) -> str:
    """Say which question of operation `name` only a person can answer, in the order of the decision table."""
    if len(operation["attempts"]) >= limits.ATTEMPTS_PER_OPERATION:
        return "all attempts of {name} are used"
    if view["revision"] + 2 > limits.REVISIONS_PER_WORKFLOW:
        return "the workflow has used up its changes"
    if any(late["proved"] and (late["receipt"] or {}).get("outcome") == _SUCCEEDED for late in operation["late"]):
        return "a late receipt of {name} claims success; compare it with the destination"
    if operation["status"] == Status.PENDING:
        return "a backup was restored; {name} may have been done in the time that is missing"
    capability = operation["capability"]
    if capability == "idempotent" or "idempotent" in capability:
        return "{name} may have happened, and the destination no longer honours its key"
    if capability == "query" or "query" in capability:
        return "a backup was restored while {name} was open; it may have happened"
    return "{name} may have happened, and the destination can neither be asked nor recognise a repeat"


_SUCCEEDED: Final = "confirmed_succeeded"
_BY_PHASE: Final[Mapping[Phase, tuple[str, tuple[str, ...]]]] = {
    Phase.REVIEW: (
        "nobody has reviewed and enabled it yet",
        ("atmem continuity enable {id}",),
    ),
    Phase.PAUSED: ("somebody has paused it", ("atmem continuity enable {id}",)),
    Phase.READY: ("{name} was not done yet", ("nothing: the next worker that asks may do it",)),
    Phase.RUNNING: ("a worker is at {name}", ("nothing: wait for its receipt, or for the end of its lease",)),
    Phase.RESUMABLE: (
        "{name} may have happened, its receipt is missing",
        ("nothing: the next worker asks the destination, or repeats under the same key",),
    ),
    Phase.DECISION: ("only a person can say how it goes on", _CONFIRM),
    Phase.DONE: ("every operation is completed", ("nothing: whoever runs it again gets the saved results",)),
    Phase.ENDED: ("{name} is {status} and stays so", ("nothing: what is still wanted needs a new workflow key",)),
}
