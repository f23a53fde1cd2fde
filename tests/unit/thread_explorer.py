"""A small exhaustive explorer of threads: does any order of events break what threads.md promises?

Breadth first, over one thread, with the real decisions and a model of what lies outside them:

* Two workers. Each remembers the last claim that it was given for ever, and may write under it at any time: a worker
  that was stopped beyond its claim and woke up. It runs a tool: the call begins, and ends or not.
* The owner says things, stops, resumes and replies in any order, also in the instant in which a run ends.
* Time goes on to where a claim runs out. A backup may be restored once.

What is checked after every step stands in `broken`. Two states that differ only in counters are one state.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from continuity.decisions.threads import controls, work
from continuity.decisions.threads.entries import Entry, EntryKind
from continuity.decisions.threads.model import Change, Head
from continuity.decisions.threads.states import Cause, RequestKind, RequestState, RunState, Situation, ThreadState
from continuity.decisions.threads.work import Proof, Question
from continuity.errors import ConflictError
from tests.unit.thread_cases import ALL, T0, idle

WORKERS = ("5" * 64, "6" * 64)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How often each thing may happen."""

    messages: int = 1
    steers: int = 1
    follow_ups: int = 1
    stops: int = 1
    resumes: int = 1
    waits: int = 1
    calls: int = 1
    runs: int = 4
    restores: int = 0


class World(NamedTuple):
    """Everything: what the product knows, what workers remember, and what really happened."""

    head: Head
    now_us: int = T0
    held: tuple[Proof | None, Proof | None] = (None, None)
    writers: tuple[tuple[int, int], ...] = ()
    said: frozenset[int] = frozenset()
    placed: tuple[int, ...] = ()
    begun: frozenset[str] = frozenset()
    results: tuple[str, ...] = ()
    replied: frozenset[str] = frozenset()
    used: tuple[tuple[str, int], ...] = ()
    epoch: int = 1
    started_by: str = ""
    generations: frozenset[int] = frozenset()

    def count(self, what: str) -> int:
        return dict(self.used).get(what, 0)

    def using(self, what: str) -> tuple[tuple[str, int], ...]:
        return tuple(sorted({**dict(self.used), what: self.count(what) + 1}.items()))


@dataclass(slots=True)
class Exploration:
    """What was found.

    Attributes:
        states: How many different states were seen.
        story: The shortest way to a broken promise, and which; empty when there is none.
        seen: How often each kind of event and situation occurred: an explorer that reaches nothing finds nothing.
    """

    states: int = 0
    story: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def explore(bounds: Bounds, *, decide: Any = work) -> Exploration:
    """Look at every state within `bounds`; stop at the first broken promise. `decide` may be a spoiled core."""
    start = World(idle())
    ways: dict[Any, Any] = {essence(start): None}
    queue = deque([start])
    found = Exploration()
    while queue:
        world = queue.popleft()
        own = essence(world)
        found.seen[world.head.situation.name] += 1
        for what, after in successors(world, bounds, decide):
            found.seen[what] += 1
            problem = broken(world, what, after)
            if problem is not None:
                found.story = [*story(ways, own), what, problem]
                found.states = len(ways)
                return found
            key = essence(after)
            if key not in ways:
                ways[key] = (what, own)
                queue.append(after)
    found.states = len(ways)
    return found


def essence(world: World) -> Any:
    """Return what can still matter: no counters, no times but whether the claim is live."""
    head = replace(world.head, revision=0, clock_high_water_us=0, last_seq=0)
    live = world.head.has_expired(world.now_us)
    run = head.run
    if run is not None:
        claim = None if run.claim is None else replace(run.claim, until_us=0)
        head = replace(head, run=replace(run, queued_us=0, ended_us=None, claim=claim))
    return world._replace(head=head, now_us=int(live), started_by="", generations=frozenset())


def story(ways: dict[Any, Any], key: Any) -> list[str]:
    steps: list[str] = []
    while ways[key] is not None:
        what, key = ways[key]
        steps.append(what)
    return steps[::-1]


