"""Threads through their services: conversations, receipts, replies, rights, positions, deletion; on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from continuity.decisions.threads import bounds
from continuity.errors import (
    ConflictError,
    ForbiddenError,
    MalformedError,
    NotFoundError,
    SealedError,
    TooLargeError,
    VaultError,
)
from continuity.services.callers import CallerKind, Role
from continuity.store import schema
from continuity.store import threads_schema as tables
from continuity.thread_requests import ListThreads, Position
from tests.integration.conversing import (
    CONTENT,
    Conversing,
    advanced,
    converse,
    process_of,
    question,
    said,
)
from tests.people import change_vault

SHOWN = ("thread", "runs", "messages", "state", "queue", "waiting", "checkpoint")


@pytest.fixture
def at(store, tmp_path) -> Conversing:
    return converse(store, tmp_path)


def refused(call, *arguments, **named) -> ConflictError:
    with pytest.raises(ConflictError) as caught:
        call(*arguments, **named)
    return caught.value


def waiting_thread(at, *questions, **fields):
    thread_id, held = at.running(**fields)
    receipt = at.wait(held, *(questions or (question(),)))
    return thread_id, receipt["waiting"]


def tool(call_id="c1", **fields):
    return {"kind": "tool_started", "call_id": call_id, "tool": "lookup", **fields}


def result(call_id="c1", outcome="ok", **fields):
    return {"kind": "tool_ended", "call_id": call_id, "outcome": outcome, **fields}


class TestConversation:
    def test_a_snapshot_and_what_follows_make_every_later_snapshot(self, at):
        thread_id, held = at.running("hi")
        snapshots = [at.snapshot(thread_id)]

        def look():
            snapshots.append(at.snapshot(thread_id))

        at.append(held, *said("hello there"), tool(arguments={"order": "A-1"}))
        look()
        at.append(held, {"kind": "tool_progress", "call_id": "c1", "data": 1}, {"kind": "progress", "data": "step"})
        at.append(held, {"kind": "state_changed", "values": {"todos": ["ask"]}})
        at.say(thread_id, "quick", how="steer")
        at.say(thread_id, "next", how="follow_up")
        look()
        held.steers_read = at.heartbeat(held)["steers"][0]["number"]
        asked = at.wait(held, question(), question("t2", kind="reply"))["waiting"]
        look()
        at.reply(thread_id, asked[1]["waiting_id"], True)
        look()
        at.reply(thread_id, asked[0]["waiting_id"], False)
        second = at.claim()
        assert [(r["task"], r["reply"]) for r in second.run["replies"]] == [("t1", False), ("t2", True)]
        at.append(second, result(result={"n": 1}))
        look()
        at.settle(second, {"answer": "done"})
        third = at.claim()
        assert third.run["input"]["content"] == "next"
        at.fail(third)
        look()
        at.control(thread_id, "resume")
        at.clock.advance(1)
        at.claim()
        at.clock.advance(bounds.CLAIM_S)
        look()
        at.control(thread_id, "stop")
        last = at.snapshot(thread_id)

        for snapshot in snapshots:
            reached = advanced(snapshot, at.records(thread_id, snapshot["checkpoint"]))
            assert {name: reached[name] for name in SHOWN} == {name: last[name] for name in SHOWN}
        assert [run["state"] for run in last["runs"]] == ["waiting", "settled", "failed", "stopped"]
        assert last["messages"][-1]["content"] == "next"
        assert at.checker.check() == []

    def test_a_journal_has_no_gaps_and_pages_have_two_hundred_records(self, at):
        thread_id, held = at.running()
        for _ in range(5):
            at.append(held, *({"kind": "progress", "data": n} for n in range(60)))

        page = at.reading.journal(at.person, thread_id, Position(1, 0))

        assert (len(page["records"]), page["has_more"]) == (bounds.JOURNAL_PAGE, True)
        assert [record["seq"] for record in at.records(thread_id)] == list(range(1, 306))

    def test_a_snapshot_and_an_append_ask_the_same_of_the_database_however_long_the_journal_is(self, at):
        thread_id, held = at.running(by=at.application("s-1"))
        asked = []
        sa.event.listen(at.store.engine, "before_cursor_execute", lambda *event: asked.append(event[2]))

        def statements(work):
            asked.clear()
            work()
            return list(asked)

        def look():
            return at.snapshot(thread_id, by=at.application("s-1"))

        def step():
            return at.append(held, {"kind": "progress", "data": 1})

        before = statements(look), statements(step)
        for _ in range(15):
            at.append(held, *({"kind": "progress", "data": n} for n in range(bounds.RECORDS_PER_WRITE)))

        assert (statements(look), statements(step)) == before

    @pytest.mark.parametrize("position", [Position(2, 1), Position(0, 1), Position(1, 6)])
    def test_a_position_of_another_epoch_or_ahead_is_a_gap(self, at, position):
        thread_id, _ = at.running()
        assert at.snapshot(thread_id)["checkpoint"] == "1-5"

        gap = refused(at.reading.journal, at.person, thread_id, position)

        assert (gap.code, gap.current) == ("cursor_gap", {"checkpoint": "1-5"})

    def test_a_restore_makes_every_position_a_gap_and_hands_out_nothing_that_was_queued(self, at):
        thread_id = at.create()
        at.say(thread_id)
        before = Position.parse(at.snapshot(thread_id)["checkpoint"])
        at.home.set_vault(epoch=2)
        later = process_of(at.home)

        assert refused(later.reading.journal, at.person, thread_id, before).code == "cursor_gap"
        assert later.claim() is None
        run = later.snapshot(thread_id)["runs"][-1]
        assert (run["state"], run["reason"]) == ("interrupted", "restored")
        later.control(thread_id, "resume")
        assert later.claim().run["input"]["content"] == "hello"

    def test_older_messages_are_paged_as_they_were(self, at):
        thread_id, held = at.running("first")
        at.append(held, {"kind": "message_started", "message_id": "open"})
        for number in range(130):
            at.append(held, *said(f"n{number}"))
        snapshot = at.snapshot(thread_id)
        at.append(held, {"kind": "message_part", "message_id": "open", "text": "late"})
        at.append(held, {"kind": "message_ended", "message_id": "open"}, *said("newest"))

        messages, cursor = snapshot["messages"], snapshot["history_cursor"]
        while cursor is not None:
            page = at.reading.history(at.person, thread_id, cursor)
            messages, cursor = page["messages"] + messages, page["history_cursor"]
        reached = advanced({**snapshot, "messages": sorted(messages, key=lambda m: m["item_no"])},
                           at.records(thread_id, snapshot["checkpoint"]))  # fmt: skip

        contents = [message["content"] for message in reached["messages"]]
        assert contents == ["first", "late", *(f"n{n}" for n in range(130)), "newest"]

    def test_a_cursor_is_good_for_one_principal_one_thread_and_fifteen_minutes(self, at):
        thread_id, held = at.running()
        other_id = at.create()
        for number in range(60):
            at.append(held, *said(f"n{number}"))
        cursor = at.snapshot(thread_id)["history_cursor"]
        overseer = at.someone("eve", Role.OPERATOR)

        assert at.reading.history(at.person, thread_id, cursor)["messages"]
        broken = cursor[:-2] + ("AA" if not cursor.endswith("AA") else "BB")
        for who, which, what in (
            (overseer, thread_id, cursor), (at.person, other_id, cursor), (at.person, thread_id, broken),
            (at.person, thread_id, ""), (at.person, thread_id, "é"),
        ):  # fmt: skip
            with pytest.raises(NotFoundError):
                at.reading.history(who, which, what)
        at.clock.advance(bounds.CURSOR_S + 1)
        with pytest.raises(NotFoundError):
            at.reading.history(at.person, thread_id, cursor)

    def test_a_node_entered_again_gives_a_call_no_second_result_and_a_message_a_fresh_start(self, at):
        thread_id, held = at.running()
        begun = [
            {"kind": "message_started", "message_id": "m"},
            {"kind": "message_part", "message_id": "m", "text": "ab"},
        ]
        at.append(held, *begun, tool(), result(result=1), tool("c2"))
        at.fail(held)
        at.control(thread_id, "resume")
        again = at.claim()

        written = at.append(again, *begun, {"kind": "message_ended", "message_id": "m"}, tool(), result(result=2))
        at.append(again, {"kind": "message_part", "message_id": "m", "text": "cd"})
        at.settle(again)

        messages = {message["id"]: message for message in at.snapshot(thread_id)["messages"]}
        assert written["written"] == 3
        assert (messages["m"]["content"], messages["m"]["status"]) == ("ab", "done")
        assert messages["c1"]["result"] == 1
        assert (messages["c2"]["outcome"], messages["c2"]["status"]) == ("unknown", "incomplete")
        assert at.checker.check() == []

    @pytest.mark.parametrize(
        ("records", "error"),
        [
            ([{"kind": "message_part", "message_id": "nope", "text": "x"}], MalformedError),
            ([{"kind": "state_changed", "values": {"secret": 1}}], MalformedError),
            ([tool(f"c{n}") for n in range(bounds.OPEN_ITEMS + 1)], MalformedError),
            ([{"kind": "state_changed", "values": {"todos": "x" * 40_000}}] * 1
             + [{"kind": "message_started", "message_id": "m"}]
             + [{"kind": "message_part", "message_id": "m", "text": "x" * 60_000}] * 5, TooLargeError),
        ],
        ids=["unknown item", "undeclared state", "too many open", "too long"],
    )  # fmt: skip
    def test_a_write_that_breaks_a_rule_writes_nothing(self, at, records, error):
        thread_id, held = at.running()
        before = at.snapshot(thread_id)

        with pytest.raises(error):
            at.append(held, *said("x"), *records)

        assert at.snapshot(thread_id) == before


class TestReceipts:
    @pytest.mark.parametrize("how", ["message", "steer", "follow_up"])
    def test_the_same_request_gets_its_first_receipt_and_another_body_is_refused(self, at, how):
        thread_id = at.create() if how == "message" else at.running()[0]
        first = at.say(thread_id, "one", how=how, request_id="q")
        before = at.snapshot(thread_id)

        assert at.say(thread_id, "one", how=how, request_id="q") == first
        assert at.threads.receipt(at.person, thread_id, "q") == first
        assert refused(at.say, thread_id, "two", how=how, request_id="q").code == "request_conflict"
        assert at.snapshot(thread_id) == before

    def test_a_creation_is_found_by_its_request_and_by_its_name(self, at):
        first = at.create("mine")

        assert at.create("mine") == first
        assert at.create("other") != first
        assert at.create("mine", by=at.someone("bob")) != first
        assert [action for action, _ in at.home.actions()].count("thread.created") == 3

    def test_receipts_of_others_are_not_found(self, at):
        thread_id = at.create()
        at.say(thread_id, request_id="q")

        for who in (at.someone("eve", Role.ADMINISTRATOR, workspaces=None), at.someone("bob", Role.OPERATOR)):
            with pytest.raises(NotFoundError):
                at.threads.receipt(who, thread_id, "q")

    @pytest.mark.parametrize("how", ["append", "settle", "fail", "wait"])
    def test_a_worker_that_lost_the_answer_gets_it_again_even_after_its_claim(self, at, how):
        thread_id, held = at.running()
        arguments = {"append": said("x"), "wait": [question()]}.get(how, [])
        first = getattr(at, how)(held, *arguments, request_id="w")
        at.clock.advance(bounds.CLAIM_S + 1)
        before = at.snapshot(thread_id)

        assert getattr(at, how)(held, *arguments, request_id="w") == first
        assert at.snapshot(thread_id) == before
        stolen = replace(held, secret="s" * 43)
        with pytest.raises(ConflictError, match="another request"):
            getattr(at, how)(stolen, *arguments, request_id="w")


class TestClaims:
    def test_the_same_request_and_secret_get_the_same_claim(self, at):
        thread_id = at.create()
        at.say(thread_id)
        held = at.claim(request_id="c")

        assert at.claim(request_id="c", secret=held.secret).run == held.run
        assert refused(at.claim, request_id="c").code == "request_conflict"
        assert at.claim() is None
        at.settle(held)
        assert refused(at.claim, request_id="c", secret=held.secret).code == "claim_lost"

    def test_the_longest_waiting_run_comes_first_and_only_of_agents_that_the_credential_names(self, at):
        at.declare("other")
        first, second = at.create(), at.create(agent="other")
        for thread_id in (first, second):
            at.say(thread_id)
            at.clock.advance(1)
        narrow = replace(at.worker, agents=frozenset({"other"}), actor="cred:narrow")

        assert at.claim(by=narrow).run["thread_id"] == second
        assert at.claim(by=narrow) is None
        assert at.claim().run["thread_id"] == first

    def test_a_secret_is_nowhere_in_the_database(self, at):
        _, held = at.running()
        at.append(held, *said("x"), request_id="w")

        rows = [value for table in (*CONTENT, tables.threads) for row in at.home.rows(table) for value in row]
        assert not any(isinstance(v, bytes | str) and held.secret in (v if isinstance(v, str) else v.decode("latin1"))
                       for v in rows)  # fmt: skip

    def test_a_claim_that_ran_out_writes_nothing_and_its_run_needs_attention(self, at):
        thread_id, held = at.running()
        at.append(held, tool())
        at.clock.advance(bounds.CLAIM_S)

        for write in (
            lambda: at.heartbeat(held), lambda: at.append(held, *said("x")), lambda: at.settle(held),
            lambda: at.fail(held), lambda: at.wait(held, question()),
        ):  # fmt: skip
            assert refused(write).code == "claim_lost"
        shown = at.snapshot(thread_id)
        assert (shown["thread"]["state"], shown["runs"][-1]["reason"]) == ("needs_attention", "claim_expired")
        assert shown["messages"][-1]["status"] == "open"
        assert at.claim() is None

    def test_housekeeping_ends_claims_and_damage_keeps_no_other_waiting(self, at):
        ids = [at.running()[0] for _ in range(3)]
        at.clock.advance(bounds.CLAIM_S)
        at.damage(tables.threads, tables.threads.c.thread_id == ids[0], sealed_head=b"x")

        assert at.upkeep.expire_due() == 2
        assert at.upkeep.expire_due() == 0
        assert [at.row(thread_id).state for thread_id in ids] == ["running", "needs_attention", "needs_attention"]

    def test_a_clock_set_back_grants_no_claim_and_loses_none(self, at):
        thread_id, held = at.running()
        other = at.create()
        at.clock.set_back(3_600)
        at.say(other)

        assert refused(at.claim).code == "clock_moved_backwards"
        assert at.append(held, *said("x"))["written"] == 3
        assert at.snapshot(thread_id)["thread"]["state"] == "running"

    def test_a_damaged_thread_does_not_stop_the_queue(self, at):
        first, second = at.create(), at.create()
        for thread_id in (first, second):
            at.say(thread_id)
            at.clock.advance(1)
        at.damage(tables.threads, tables.threads.c.thread_id == first, sealed_head=b"x")

        assert at.claim().run["thread_id"] == second

    @pytest.mark.parametrize("kind", [k for k in CallerKind if k is not CallerKind.THREAD_WORKER])
    def test_only_thread_workers_work(self, at, kind):
        _, held = at.running()
        other = replace(at.worker, kind=kind)

        for call in (lambda: at.claim(by=other), lambda: at.heartbeat(held, by=other)):
            with pytest.raises(ForbiddenError):
                call()

    def test_another_workspaces_run_and_another_agents_run_are_no_runs(self, at):
        _, held = at.running()
        elsewhere = replace(at.worker, home_workspace=at.home.workspace("elsewhere"))
        narrow = replace(at.worker, agents=frozenset({"other"}))

        for who in (elsewhere, narrow):
            with pytest.raises(NotFoundError, match="no such run"):
                at.heartbeat(held, by=who)


class TestReplies:
    def test_a_boolean_wait_refuses_yes_and_one(self, at):
        thread_id, (asked,) = waiting_thread(at)

        for wrong in ("yes", 1, None, [True]):
            with pytest.raises(MalformedError, match="reply must be boolean"):
                at.reply(thread_id, asked["waiting_id"], wrong)
        assert at.reply(thread_id, asked["waiting_id"], True)["state"] == "running"

    def test_a_second_reply_gets_the_first_receipt_or_the_recorded_decision(self, at):
        thread_id, asked = waiting_thread(at, question(), question("t2"))
        waiting_id = asked[0]["waiting_id"]
        first = at.reply(thread_id, waiting_id, True)

        assert at.reply(thread_id, waiting_id, True) == first
        error = refused(at.reply, thread_id, waiting_id, False)
        assert (error.code, error.current["decision"]) == ("already_answered", True)
        at.reply(thread_id, asked[1]["waiting_id"], True)
        at.settle(at.claim())
        assert at.reply(thread_id, waiting_id, True) == first
        assert refused(at.reply, thread_id, waiting_id, False).code == "already_answered"

    def test_an_older_revision_is_refused_with_the_current_one(self, at):
        thread_id, (asked,) = waiting_thread(at)
        at.reply(thread_id, asked["waiting_id"], True)
        again = at.wait(at.claim(), question(shown={"order": "A-2"}))["waiting"][0]
        assert again == {**asked, "revision": 2}

        for revision in (1, 3):
            error = refused(at.reply, thread_id, asked["waiting_id"], True, revision=revision)
            assert (error.code, error.current["waiting_revision"]) == ("stale_waiting_revision", 2)
        assert at.reply(thread_id, asked["waiting_id"], False, revision=2)["waiting_revision"] == 2
        with pytest.raises(NotFoundError):
            at.reply(thread_id, "wr_" + "0" * 32, True)

    def test_a_stopped_run_asks_no_more(self, at):
        thread_id, (asked,) = waiting_thread(at)
        at.control(thread_id, "stop")

        assert refused(at.reply, thread_id, asked["waiting_id"], True).code == "waiting_cancelled"
        assert at.snapshot(thread_id)["waiting"] == []

    def test_a_crash_after_the_last_reply_loses_none(self, at):
        thread_id, asked = waiting_thread(at, question(), question("t2"))
        for each in asked:
            at.reply(thread_id, each["waiting_id"], True)
        at.claim()
        at.clock.advance(bounds.CLAIM_S)
        at.control(thread_id, "resume")

        assert [reply["task"] for reply in at.claim().run["replies"]] == ["t1", "t2"]

    def test_an_agent_asked_to_stop_asks_nothing(self, at):
        thread_id, held = at.running()
        at.control(thread_id, "stop")
        assert at.heartbeat(held)["stop"] is True

        assert refused(at.wait, held, question()).code == "thread_stopping"
        at.append(held, tool(), result())
        receipt = at.settle(held, {"answer": "half"})
        assert receipt["state"] == "idle"
        run = at.snapshot(thread_id)["runs"][-1]
        assert (run["state"], run["output"]) == ("stopped", {"answer": "half"})


class TestRights:
    def calls(self, at, thread_id, waiting_id, who):
        return {
            "see": [
                lambda: at.snapshot(thread_id, by=who), lambda: at.records(thread_id, by=who),
                lambda: at.reading.pulse(who, thread_id),
            ],
            "feed": [
                *(lambda how=how: at.say(thread_id, how=how, by=who) for how in ("message", "steer", "follow_up")),
                lambda: at.reply(thread_id, waiting_id, True, by=who),
            ],
            "control": [lambda how=how: at.control(thread_id, how, by=who, revision=0) for how in ("stop", "resume")],
            "delete": [lambda: at.deletions.delete(who, thread_id)],
        }  # fmt: skip

    # Who, and what is met: "ok" (whatever the thread's state then says), "no" (403) or "none" (404).
    @pytest.mark.parametrize(
        ("who", "see", "control", "feed", "delete"),
        [
            ("owner", "ok", "ok", "ok", "ok"),
            ("operator", "ok", "ok", "no", "no"),
            ("investigator", "none", "none", "none", "none"),
            ("administrator", "ok", "ok", "no", "ok"),
            ("operator elsewhere", "none", "none", "none", "none"),
            ("owner without the workspace", "none", "none", "none", "none"),
            ("application", "none", "none", "none", "none"),
            ("subject", "none", "none", "none", "none"),
        ],
    )
    def test_who_may_do_what(self, at, who, see, control, feed, delete):
        thread_id, (asked,) = waiting_thread(at)
        elsewhere = frozenset({at.home.workspace("elsewhere")})
        caller = {
            "owner": at.person,
            "operator": at.someone("o", Role.OPERATOR),
            "investigator": at.someone("i", Role.INVESTIGATOR),
            "administrator": at.someone("a", Role.ADMINISTRATOR, workspaces=None),
            "operator elsewhere": at.someone("o", Role.OPERATOR, workspaces=elsewhere),
            "owner without the workspace": replace(at.person, workspaces=elsewhere),
            "application": at.application("ada"),
            "subject": at.application("user:ada"),
        }[who]
        met = {"see": see, "control": control, "feed": feed, "delete": delete}
        for right, calls in self.calls(at, thread_id, asked["waiting_id"], caller).items():
            for call in calls:
                assert self.outcome(call) == met[right], right

    def outcome(self, call) -> str:
        try:
            call()
        except NotFoundError:
            return "none"
        except ForbiddenError:
            return "no"
        except ConflictError:
            return "ok"
        return "ok"

    def test_another_subject_and_another_application_own_nothing_of_each_other(self, at):
        mine = at.application("s-1")
        thread_id = at.create(by=mine)
        at.say(thread_id, by=mine)

        assert at.snapshot(thread_id, by=mine)["thread"]["owner"] == "shop for s-1"
        for who in (at.application("s-2"), at.application("s-1", "other-shop"), at.person):
            with pytest.raises(NotFoundError):
                at.snapshot(thread_id, by=who)
            with pytest.raises(NotFoundError):
                at.reading.pulse(who, thread_id)
        assert [t["thread_id"] for t in at.reading.page(mine, ListThreads())["threads"]] == [thread_id]
        assert at.reading.page(at.application("s-2"), ListThreads())["threads"] == []
        with pytest.raises(MalformedError, match="subject"):
            at.create(by=at.application(None))

    @pytest.mark.parametrize("kind", [k for k in CallerKind if k not in {CallerKind.PERSON, CallerKind.APPLICATION}])
    def test_other_credentials_have_no_threads(self, at, kind):
        thread_id = at.create()
        other = replace(at.worker, kind=kind)

        for call in (
            lambda: at.create(by=other), lambda: at.snapshot(thread_id, by=other), lambda: at.say(thread_id, by=other),
            lambda: at.reading.page(other, ListThreads()), lambda: at.reading.agents(other),
        ):  # fmt: skip
            with pytest.raises(ForbiddenError):
                call()

    def test_an_agent_is_for_those_whom_its_policy_names(self, at):
        worker = replace(at.worker, agents=frozenset({"private"}))
        at.work.declare(worker, at_agent("private", principals=["ada"]))
        thread_id = at.create(agent="private")

        with pytest.raises(NotFoundError, match="no such agent"):
            at.create(agent="private", by=at.someone("bob"))
        with pytest.raises(NotFoundError, match="no such agent"):
            at.create(agent="nobody")
        assert [agent["name"] for agent in at.reading.agents(at.someone("bob"))] == ["helper"]
        at.work.declare(worker, at_agent("private", principals=["bob"]))
        with pytest.raises(ForbiddenError):
            at.say(thread_id)
        assert at.snapshot(thread_id)["thread"]["name"]

    def test_a_worker_declares_only_what_its_credential_names(self, at):
        with pytest.raises(ForbiddenError):
            at.declare("stranger")

    def test_lists_show_ones_own_and_to_overseers_the_workspace(self, at):
        own = [at.create() for _ in range(5)]
        at.create(by=at.someone("bob"))
        pages, cursor = [], None
        while True:
            page = at.reading.page(at.person, ListThreads(limit=2, cursor=cursor))
            pages += [thread["thread_id"] for thread in page["threads"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break

        assert pages == own[::-1]
        everything = ListThreads(scope="workspace")
        assert len(at.reading.page(at.someone("o", Role.OPERATOR), everything)["threads"]) == 6
        with pytest.raises(ForbiddenError):
            at.reading.page(at.person, everything)
        at.say(own[0])
        running = at.reading.page(at.person, ListThreads.from_query({"state": "running"}))["threads"]
        assert [thread["thread_id"] for thread in running] == [own[0]]


def at_agent(name, **fields):
    from continuity.thread_requests import DeclareAgents  # noqa: PLC0415

    return DeclareAgents.from_json({"agents": [{"name": name, **fields}]})


class TestVault:
    def test_a_locked_vault_shows_and_does_nothing(self, at):
        thread_id, held = at.running()
        change_vault(at.store, at.home.vault, state="locked")

        for call in (
            lambda: at.snapshot(thread_id), lambda: at.say(thread_id), lambda: at.append(held, *said("x")), at.claim,
            at.create, lambda: at.reading.pulse(at.person, thread_id),
            lambda: at.reading.page(at.person, ListThreads()), lambda: at.deletions.delete(at.person, thread_id),
        ):  # fmt: skip
            with pytest.raises(SealedError):
                call()
        assert at.upkeep.expire_due() == 0

    def test_without_full_capture_nothing_begins_and_what_runs_may_end(self, at):
        thread_id, held = at.running()
        change_vault(at.store, at.home.vault, capture_mode="metadata")
        later = process_of(at.home)

        for call in (later.create, later.claim, lambda: later.say(thread_id, how="follow_up")):
            assert refused(call).code == "capture_not_full"
        later.append(held, *said("x"))
        later.settle(held, "done")
        assert later.snapshot(thread_id)["thread"]["state"] == "idle"

    def test_what_was_accepted_before_capture_changed_waits_for_it(self, at):
        idle, ended = at.running()
        at.settle(ended)
        running, held = at.running()
        at.say(running, "and then", how="follow_up")
        waiting, (asked,) = waiting_thread(at)
        failed, broken = at.running()
        at.fail(broken)
        change_vault(at.store, at.home.vault, capture_mode="off")
        later = process_of(at.home)

        for call in (
            lambda: later.say(running, how="steer"), lambda: later.say(idle), later.create,
            lambda: later.reply(waiting, asked["waiting_id"], True), lambda: later.control(failed, "resume"),
        ):  # fmt: skip
            assert refused(call).code == "capture_not_full"
        # What runs may end, be it with questions, and is kept whole; the follow-up behind it is queued and not begun.
        later.append(held, *said("the end"))
        later.settle(held)
        assert later.snapshot(running)["messages"][-2]["content"] == "the end"
        assert later.snapshot(running)["thread"]["state"] == "running"
        assert refused(later.claim).code == "capture_not_full"

        change_vault(at.store, at.home.vault, capture_mode="full")
        again = process_of(at.home)
        assert again.claim().run["input"]["content"] == "and then"
        assert again.reply(waiting, asked["waiting_id"], True)["state"] == "running"

    def test_the_first_thread_raises_the_format_and_says_so(self, at):
        at.create()
        at.create()

        assert [action for action, _ in at.home.actions()].count("vault.format_raised") == 1
        assert at.home.rows(schema.vault)[0].format == 3

    @pytest.mark.parametrize(
        ("table", "values"),
        [
            (tables.threads, {"state": "idle"}), (tables.threads, {"owner_ix": b"o" * 32}),
            (tables.threads, {"claim_until": None}), (tables.threads, {"last_seq": 3}),
            (tables.threads, {"workspace_pk": 1, "agent_ix": b"a" * 32}), (tables.threads, {"sealed_head": b"x"}),
            (tables.threads, {"deleting_at": 5}), (tables.runs, {"state": "settled"}),
            (tables.messages, {"changed_seq": 1}), (tables.messages, {"sealed_item": b"x"}),
            (tables.inputs, {"sealed_input": b"x"}), (tables.thread_states, {"sealed_state": b"x"}),
            (tables.agents, {"sealed_agent": b"x"}),
        ],
        ids=lambda value: value.name if isinstance(value, sa.Table) else "-".join(value),
    )  # fmt: skip
    def test_whoever_edits_the_database_is_found(self, at, table, values):
        thread_id, held = at.running()
        at.append(held, *said("x"), {"kind": "state_changed", "values": {"todos": [1]}})
        at.say(thread_id, how="follow_up")
        at.damage(table, **values)

        with pytest.raises((VaultError, ConflictError, NotFoundError)):
            at.snapshot(thread_id)

    def test_a_record_taken_out_or_put_in_is_found(self, at):
        thread_id, held = at.running()
        at.append(held, *said("x"))
        at.store.write(lambda c: c.execute(sa.delete(tables.journal).where(tables.journal.c.seq == 4)).rowcount)

        with pytest.raises(VaultError):
            at.records(thread_id)
        assert [finding.problem for finding in at.checker.check()] == ["record 4 of the journal is missing"]

    def test_a_waiting_request_put_back_is_found(self, at):
        thread_id, asked = waiting_thread(at, question(), question("t2"))
        at.reply(thread_id, asked[0]["waiting_id"], True)
        at.damage(tables.waiting, state="open", sealed_reply=None)

        with pytest.raises(VaultError):
            at.reply(thread_id, asked[0]["waiting_id"], False)

    def test_a_reply_of_an_earlier_revision_put_back_is_handed_to_nobody(self, at):
        thread_id, (asked,) = waiting_thread(at)
        at.reply(thread_id, asked["waiting_id"], True)
        earlier = at.home.rows(tables.waiting)[0].sealed_reply
        at.wait(at.claim(), question())
        at.reply(thread_id, asked["waiting_id"], False, revision=2)
        at.damage(tables.waiting, sealed_reply=earlier)

        assert at.claim() is None
        at.say(at.create())
        assert at.claim() is not None

    def test_what_a_thread_records_moves_the_clock_mark_and_a_look_does_not(self, at):
        thread_id, held = at.running()
        at.clock.advance(30)
        at.append(held, *said("x"))
        recorded = at.clock.now_us()
        assert at.watch.latest_us == recorded

        at.clock.advance(3_600)
        at.snapshot(thread_id, by=at.someone("o", Role.OPERATOR))
        at.reading.pulse(at.person, thread_id)
        # The look has ended the claim, which is a change; nothing after it is.
        ended = at.watch.latest_us
        at.clock.advance(3_600)
        at.snapshot(thread_id)
        assert at.watch.latest_us == ended


class TestAudit:
    def test_looks_and_controls_of_people_are_told(self, at):
        thread_id, (asked,) = waiting_thread(at)
        at.snapshot(thread_id)
        at.reply(thread_id, asked["waiting_id"], True)
        at.control(thread_id, "stop", by=at.someone("o", Role.OPERATOR))

        told = [(row.action, row.actor) for row in at.home.rows(schema.audit) if row.action.startswith("thread.")]
        assert told == [
            ("thread.created", "user:ada"), ("thread.viewed", "user:ada"), ("thread.replied", "user:ada"),
            ("thread.stopped", "user:o"),
        ]  # fmt: skip

    def test_following_a_journal_is_told_once_in_ten_minutes_and_applications_are_not(self, at):
        thread_id, _ = at.running()
        mine = at.application("s-1")
        at.snapshot(at.create(by=mine), by=mine)

        def looks():
            return [action for action, _ in at.home.actions()].count("thread.viewed")

        assert looks() == 0
        for _ in range(3):
            at.records(thread_id)
        assert looks() == 1
        at.clock.advance(601)
        at.records(thread_id)
        assert looks() == 2
        at.snapshot(thread_id)
        at.snapshot(thread_id)
        assert looks() == 4


class TestTrimming:
    def at_rest(self, at, text):
        thread_id, held = at.running()
        at.append(held, *said(text))
        at.settle(held)
        return thread_id

    def goes_on(self, at, thread_id, text):
        at.say(thread_id, text)
        held = at.claim()
        at.append(held, *said(text))
        at.settle(held)

    def test_what_is_not_over_is_not_trimmed(self, at):
        queued = at.create()
        at.say(queued)
        running, held = at.create(), at.claim()
        del running
        waiting, asked = at.running()
        at.wait(asked, question())
        failed, broken = at.running()
        at.fail(broken)
        held_up, stopped = at.running()
        at.say(held_up, "later", how="follow_up")
        at.control(held_up, "stop")
        at.settle(stopped)
        at.clock.advance(10)

        for thread_id in (held.run["thread_id"], waiting, failed, held_up):
            code = refused(at.trimming.trim, at.someone("a"), thread_id, older_than_us=at.clock.now_us() + 1).code
            assert code == "thread_busy", thread_id
            assert at.row(thread_id).trimmed_seq == 0

    def test_old_records_are_let_go_and_a_snapshot_loses_nothing(self, at, monkeypatch):
        monkeypatch.setattr("continuity.services.threads_trimming.AT_ONCE", 3)
        thread_id = self.at_rest(at, "old")
        old = Position.parse(at.snapshot(thread_id)["checkpoint"])
        at.clock.advance(10)
        cutoff = at.clock.now_us()
        self.goes_on(at, thread_id, "new")
        before, row = at.snapshot(thread_id), at.row(thread_id)

        assert at.trimming.trim(at.someone("a"), thread_id, older_than_us=cutoff) == old.seq
        assert at.trimming.trim(at.someone("a"), thread_id, older_than_us=cutoff) == 0

        assert at.snapshot(thread_id) == before
        # Nothing was said: a list shows the time at which something was.
        assert at.row(thread_id).changed_at == row.changed_at
        gap = refused(at.reading.journal, at.person, thread_id, Position(1, old.seq - 1))
        assert gap.code == "cursor_gap"
        newer = [record["seq"] for record in at.records(thread_id, str(old))]
        assert newer == list(range(old.seq + 1, row.last_seq + 1))
        assert at.checker.check() == []
        # Three at a time, each with its entry: a command that dies between leaves no record that went untold.
        assert at.home.actions().count(("thread.trimmed", "done")) == -(-old.seq // 3)

    def test_a_thread_all_of_whose_records_were_let_go_goes_on(self, at):
        thread_id = self.at_rest(at, "old")
        last = at.row(thread_id).last_seq
        at.trimming.trim(at.someone("a"), thread_id, older_than_us=at.clock.now_us() + 1)
        assert at.checker.check() == []

        self.goes_on(at, thread_id, "new")

        newer = [record["seq"] for record in at.records(thread_id, f"1-{last}")]
        assert newer == list(range(last + 1, at.row(thread_id).last_seq + 1))
        assert at.checker.check() == []
        assert at.deletions.delete(at.person, thread_id)["journal"] > 0


class Crash(Exception):
    """The process died."""


class TestDeletion:
    def idle_thread(self, at, **fields):
        thread_id, held = at.running(**fields)
        at.append(held, *said("secret words"))
        at.settle(held, {"answer": 1})
        return thread_id

    def assert_is_gone(self, at, thread_id):
        row = at.row(thread_id)
        assert (row.state, row.sealed_head) == ("deleted", None)
        assert row.sealed_tombstone is not None
        assert not any(at.home.rows(table) for table in CONTENT)
        assert [p.wrapped_key for p in at.home.rows(schema.partitions) if p.partition_id == thread_id] == [None]
        assert at.home.vault.has_shredded(thread_id)
        assert refused(at.snapshot, thread_id).code == "thread_deleted"
        assert refused(at.say, thread_id).code == "thread_deleted"
        with pytest.raises(NotFoundError):
            at.snapshot(thread_id, by=at.someone("i", Role.INVESTIGATOR))
        assert at.reading.page(at.person, ListThreads())["threads"] == []

    def test_a_deletion_leaves_a_tombstone_and_its_name_is_never_free_again(self, at):
        thread_id = self.idle_thread(at, name="mine")

        counts = at.deletions.delete(at.person, thread_id)

        assert (counts["threads"], counts["runs"], counts["journal"], counts["messages"]) == (1, 1, 9, 2)
        self.assert_is_gone(at, thread_id)
        assert refused(at.create, "mine").code == "thread_deleted"
        assert [a for a, _ in at.home.actions() if "delet" in a] == ["thread.deletion_begun", "thread.deleted"]

    def test_only_an_idle_thread_is_deleted(self, at):
        thread_id, held = at.running()

        assert refused(at.deletions.delete, at.person, thread_id).code == "thread_busy"
        at.fail(held)
        assert refused(at.deletions.delete, at.person, thread_id).code == "thread_busy"
        at.control(thread_id, "stop")
        at.deletions.delete(at.someone("a", Role.ADMINISTRATOR, workspaces=None), thread_id)
        self.assert_is_gone(at, thread_id)

    @pytest.mark.parametrize("step", ["_finish", "_end"])
    def test_an_interrupted_deletion_is_finished(self, at, monkeypatch, step):
        thread_id = self.idle_thread(at)

        def crash(*_arguments, **_named):
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(type(at.deletions), step, crash)
            with pytest.raises(Crash):
                at.deletions.delete(at.person, thread_id)
        assert refused(at.say, thread_id).code == "thread_deleted"

        assert process_of(at.home).deletions.finish_all() == 1
        assert process_of(at.home).deletions.finish_all() == 0
        self.assert_is_gone(at, thread_id)

    def test_a_deletion_that_nobody_began_is_not_finished(self, at):
        thread_id = self.idle_thread(at)
        at.damage(tables.threads, deleting_at=5)

        with pytest.raises(VaultError):
            at.deletions.finish_all()
        assert not at.home.vault.has_shredded(thread_id)

    def test_what_a_restored_database_brings_back_of_it_is_destroyed_again(self, at):
        thread_id = self.idle_thread(at)
        at.home.vault.shred(thread_id, recorded=at.home.vault.shred_list.head)
        assert refused(at.snapshot, thread_id).code == "thread_deleted"

        at.deletions.reapply(thread_id)
        at.deletions.reapply(thread_id)

        assert at.row(thread_id).state == "deleted"
        assert not any(at.home.rows(table) for table in CONTENT)
        with pytest.raises(VaultError):
            at.deletions.reapply(at.create())

    def test_a_long_journal_is_destroyed_in_steps(self, at, monkeypatch):
        monkeypatch.setattr("continuity.store.threads.DESTROYED_AT_ONCE", 3)
        thread_id = self.idle_thread(at)

        assert at.deletions.delete(at.person, thread_id)["journal"] == 9
        self.assert_is_gone(at, thread_id)
