"""Conversations as people meet them on their pages: the list, what was said and done, and where it stands."""

from __future__ import annotations

import html
import re

import pytest
import sqlalchemy as sa

from continuity.errors import MalformedError
from continuity.services.callers import Role
from continuity.stops import RecoveryBlocked
from continuity.store import schema
from tests.integration.conversing import question, said
from tests.integration.tampering import tamper
from tests.web.pages import HTMX, get
from tests.web.talks import AGENT, Talks

THREADS = "/threads"
MINUTE_S = 61
HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "</textarea></pre>", "\u202eevil\u202c",
    "zero\u200bwidth", "\x1b[31mred", "a" * 10_000, "javascript:alert(1)", '"><div hx-get=/account>',
]  # fmt: skip


@pytest.fixture
def ava(site):
    site.person("ava", Role.ADMINISTRATOR)
    return site.signed_in("ava")


@pytest.fixture
def talks(site, ava):
    return Talks(site, "ava")


def looks(site):
    """Return how often somebody is in the audit log for having looked at a thread."""
    rows = site.wiring.store.read(
        lambda connection: connection.execute(
            sa.select(schema.audit.c.action).where(schema.audit.c.action == "thread.viewed")
        ).all()
    )
    return len(rows)


def interrupted(talks, **fields):
    thread_id, held = talks.running(**fields)
    talks.fail(held)
    return thread_id


