"""A small exhaustive explorer: does any order of events from honest hosts give a second effect?

Breadth first, over one operation, with the real decision core and a model of what lies outside it:

* Hosts are honest: they may start an execute within 30 s of asking, the effect lands within the timeout
  after that or never, and a receipt says only what its host knows. It may be sent at any time, or never;
  that covers a lost begin reply, a lost receipt and a host that was killed. A host that said ``unknown``
  may learn more later and say that.
* The destination is as declared. With a key it performs one effect a key and forgets the key at the end
  of its retention, counted from the first arrival. A query may miss an effect that has landed, unless the
  definition says when absence is final: then only for so long after the landing.
* The operator is honest: looks at the destination when the product says that a look proves something,
  or sees the effect at any time, and may send the same decision twice.
* Time goes on to the next moment at which anything could change. Once it may jump by an hour; once a
  backup may be restored.

Times are microseconds. Two states that differ only in what can no longer matter are one state.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from continuity.decisions import beginning, controls, events, outcomes
from continuity.decisions.beginning import Question
from continuity.decisions.clocks import Reading
from continuity.decisions.model import Operation, Workflow
from continuity.decisions.outcomes import Replayed, Report
from continuity.decisions.states import FINAL, Mode, Outcome, Status
from continuity.errors import ConflictError
from tests.unit.cases import LANDING, LEASE, T0, TIMEOUT, S, make_operation, make_vault, make_workflow, token_hash

STEP = 3_600 * S
QUIET = 120 * S

# What a host knows of its attempt.
OPEN, LANDED, NOTHING, MAY_MISS, MUST_SEE = "open", "landed", "nothing", "may miss", "must see"
KNOWING = {
    OPEN: (Outcome.UNKNOWN, Outcome.NOT_DISPATCHED, Outcome.REFUSED),
    LANDED: (Outcome.UNKNOWN, Outcome.SUCCEEDED),
    NOTHING: (),
    MAY_MISS: (Outcome.UNKNOWN, Outcome.ABSENT, Outcome.SUCCEEDED),
    MUST_SEE: (Outcome.UNKNOWN, Outcome.SUCCEEDED),
}


@dataclass(frozen=True, slots=True)
class Destination:
    """What the destination can do, truly and as declared."""

    can_query: bool = False
    is_idempotent: bool = False
    retention_us: int = 0
    absence_us: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far to look."""

    attempts: int = 3
    confirms: int = 1
    steps: int = 0
    restores: int = 0


class Host(NamedTuple):
    """A host with its one attempt; an effect of it can land before `deadline_us`."""

    mode: Mode
    deadline_us: int
    knows: str
    sent: Outcome | None = None


class Look(NamedTuple):
    """What an operator saw, and of which state of the workflow."""

    revision: int
    late_receipts: int
    happened: bool


class World(NamedTuple):
    """Everything: what the product knows, what hosts know, and the truth at the destination."""

    workflow: Workflow
    operation: Operation
    now_us: int = T0
    hosts: tuple[Host, ...] = ()
    effects: int = 0
    key_until_us: int = 0
    visible_us: int = 0
    look: Look | None = None
    confirms: int = 0
    stepped_us: int | None = None
    epoch: int = 0
    restored_us: int | None = None
    backup: tuple[Workflow, Operation] | None = None

    @property
    def vault(self):
        return make_vault(epoch=self.epoch, restored_us=self.restored_us)

    @property
    def reading(self):
        return Reading(self.now_us, self.stepped_us)


@dataclass(slots=True)
class Exploration:
    """What was found.

    Attributes:
        states: How many different states were seen.
        story: The shortest way to a second effect, or to an untrue word of the product; empty when there is none.
        seen: How often each kind of event and state occurred: an explorer that reaches nothing finds nothing.
    """

    states: int = 0
    story: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)