def successors(world: World, bounds: Bounds, decide: Any) -> Iterator[tuple[str, World]]:
    """Yield what can happen next. A refusal changes nothing and leads nowhere."""
    yield from _owner(world, bounds, decide)
    for number in range(2):
        yield from _worker(world, bounds, decide, number)
    head = world.head
    if head.run is not None and head.run.state is RunState.CLAIMED:
        yield "time: the claim runs out", world._replace(now_us=max(world.now_us, head.claim_until_us or 0))
        change = decide.decide_expiry(head, at_us=world.now_us)
        if change is not None:
            yield "sweeper: ends the claim", _apply(world, change, "expiry")
    if world.count("restores") < bounds.restores:
        yield "backup restored", world._replace(epoch=world.epoch + 1, used=world.using("restores"))


def _owner(world: World, bounds: Bounds, decide: Any) -> Iterator[tuple[str, World]]:
    # A claim that has run out ends before anything else is decided, in the same transaction.
    expired = decide.decide_expiry(world.head, at_us=world.now_us)
    base = world if expired is None else _apply(world, expired, "expiry")
    head, now = base.head, base.now_us
    ids = {"input_id": f"in_{head.input_count + 1}", "at_us": now}
    run = {"run_id": f"rn_{head.run_count + 1}", "epoch": base.epoch}
    yield from _try(base, "messages", bounds.messages, lambda: controls.decide_message(head, **ids, **run))
    yield from _try(base, "steers", bounds.steers, lambda: controls.decide_steer(head, ALL, **ids))
    yield from _try(base, "follow_ups", bounds.follow_ups, lambda: controls.decide_follow_up(head, ALL, **ids, **run))
    yield from _try(
        base, "stops", bounds.stops, lambda: controls.decide_stop(head, ALL, seen=None, actor="u", at_us=now)
    )
    yield from _try(base, "resumes", bounds.resumes, lambda: controls.decide_resume(head, seen=None, at_us=now, **run))
    for ask in head.asks:

        def reply(ask=ask) -> Change:
            return controls.decide_reply(
                head, ask.waiting_id, revision=ask.revision, digest="e" * 64, actor="u", at_us=now, **run
            )

        for what, after in _try(base, "replies", 99, reply):
            yield what, after._replace(replied=after.replied | {ask.waiting_id}, used=base.used)


def _worker(world: World, bounds: Bounds, decide: Any, number: int) -> Iterator[tuple[str, World]]:
    head, now = world.head, world.now_us
    name = f"worker {number}"
    if head.situation is Situation.QUEUED and head.run_count <= bounds.runs:
        if decide.is_older_than_restore(head, world.epoch):
            yield f"{name}: leaves it to a person", _apply(world, decide.decide_restored(head, at_us=now), "restore")
        else:
            change = decide.decide_claim(head, secret_hash=WORKERS[number], actor=f"c{number}", at_us=now)
            proof = Proof(change.head.run.run_id, change.head.generation, WORKERS[number])
            held = tuple(proof if n == number else world.held[n] for n in range(2))
            after = _apply(world, change, "claim")._replace(held=held)
            yield f"{name}: claims", after
    proof = world.held[number]
    if proof is None:
        return
    for steers_read in {0, *(steer.number for steer in head.steers)}:
        proved = replace(proof, steers_read=steers_read)
        for what, after in _writes(world, bounds, decide, proved):
            wrote = {(generation, number) for generation in after.generations}
            yield f"{name}: {what}", after._replace(writers=tuple(sorted({*after.writers, *wrote})))


def _writes(world: World, bounds: Bounds, decide: Any, proof: Proof) -> Iterator[tuple[str, World]]:
    head, now = world.head, world.now_us
    call = f"c:call-{len(world.begun)}"
    ended = frozenset(world.results)
    started = Entry(EntryKind.TOOL_STARTED, {"call_id": call[2:], "tool": "t"})
    yield from _try(
        world, "calls", bounds.calls,
        lambda: decide.decide_append(head, proof, [started], ended=ended, at_us=now), begun=call,
    )  # fmt: skip
    for key in sorted(world.begun):
        again = Entry(EntryKind.TOOL_STARTED, {"call_id": key[2:], "tool": "t"})
        result = Entry(EntryKind.TOOL_ENDED, {"call_id": key[2:], "outcome": "ok"})
        yield from _try(
            world, "", 99, lambda again=again: decide.decide_append(head, proof, [again], ended=ended, at_us=now)
        )
        yield from _try(
            world, "", 99, lambda result=result: decide.decide_append(head, proof, [result], ended=ended, at_us=now)
        )
    yield from _try(world, "", 99, lambda: decide.decide_heartbeat(head, proof, at_us=now))
    asked = [Question(f"wr_{world.count('waits')}{n}", 1, RequestKind.APPROVAL, "d" * 64) for n in range(2)]
    yield from _try(
        world, "waits", bounds.waits, lambda: decide.decide_wait(head, proof, asked, ALL, ended=ended, at_us=now)
    )
    run = {"run_id": f"rn_{head.run_count + 1}", "epoch": world.epoch}
    for what, after in _try(world, "", 99, lambda: decide.decide_settle(head, proof, ended=ended, at_us=now, **run)):
        yield what, after._replace(started_by="settle")
    for is_blocked in (False, True):
        yield from _try(
            world, "", 99,
            lambda is_blocked=is_blocked: decide.decide_fail(
                head, proof, is_blocked=is_blocked, workflow_id=None, ended=ended, at_us=now
            ),
        )  # fmt: skip