class TestList:
    def test_an_empty_list_says_what_to_do_first(self, ava):
        page = get(ava, THREADS)

        assert "No conversations yet" in page.text
        assert "atmem threads worker" in page.text

    def test_once_a_worker_offers_an_agent_it_says_so_by_itself(self, site, ava):
        mark = re.search(r"live\?mark=([0-9a-f]+)", get(ava, THREADS).text)[1]
        assert get(ava, f"{THREADS}/live?mark={mark}", **HTMX).status_code == 204

        Talks(site, "ava")

        assert "A worker offers order_support" in get(ava, f"{THREADS}/live?mark={mark}", **HTMX).text
        assert f'<option value="{AGENT}">' in get(ava, THREADS).text

    def test_two_agents_are_offered_as_two(self, site, ava):
        Talks(site, "ava", agents=(AGENT, "travel_desk"))

        page = get(ava, THREADS)

        assert f"Workers offer {AGENT}, travel_desk." in page.text
        assert "</a> with one of them, above." in page.text

    def test_states_are_filters_and_what_wants_somebody_comes_first(self, ava, talks):
        interrupted(talks, name="broken")
        talks.asked(question(), name="asking")
        talks.create("quiet")
        page = get(ava, THREADS)

        tabs = re.findall(r'id="tab-(\w+)"', page.text)
        assert tabs[:5] == ["needs_attention", "waiting", "running", "idle", "all"]
        assert "1 conversation needs attention" in page.text
        assert "1 open question" in page.text
        for state, name in (("needs_attention", "broken"), ("waiting", "asking"), ("idle", "quiet")):
            found = names(get(ava, f"{THREADS}?state={state}"))
            assert found == [name], state

    def test_an_administrator_sees_everybodys_and_his_own_alone_on_request(self, site, ava, talks):
        site.person("bob", Role.INVESTIGATOR)
        talks.create("mine")
        talks.create("his", by=talks.person_of("bob"))
        site.clock.advance(MINUTE_S)
        bob = site.signed_in("bob")

        assert names(get(ava, THREADS)) == ["his", "mine"]
        assert names(get(ava, f"{THREADS}?scope=own")) == ["mine"]
        assert names(get(bob, THREADS)) == ["his"]
        assert "tab-everybody" not in get(bob, THREADS).text
        assert get(bob, f"{THREADS}?scope=workspace").status_code == 403

    def test_it_goes_on_page_by_page_newest_first(self, ava, talks):
        for number in range(60):
            talks.create(f"talk-{number}")
        seen, path = [], THREADS
        while path:
            page = get(ava, path)
            seen += names(page)
            found = re.search(r'rel="next" href="([^"]+)"', page.text)
            path = found and html.unescape(found[1])

        assert seen == [f"talk-{number}" for number in reversed(range(60))]

    @pytest.mark.parametrize("cursor", ["x", "A" * 80])
    def test_a_place_that_is_no_more_leads_to_the_newest(self, ava, talks, cursor):
        reply = get(ava, f"{THREADS}?state=idle&cursor={cursor}")

        assert (reply.status_code, reply.headers["Location"]) == (303, f"{THREADS}?state=idle")
        assert "These are the newest threads" in get(ava, THREADS).text

    @pytest.mark.parametrize("query", ["state=x", "scope=x", "limit=9", "q=a", "state=idle&state=idle"])
    def test_what_it_does_not_know_is_refused(self, ava, query):
        assert get(ava, f"{THREADS}?{query}").status_code == 400

    def test_a_poll_is_answered_only_when_something_changed(self, ava, talks):
        talks.create("one")
        page = get(ava, THREADS)
        mark = re.search(r"live\?mark=([0-9a-f]+)", page.text)[1]
        assert get(ava, f"{THREADS}/live?mark={mark}", **HTMX).status_code == 204

        talks.create("two")

        fragment = get(ava, f"{THREADS}/live?mark={mark}", **HTMX)
        assert names(fragment) == ["two", "one"]
        assert "<html" not in fragment.text
        assert fragment.text.strip() in get(ava, THREADS).text

    def test_what_does_not_open_is_a_line_with_its_key_and_hides_nothing_else(self, site, ava, talks):
        broken, whole = talks.create("broken"), talks.create("whole")
        tamper(
            site.wiring.store,
            f"UPDATE continuity_threads SET sealed_head = zeroblob(80) WHERE thread_id = '{broken}'",
        )

        page = get(ava, THREADS)
        shown = get(ava, f"{THREADS}/{broken}")

        assert names(page) == ["whole", "Unreadable (key 1)"]
        assert shown.status_code >= 500
        assert "This conversation cannot be read" in shown.text
        assert broken in shown.text
        assert get(ava, f"{THREADS}/{whole}").status_code == 200

    def test_a_locked_vault_is_said_and_nothing_is_shown(self, site, ava, talks):
        thread_id = talks.create("secret-name")
        site.wiring.vault.lock()

        for path in ("", f"/{thread_id}", f"/{thread_id}/live", f"/{thread_id}/acts"):
            page = get(ava, THREADS + path)
            assert page.status_code == 423, path
            assert "The vault is locked" in page.text
            assert "secret-name" not in page.text


def names(page):
    return re.findall(r'table-main" id="to-th_[0-9a-f]{32}" href="[^"]+">([^<]+)<', page.text)