def explore(destination: Destination, bounds: Bounds, *, are_words_checked: bool = True) -> Exploration:
    """Look at every state within `bounds`; stop at the first second effect, or the first untrue word."""
    operation = make_operation(
        can_query=destination.can_query, is_idempotent=destination.is_idempotent,
        retention_us=destination.retention_us, absence_us=destination.absence_us,
    )  # fmt: skip
    start = World(make_workflow(operation), operation)
    ways = {essence(start): None}
    queue = deque([start])
    found = Exploration()
    while queue:
        world = queue.popleft()
        own = essence(world)
        found.seen[world.operation.status] = found.seen.get(world.operation.status, 0) + 1
        for what, after in successors(world, destination, bounds):
            found.seen[what.split(":")[0]] = found.seen.get(what.split(":")[0], 0) + 1
            key = essence(after)
            if key in ways:
                continue
            ways[key] = (what, after.now_us, own)
            if after.effects > 1 or (are_words_checked and not is_explained(after)):
                found.states = len(ways)
                found.story = story(ways, key)
                return found
            check(after)
            queue.append(after)
    found.states = len(ways)
    return found


def story(ways, key):
    """The events from the start to `key`."""
    told = []
    while ways[key] is not None:
        what, now_us, key = ways[key]
        told.append(f"{(now_us - T0) / S:.6f} s: {what}")
    return told[::-1]


def successors(world, destination, bounds):
    """Every event that could come next, in words, with the state after it."""
    yield from land(world, destination)
    if not world.operation.is_final:
        # Final is final (test_decisions_states.py): from there on only what is under way can still land.
        yield from begin(world, destination, bounds)
        yield from report(world)
        yield from operate(world, bounds)
    if bounds.steps and world.stepped_us is None and world.hosts:
        yield "clock jumps", jump(world)
    if bounds.restores:
        yield from restore(world)
    if not world.operation.is_final or any(can_land(world, host) for host in world.hosts):
        yield from go_on(world, destination)


def verdict(world, attempt_id):
    return beginning.decide_begin(
        Question(world.workflow, world.operation, world.vault, attempt_id, world.now_us, world.reading)
    )


def begin(world, destination, bounds):
    if len(world.hosts) >= bounds.attempts:
        return
    attempt_id = f"a{len(world.hosts)}"
    mode = verdict(world, attempt_id).mode
    if mode is None:
        return
    event = events.AttemptGranted(
        at_us=world.now_us, actor="cred:1", ordinal=0, attempt_id=attempt_id, run_id="r1", mode=mode,
        lease_hash=token_hash(attempt_id),
    )  # fmt: skip
    knows = OPEN if mode is Mode.EXECUTE else what_a_query_sees(world, destination)
    host = Host(mode, world.now_us + LANDING, knows)
    yield f"{mode} granted: {attempt_id}", evolved(world, event)._replace(hosts=(*world.hosts, host))


def what_a_query_sees(world, destination):
    """The earliest look is the one that misses most; a later one is as good as a later grant."""
    is_visible = world.effects and destination.absence_us is not None and world.now_us >= world.visible_us
    return MUST_SEE if is_visible else MAY_MISS


def land(world, destination):
    for number, host in enumerate(world.hosts):
        if not can_land(world, host):
            continue
        landed = with_host(world, number, knows=LANDED)
        if destination.is_idempotent and world.now_us < world.key_until_us:
            yield f"repeat absorbed: a{number}", landed
            continue
        key_until_us = world.now_us + destination.retention_us if destination.is_idempotent else 0
        yield f"effect lands: a{number}", landed._replace(
            effects=world.effects + 1, key_until_us=key_until_us,
            visible_us=world.now_us + (destination.absence_us or 0),
        )  # fmt: skip