def _try(world: World, what: str, most: int, decided: Any, *, begun: str = "") -> Iterator[tuple[str, World]]:
    if what and world.count(what) >= most:
        return
    try:
        change = decided()
    except ConflictError:
        return
    if change is None:
        return
    after = _apply(world, change, what)
    yield (
        what or "writes",
        after._replace(
            used=world.using(what) if what else world.used, begun=after.begun | ({begun} if begun else frozenset())
        ),
    )


def _apply(world: World, change: Change, why: str) -> World:
    """Let a change happen: what it writes is what everybody will find."""
    placed = [record.data["input_no"] for record in change.records if record.kind == "message_added"]
    results = [f"c:{record.data['call_id']}" for record in change.records if record.kind == "tool_ended"]
    said = {queued.number for queued in change.inputs if queued.number > world.head.input_count}
    return world._replace(
        head=change.head, said=world.said | said, placed=tuple(sorted((*world.placed, *placed))),
        results=tuple(sorted((*world.results, *results))), started_by=why,
        generations=frozenset(record.generation for record in change.records if record.generation is not None),
    )  # fmt: skip


def broken(before: World, what: str, after: World) -> str | None:
    """Name the promise that a step has broken; None when all of them hold."""
    head = after.head
    generations = [generation for generation, _ in after.writers]
    if len(set(generations)) != len(generations):
        return "two workers wrote under one generation"
    queued = {each.number for each in (*head.follow_ups, *head.steers)} | set(after.placed)
    if not after.said <= queued:
        return "something that was accepted is lost"
    if len(set(after.placed)) != len(after.placed):
        return "a message stands in the transcript twice"
    if len(set(after.results)) != len(after.results):
        return "a call has two results"
    if head.state is ThreadState.IDLE and not after.begun <= set(after.results):
        return "a call has no result though the thread is idle"
    return _restarted(before, after) or _unhanded(after)


def _restarted(before: World, after: World) -> str | None:
    """Look for work that began again and nobody asked for it."""
    old, new = before.head.run, after.head.run
    if new is None or after.head.run_count == before.head.run_count:
        return None
    by = after.started_by
    if by in {"expiry", "restore", "calls", "waits", ""} or (by == "stops"):
        return "a run began and nobody asked for it"
    if by == "settle" and new.cause is not Cause.FOLLOW_UP and new.cause is not Cause.MESSAGE:
        return "a settled run began something else than a follow-up"
    is_unfinished = old is not None and old.state in {RunState.INTERRUPTED, RunState.FAILED, RunState.CLAIMED}
    if is_unfinished and by not in {"resumes", "settle"}:
        return "unfinished work was restarted"
    repeats = old is not None and new.input_no is not None and new.input_no == old.input_no
    return "an input was begun twice" if repeats and by != "resumes" else None


def _unhanded(after: World) -> str | None:
    """Look for an admitted reply that no run will be handed."""
    head = after.head
    if head.situation is Situation.WAITING:
        kept = {ask.waiting_id for ask in head.asks if ask.state is RequestState.ANSWERED}
        open_ids = {ask.waiting_id for ask in head.asks}
        return None if after.replied & open_ids <= kept else "an admitted reply is lost"
    run = head.run
    if run is not None and run.cause in {Cause.REPLY, Cause.RESUME} and run.resumes is not None:
        needed = {ask.waiting_id for ask in head.asks if ask.state is RequestState.ANSWERED}
        if run.cause is Cause.REPLY and not needed <= set(run.answers):
            return "a run is not handed the replies that it goes on with"
    return None