class TestConversation:
    def test_what_was_said_and_done_is_to_be_read(self, ava, talks):
        thread_id, held = talks.running("Where is it?", name="monday")
        talks.append(
            held, *said("On its way."),
            {"kind": "tool_started", "call_id": "c1", "tool": "lookup", "arguments": {"order": "argument-17"}},
            {"kind": "tool_ended", "call_id": "c1", "outcome": "ok", "result": "result-17"},
            {"kind": "state_changed", "values": {"todos": [{"content": "pack it", "status": "in_progress"}]}},
        )  # fmt: skip

        page = get(ava, f"{THREADS}/{thread_id}")

        for words in ("Where is it?", "On its way.", "argument-17", "result-17", "pack it", "under way", "monday"):
            assert words in page.text

    def test_state_that_is_not_declared_any_more_is_not_shown(self, ava, talks):
        thread_id, held = talks.running()
        talks.append(held, {"kind": "state_changed", "values": {"note": "secret-note", "order": "17"}})

        assert "secret-note" in get(ava, f"{THREADS}/{thread_id}").text
        talks.declare(state_keys=["order"])
        assert "secret-note" not in get(ava, f"{THREADS}/{thread_id}").text

    @pytest.mark.parametrize("text", HOSTILE, ids=ascii)
    def test_whatever_is_said_is_text(self, ava, talks, text):
        thread_id, held = talks.running(text)
        talks.append(
            held, *said(text), {"kind": "tool_started", "call_id": "c1", "tool": text[:100], "arguments": {text: text}},
            {"kind": "tool_progress", "call_id": "c1", "data": text},
            {"kind": "state_changed", "values": {"note": text, "todos": [{"content": text, "status": text}]}},
        )  # fmt: skip
        talks.wait(held, question(shown={"question": text, "more": text}, kind="reply", schema={"title": text}))

        page = get(ava, f"{THREADS}/{thread_id}")

        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img" not in page.text.replace('<img src="/static/', "")
        assert "hx-get=/account" not in page.text.replace("&gt;&lt;div hx-get=/account&gt;", "")
        assert not re.search("[\u202e\u200b\x1b]", page.text)

    def test_both_parts_are_in_the_page_as_the_polls_give_them(self, ava, talks):
        thread_id, held = talks.running()
        talks.append(held, *said("here"))
        page = plain(get(ava, f"{THREADS}/{thread_id}"))

        for part in ("live", "acts"):
            fragment = get(ava, f"{THREADS}/{thread_id}/{part}?mark=x", **HTMX)
            assert plain(fragment).strip() in page, part

    def test_polls_are_answered_only_when_their_part_changed(self, ava, talks):
        thread_id, held = talks.running()
        page = get(ava, f"{THREADS}/{thread_id}")
        live, acts = (re.search(rf"{part}\?mark=([0-9-]+)", page.text)[1] for part in ("live", "acts"))
        ask = {part: f"{THREADS}/{thread_id}/{part}?mark={mark}" for part, mark in (("live", live), ("acts", acts))}
        assert [get(ava, path, **HTMX).status_code for path in ask.values()] == [204, 204]

        talks.append(held, *said("a part"))
        assert [get(ava, path, **HTMX).status_code for path in ask.values()] == [200, 204]
        talks.settle(held)
        assert [get(ava, path, **HTMX).status_code for path in ask.values()] == [200, 200]

    def test_every_look_is_an_entry_first_and_polls_are_one_in_ten_minutes(self, site, ava, talks):
        thread_id, held = talks.running()
        before = looks(site)
        get(ava, f"{THREADS}/{thread_id}")
        assert looks(site) == before + 1

        for number in range(3):
            talks.append(held, *said(f"part {number}"))
            get(ava, f"{THREADS}/{thread_id}/live?mark=x", **HTMX)
        assert looks(site) == before + 1
        site.clock.advance(601)
        get(ava, f"{THREADS}/{thread_id}/live?mark=x", **HTMX)
        assert looks(site) == before + 2

    def test_a_look_that_cannot_be_written_down_shows_nothing(self, site, ava, talks):
        thread_id, _ = talks.running("sentinel words")
        tamper(site.wiring.store, "DELETE FROM continuity_audit_head")

        page = get(ava, f"{THREADS}/{thread_id}")

        assert page.status_code >= 500
        assert "sentinel" not in page.text

    def test_older_messages_come_by_the_page_and_all_of_them_in_order(self, ava, talks):
        thread_id, held = talks.running("first words")
        for number in range(1, 120):
            talks.append(held, *said(f"line {number}."))
        talks.settle(held)
        page, seen = get(ava, f"{THREADS}/{thread_id}"), []
        while True:
            seen = re.findall(r">(first words|line \d+\.)<", page.text) + seen
            found = re.search(r'href="([^"]+/history\?cursor=[^"]+)"', page.text)
            if found is None:
                break
            page = get(ava, html.unescape(found[1]))

        assert seen == ["first words", *(f"line {number}." for number in range(1, 120))]
        assert "The conversation begins here" in page.text

    def test_a_page_of_history_that_is_no_more_leads_back(self, site, ava, talks):
        thread_id, held = talks.running()
        for number in range(60):
            talks.append(held, *said(f"line {number}."))
        found = re.search(r'href="([^"]+/history\?cursor=[^"]+)"', get(ava, f"{THREADS}/{thread_id}").text)[1]
        site.clock.advance(901)
        ava = site.signed_in("ava")

        assert get(ava, html.unescape(found)).headers["Location"] == f"{THREADS}/{thread_id}"
        assert get(ava, f"{THREADS}/{thread_id}/history?cursor=x").headers["Location"] == f"{THREADS}/{thread_id}"