def report(world):
    for number, host in enumerate(world.hosts):
        if host.sent not in {None, Outcome.UNKNOWN}:
            continue
        for outcome in KNOWING[host.knows]:
            if outcome is host.sent or (host.mode is Mode.QUERY and outcome is Outcome.SUCCEEDED and not world.effects):
                continue
            attempt_id = f"a{number}"
            sent = Report(attempt_id, "r1", token_hash(attempt_id), outcome, f"{attempt_id} {outcome}", "cred:1")
            decision = outcomes.decide_outcome(world.operation, sent, epoch=world.epoch, at_us=world.now_us)
            ends = outcome in {Outcome.NOT_DISPATCHED, Outcome.REFUSED}
            told = with_host(world, number, sent=outcome, knows=NOTHING if ends else host.knows)
            assert not isinstance(decision, Replayed), "each receipt of a host is sent once"
            kind = "late receipt" if isinstance(decision, events.LateReceiptKept) else "receipt"
            yield f"{kind} {outcome}: {attempt_id}", evolved(told, decision)


def operate(world, bounds):
    if world.operation.is_final or world.operation.live_attempt(world.now_us) is not None:
        return
    from_us = controls.absence_can_be_attested_from_us(world.operation, world.vault, world.reading)
    if world.confirms < bounds.confirms and (world.effects or world.now_us >= from_us):
        look = Look(world.workflow.revision, len(world.operation.late), world.effects > 0)
        if look != world.look:
            yield f"operator looks: {look.happened}", world._replace(look=look)
    if world.look is not None and world.confirms < bounds.confirms:
        yield from confirm(world, world.look)


def confirm(world, look):
    try:
        controls.require_revision(world.workflow, look.revision)
        event = controls.decide_confirm(
            world.workflow, world.operation, world.vault, world.reading, happened=look.happened,
            late_receipts=look.late_receipts, reason="I looked", actor="user:1", at_us=world.now_us,
            digest="attested" if look.happened else None,
        )  # fmt: skip
    except ConflictError:
        return
    yield (
        f"operator confirms: {look.happened}",
        evolved(world, event)._replace(confirms=world.confirms + 1),
    )


def go_on(world, destination):
    ahead = [moment_us for moment_us in moments(world, destination) if moment_us > world.now_us]
    if ahead:
        yield "time goes on", world._replace(now_us=min(ahead))


def moments(world, destination):
    """When something that depends on time alone may become otherwise, by the rules of the product and in truth."""
    operation = world.operation
    live = operation.live_attempt(world.now_us)
    if live is not None:
        yield live.lease_until_us
    yield controls.absence_can_be_attested_from_us(operation, world.vault, world.reading)
    from_us = beginning.absence_final_from_us(operation)
    if from_us is not None:
        yield from_us + 1
    end_us = beginning.window_end_us(operation)
    if end_us is not None:
        yield from (end_us - 1, end_us)
    for host in world.hosts:
        if can_land(world, host):
            yield host.deadline_us - 1
    yield from (world.key_until_us, world.visible_us)
    if world.stepped_us is not None:
        yield world.stepped_us + QUIET + (destination.absence_us or 0)


def jump(world):
    """The wall clock steps forward; what is measured in true time moves along with it."""
    return world._replace(now_us=world.now_us + STEP, stepped_us=world.now_us + STEP,
        hosts=tuple(host._replace(deadline_us=host.deadline_us + STEP) for host in world.hosts),
        key_until_us=world.key_until_us and world.key_until_us + STEP,
        visible_us=world.visible_us and world.visible_us + STEP,
    )  # fmt: skip


def restore(world):
    if world.backup is None and world.epoch == 0:
        yield "backup", world._replace(backup=(world.workflow, world.operation))
    elif world.backup is not None:
        workflow, operation = world.backup
        yield (
            "restore",
            world._replace(
                workflow=workflow, operation=operation, backup=None, look=None, epoch=1, restored_us=world.now_us
            ),
        )


def evolved(world, event):
    workflow, operation = events.evolve(world.workflow, world.operation, event, seq=world.workflow.revision + 1)
    return world._replace(workflow=workflow, operation=operation)


def with_host(world, number, **over):
    hosts = list(world.hosts)
    hosts[number] = hosts[number]._replace(**over)
    return world._replace(hosts=tuple(hosts))