class TestStanding:
    def test_what_was_cut_off_is_not_called_running(self, site, ava, talks):
        thread_id, held = talks.running()
        talks.append(
            held, {"kind": "tool_started", "call_id": "c1", "tool": "cancel"},
            {"kind": "message_started", "message_id": "m1"}, {"kind": "message_part", "message_id": "m1", "text": "I"},
        )  # fmt: skip
        assert "being written" in get(ava, f"{THREADS}/{thread_id}").text
        site.clock.advance(MINUTE_S)

        page = get(ava, f"{THREADS}/{thread_id}")

        assert "The worker went away in the middle" in page.text
        assert "No result yet" in page.text
        assert "Cut off: its run ended here" in page.text
        assert "being written" not in page.text

    def test_a_call_whose_run_was_stopped_has_an_outcome_that_nobody_knows(self, ava, talks):
        thread_id, held = talks.running()
        talks.append(held, {"kind": "tool_started", "call_id": "c1", "tool": "cancel"})
        talks.fail(held)
        talks.control(thread_id, "stop")

        page = get(ava, f"{THREADS}/{thread_id}")

        assert "Outcome not known" in page.text
        assert "Nobody has reported how it ended" in page.text

    def test_a_failure_says_what_the_worker_said(self, ava, talks):
        thread_id, held = talks.running()
        talks.fail(held, message="The model <b>is</b> down.")

        page = get(ava, f"{THREADS}/{thread_id}")

        assert "The run failed" in page.text
        assert "The model &lt;b&gt;is&lt;/b&gt; down." in page.text

    @pytest.mark.parametrize(("reply", "word"), [(True, "Approved"), (False, "Denied")])
    def test_who_answered_what_stands_where_it_was_answered(self, site, ava, talks, reply, word):
        shown = {"tool": "cancel_order", "arguments": {"order": "17"}}
        thread_id, held = talks.running("Cancel order 17")
        talks.append(held, {"kind": "tool_started", "call_id": "c1", "tool": "cancel_order"})
        asked = talks.wait(held, question(shown=shown))["waiting"][0]
        talks.reply(thread_id, asked["waiting_id"], reply=reply)
        held = talks.claim()
        talks.append(
            held, {"kind": "message_started", "message_id": "m1"}, {"kind": "message_ended", "message_id": "m1"}
        )
        talks.settle(held)
        site.person("oda", Role.OPERATOR)
        site.clock.advance(MINUTE_S)

        for reader in (ava, site.signed_in("oda")):
            page = get(reader, f"{THREADS}/{thread_id}").text
            turns = re.findall(r'<li class="turn turn-(\w+)"', page)
            (turn,) = re.findall(r'<li class="turn turn-answer".*?</li>', page, re.DOTALL)

            assert turns == ["user", "tool", "answer", "assistant"]
            assert all(words in turn for words in ("ava", word, "Approve cancel_order?", "&#34;17&#34;", "<time"))

    def test_a_reply_that_is_no_yes_or_no_stands_in_the_transcript_whatever_it_holds(self, ava, talks):
        thread_id, (asked,) = talks.asked(
            question(kind="reply", schema={"type": "string"}, shown={"question": "Where?"})
        )
        talks.reply(thread_id, asked["waiting_id"], reply="<b>here</b>\u202e")

        (turn,) = re.findall(
            r'<li class="turn turn-answer".*?</li>', get(ava, f"{THREADS}/{thread_id}").text, re.DOTALL
        )

        assert "Where?" in turn
        assert "&lt;b&gt;here&lt;/b&gt;\\u{202E}" in turn

    def test_an_answer_stands_with_older_messages_as_well(self, ava, talks):
        thread_id, (asked,) = talks.asked(question())
        talks.reply(thread_id, asked["waiting_id"], reply=True)
        held = talks.claim()
        for number in range(60):
            talks.append(held, *said(f"m{number}"))
        page = get(ava, f"{THREADS}/{thread_id}").text
        older = html.unescape(re.search(r'href="([^"]+history[^"]+)"', page)[1])

        assert "turn-answer" not in page
        assert re.search(r"turn-answer.*?ava.*?Approved", get(ava, older).text, re.DOTALL)

    def test_a_call_that_a_person_has_denied_is_no_error(self, ava, talks):
        thread_id, held = talks.running()
        talks.append(
            held, {"kind": "tool_started", "call_id": "c1", "tool": "cancel"},
            {"kind": "tool_ended", "call_id": "c1", "outcome": "denied"},
        )  # fmt: skip

        page = get(ava, f"{THREADS}/{thread_id}").text

        assert "Denied by a person" in page
        assert ">Error<" not in page

    def test_how_long_a_claim_lives_yet_is_shown_while_there_is_one(self, site, ava, talks):
        thread_id, held = talks.running()
        site.clock.advance(25)

        assert 'data-left="35"' in get(ava, f"{THREADS}/{thread_id}").text
        talks.heartbeat(held)
        line = get(ava, f"{THREADS}/{thread_id}/claim", **HTMX).text
        assert 'data-left="60"' in line
        assert line.strip() in get(ava, f"{THREADS}/{thread_id}").text
        talks.settle(held)
        line = get(ava, f"{THREADS}/{thread_id}/claim", **HTMX).text
        assert "hx-get" not in line
        assert "hidden" in line

    def test_a_worker_names_only_work_of_its_own_workspace(self, site, ava, talks):
        thread_id, held = talks.running()
        site.person("ole", at=("other",))
        refusals = []
        for workflow_id in ("wf_" + "1" * 32, talks.governed("other")):
            with pytest.raises(MalformedError, match="workflow_id must name governed work") as refused:
                talks.fail(held, "blocked", workflow_id=workflow_id)
            refusals.append(refused.value.message)
            ended = {"kind": "tool_ended", "call_id": "c1", "outcome": "ok", "workflow_id": workflow_id}
            with pytest.raises(MalformedError, match="workflow_id of a record must name"):
                talks.append(held, {"kind": "tool_started", "call_id": "c1", "tool": "cancel"}, ended)

        assert len(set(refusals)) == 1
        assert talks.snapshot(thread_id)["messages"][1:] == []
        assert talks.fail(held, "blocked", workflow_id=talks.governed())["state"] == "needs_attention"

    def test_governed_work_is_called_by_its_tool_and_leads_back_to_its_thread_for_those_who_see_it(
        self, site, ava, talks
    ):
        thread_id, held = talks.running(name="cancel-17")
        site.person("ole", at=("other",))
        workflow_id = talks.governed(key="call-" + "5" * 64, run_id=held.run_id)
        elsewhere = talks.governed("other", key="call-" + "6" * 64, run_id=held.run_id)
        site.person("ina", Role.INVESTIGATOR)
        site.clock.advance(MINUTE_S)
        ina = site.signed_in("ina")

        page, hers = get(ava, f"/resume-work/{workflow_id}"), get(ina, f"/resume-work/{workflow_id}")

        for shown in (page, hers):
            assert "<h1>cancel</h1>" in shown.text
        assert f'href="/threads/{thread_id}">cancel-17</a>' in page.text
        # An investigator sees threads of nobody else; and a name that another workspace uses is nobody's thread.
        assert thread_id not in hers.text
        assert "cancel-17" not in hers.text
        assert thread_id not in get(ava, f"/resume-work/{elsewhere}").text
        assert f'href="/resume-work/{workflow_id}">cancel</a>' in get(ava, "/resume-work").text

    def test_governed_work_that_blocks_is_linked_with_its_cost_for_those_who_may_see_it(self, site, ava, talks):
        workflow_id = talks.governed()
        thread_id, held = talks.running()
        talks.append(held, {"kind": "tool_started", "call_id": "c1", "tool": "cancel"})
        talks.append(
            held, {"kind": "tool_ended", "call_id": "c1", "outcome": "error", "workflow_id": workflow_id,
                   "operation_id": "op_1"},
        )  # fmt: skip
        talks.fail(held, "blocked", workflow_id=workflow_id)
        site.person("oda", Role.OPERATOR)
        site.clock.advance(MINUTE_S)
        oda = site.signed_in("oda")

        page, hers = get(ava, f"{THREADS}/{thread_id}"), get(oda, f"{THREADS}/{thread_id}")

        assert "Governed work does not let it go on" in page.text
        for shown in (page, hers):
            assert shown.text.count(f'href="/resume-work/{workflow_id}"') >= 2
        assert f'href="/activity/{workflow_id}"' in page.text
        assert "/activity/" not in hers.text

    def test_work_that_another_attempt_holds_is_waited_for_and_its_address_is_no_text(self, ava, talks):
        workflow_id = talks.governed()
        thread_id, held = talks.running()
        stop = RecoveryBlocked(
            "attempt_in_progress", workflow_id, page=f"https://atmem.example/resume-work/{workflow_id}"
        )
        talks.fail(held, "blocked", message=stop.message, workflow_id=workflow_id)

        page = get(ava, f"{THREADS}/{thread_id}")

        assert "Another attempt holds the lease. Run again when it has ended." in page.text
        assert "A lease that another attempt holds ends by itself" in page.text
        assert "https://atmem.example" not in page.text
        assert page.text.count(f'href="/resume-work/{workflow_id}"') >= 2

    def test_every_run_says_why_it_began_and_how_it_ended(self, ava, talks):
        thread_id, held = talks.running()
        talks.fail(held, message="Out of memory.")
        talks.control(thread_id, "resume")
        talks.settle(talks.claim(), {"answer": 1})

        page = get(ava, f"{THREADS}/{thread_id}")

        runs = re.findall(r'id="run-(\d+)">.*?</li>', page.text, re.DOTALL)
        assert runs == ["2", "1"]
        assert "Somebody resumed it, going on from run 1." in page.text
        assert "Its worker failed. Out of memory." in page.text
        assert "claim 2" in page.text

    def test_only_controls_that_are_declared_and_possible_are_there(self, ava, talks):
        def offered(thread_id):
            page = get(ava, f"{THREADS}/{thread_id}").text
            forms = re.findall(rf"action=\"{THREADS}/{thread_id}/([a-z-]+)\"", page)
            return sorted({*forms})

        thread_id = talks.create()
        assert offered(thread_id) == ["delete", "message"]
        talks.say(thread_id)
        assert offered(thread_id) == ["follow-up", "steer", "stop"]
        held = talks.claim()
        talks.control(thread_id, "stop")
        assert offered(thread_id) == ["follow-up"]
        talks.fail(held)
        assert offered(thread_id) == ["follow-up", "resume", "stop"]
        talks.declare(controls=[])
        assert offered(thread_id) == ["resume", "stop"]
        talks.control(thread_id, "resume")
        assert offered(thread_id) == []
        assert "This agent does not let anybody stop it." in get(ava, f"{THREADS}/{thread_id}").text


def plain(page):
    """Return a page without the ids that are new in every form."""
    return re.sub(r"req_[0-9a-f]{24}", "", page.text)