def check(world):
    """What must hold in every state, besides that no effect happens twice."""
    operation = world.operation
    for attempt in operation.attempts:
        assert verdict(world, attempt.attempt_id).mode is None, "an attempt_id was granted twice"
    live = [a for a in operation.attempts if a.is_live(world.now_us) and not a.is_attested]
    assert len(live) <= 1, "two leases are live"
    if operation.status is Status.UNCERTAIN:
        assert any(attempt.is_unresolved for attempt in operation.attempts), "nobody knows why it is uncertain"
    endings = [a for a in operation.attempts if a.reply is not None and a.reply.status in FINAL]
    assert len(endings) <= 1, "two receipts finished one operation"


def is_explained(world):
    """Whether what the product says is true of the destination."""
    if world.operation.status is Status.COMPLETED:
        return world.effects > 0
    if world.operation.status is Status.REFUSED and world.operation.epoch == world.epoch:
        # After a restore an attempt that the backup forgot may still land: nobody can know.
        return world.effects == 0 and not any(can_land(world, host) for host in world.hosts)
    return True


def can_land(world, host):
    return host.mode is Mode.EXECUTE and host.knows is OPEN and world.now_us < host.deadline_us


def essence(world):
    """What of a state can still matter. Times that have passed count as passed; hosts but the last are alike."""
    operation = world.operation
    hosts = [of_host(world, number, host) for number, host in enumerate(world.hosts)]
    return (
        known(world, operation), tuple(sorted(hosts[:-1])), hosts[-1] if hosts else None,
        world.effects, ahead_us(world, world.key_until_us), ahead_us(world, world.visible_us),
        of_look(world), world.confirms, world.epoch,
        world.restored_us is not None and ahead_us(world, world.restored_us + QUIET),
        world.stepped_us is not None and ahead_us(world, world.stepped_us + QUIET + (operation.absence_us or 0)),
        world.backup and known(world, world.backup[1]),
    )  # fmt: skip


def ahead_us(world, moment_us):
    return max(0, moment_us - world.now_us)


def of_host(world, number, host):
    if host.knows is NOTHING or host.sent not in {None, Outcome.UNKNOWN}:
        return ("done",)
    deadline_us = ahead_us(world, host.deadline_us) if can_land(world, host) else 0
    return (host.mode, host.knows, deadline_us, host.sent or "", world.operation.find(f"a{number}") is not None)


def of_look(world):
    look = world.look
    if look is None:
        return None
    is_revision = world.workflow.revision == look.revision
    return (is_revision, len(world.operation.late) == look.late_receipts, look.happened)


def known(world, operation):
    """What the product knows, but for times that have passed and attempts that no longer matter."""
    if operation.is_final:
        return (operation.status,)
    unresolved = [attempt for attempt in operation.attempts if attempt.is_unresolved]
    margin_us = (operation.absence_us or 0) + 1
    return (
        operation.status, operation.epoch, len(operation.attempts), operation.has_undecided_success,
        ahead_us(world, beginning.window_end_us(operation) or 0),
        ahead_us(world, operation.may_land_until_us),
        tuple(sorted(ahead_us(world, landing_us(operation, attempt) + margin_us) for attempt in unresolved)),
        of_last(world, operation),
    )  # fmt: skip


def landing_us(operation, attempt):
    return max(operation.latest_landing_us(attempt), 0 if attempt.has_ended else attempt.lease_until_us)


def of_last(world, operation):
    last = operation.last
    if last is None:
        return None
    lease_us = 0 if last.has_ended else ahead_us(world, last.lease_until_us)
    proves_absence = (
        last.mode is Mode.QUERY
        and operation.absence_us is not None
        and last.started_us > beginning.absence_final_from_us(operation)
        and not world.reading.is_quiet(operation.absence_us, last.started_us)
    )
    return (last.mode, last.outcome, last.is_attested, last.is_unresolved, lease_us, proves_absence)


assert TIMEOUT + 30 * S == LANDING < LEASE
