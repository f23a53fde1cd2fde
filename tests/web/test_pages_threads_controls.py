"""What people do to conversations: said, answered, stopped, resumed and deleted, each once, and never unawares."""

from __future__ import annotations

import html
import re

import pytest

from app.pages.threads_conflicts import REFUSALS, UNEXPECTED, refusal
from continuity.decisions.threads.changes import WORDS
from continuity.services.callers import Role
from tests.integration.conversing import question, said
from tests.web.pages import get, post, sign_in
from tests.web.talks import AGENT, Talks

THREADS = "/threads"
MINUTE_S = 61
PAST_FRESHNESS_S = 601
ADDRESS = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "title": "Street", "minLength": 3},
        "floor": {"type": "integer", "title": "Floor", "minimum": 0, "maximum": 40},
    },
    "required": ["street"],
}  # fmt: skip


@pytest.fixture
def ava(site):
    site.person("ava", Role.ADMINISTRATOR)
    return site.signed_in("ava")


@pytest.fixture
def talks(site, ava):
    return Talks(site, "ava")


def form(page, action):
    """Return the hidden fields of the form with this action, as a browser sends them."""
    found = re.search(rf'<form[^>]*action="{re.escape(action)}".*?</form>', page.text, re.DOTALL)
    assert found, action
    fields = dict(re.findall(r'type="hidden" name="([a-z_]+)" value="([^"]*)"', found[0]))
    return {name: html.unescape(value) for name, value in fields.items() if name != "csrf_token"}


def send(browser, thread_id, control, page=None, **fields):
    action = f"{THREADS}/{thread_id}/{control}"
    page = page or get(browser, f"{THREADS}/{thread_id}")
    return post(browser, action, {**form(page, action), **fields})


def answer(browser, thread_id, request, page=None, **fields):
    return send(browser, thread_id, f"waiting/{request['waiting_id']}/reply", page, **fields)


def heard(talks, thread_id):
    return [item["content"] for item in talks.snapshot(thread_id)["messages"] if item.get("role") == "user"]


class TestBeginning:
    def test_a_thread_is_begun_from_the_list_and_its_name_leads_back_to_it(self, ava, talks):
        fields = form(get(ava, THREADS), THREADS)
        first = post(ava, THREADS, {**fields, "name": "monday", "agent": AGENT})
        again = post(ava, THREADS, {**form(get(ava, THREADS), THREADS), "name": "monday", "agent": AGENT})

        assert first.status_code == again.status_code == 303
        assert first.headers["Location"] == again.headers["Location"]
        assert "monday" in get(ava, first.headers["Location"]).text

    @pytest.mark.parametrize("name", ["", "two words", "ä", "a" * 129, "a/b"])
    def test_a_name_that_is_none_is_said_beside_it_and_kept(self, ava, talks, name):
        reply = post(ava, THREADS, {**form(get(ava, THREADS), THREADS), "name": name, "agent": AGENT})

        assert reply.status_code == 422
        assert 'id="new-name-problem"' in reply.text
        assert f'value="{name}"' in reply.text

    def test_an_agent_that_nobody_offers_is_said_beside_it(self, ava, talks):
        reply = post(ava, THREADS, {**form(get(ava, THREADS), THREADS), "name": "x", "agent": "other"})

        assert reply.status_code == 422
        assert "No worker offers this agent" in reply.text

    def test_a_name_that_was_deleted_stays_closed(self, ava, talks):
        thread_id = talks.create("gone")
        send(ava, thread_id, "delete", sure="yes")

        reply = post(ava, THREADS, {**form(get(ava, THREADS), THREADS), "name": "gone", "agent": AGENT})

        assert reply.status_code == 409
        assert "This thread was deleted" in reply.text


class TestSaying:
    def test_a_message_is_accepted_and_said_so(self, ava, talks):
        thread_id = talks.create()
        reply = send(ava, thread_id, "message", content="Where is it?\r\nTell me.")

        assert (reply.status_code, reply.headers["Location"]) == (303, f"{THREADS}/{thread_id}")
        assert "It is accepted and kept" in get(ava, f"{THREADS}/{thread_id}").text
        assert talks.claim().run["input"]["content"] == "Where is it?\nTell me."

    def test_a_form_that_is_sent_twice_is_taken_once(self, ava, talks):
        thread_id = talks.create()
        page = get(ava, f"{THREADS}/{thread_id}")

        replies = [send(ava, thread_id, "message", page, content="Once.") for _ in range(3)]

        assert [reply.status_code for reply in replies] == [303] * 3
        assert len(talks.snapshot(thread_id)["runs"]) == 1
        assert heard(talks, thread_id) == ["Once."]

    def test_the_same_form_with_other_words_is_refused_and_they_are_kept(self, ava, talks):
        thread_id = talks.create()
        page = get(ava, f"{THREADS}/{thread_id}")
        send(ava, thread_id, "message", page, content="First.")

        reply = send(ava, thread_id, "message", page, content="Second words.")

        assert reply.status_code == 409
        assert "This form was sent before with other words" in reply.text
        assert "Second words." in reply.text
        assert heard(talks, thread_id) == ["First."]

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"content": " \n "}, "Write something first."),
            ({"content": "a\0b"}, "cannot be kept"),
            ({"content": "x" * 65_537}, "At most 64 KiB."),
            ({"content": "{", "as": "json"}, "not one JSON value"),
            ({"content": "[1]", "as": "json"}, "Must be a JSON object"),
        ],
        ids=["empty", "NUL", "too long", "no JSON", "no object"],
    )
    def test_what_cannot_be_said_is_kept_with_the_reason(self, ava, talks, fields, problem):
        thread_id = talks.create()
        reply = send(ava, thread_id, "message", **fields)

        assert reply.status_code == 422
        assert problem in reply.text
        assert "Nothing was admitted" in reply.text
        assert html.escape(fields["content"].strip()[:1]) in reply.text.partition('id="say-content"')[2]
        assert talks.snapshot(thread_id)["runs"] == []

    def test_an_agent_that_takes_an_object_gets_one(self, ava, talks):
        thread_id = talks.create()
        send(ava, thread_id, "message", content='{"order": 17}', **{"as": "json"})

        assert talks.claim().run["input"]["content"] == {"order": 17}

    def test_a_steer_and_a_follow_up_wait_where_they_can_be_seen(self, ava, talks):
        thread_id, _ = talks.running()
        page = get(ava, f"{THREADS}/{thread_id}")
        fields = form(page, f"{THREADS}/{thread_id}/steer")
        assert f'formaction="{THREADS}/{thread_id}/follow-up"' in page.text

        assert send(ava, thread_id, "steer", page, content="Be brief.").status_code == 303
        fields = {**form(get(ava, f"{THREADS}/{thread_id}"), f"{THREADS}/{thread_id}/steer"), "content": "And then?"}
        assert post(ava, f"{THREADS}/{thread_id}/follow-up", fields).status_code == 303

        shown = get(ava, f"{THREADS}/{thread_id}").text
        queue = shown[shown.index('id="queue"') :]
        assert queue.index("Be brief.") < queue.index("And then?")

    def test_a_message_that_comes_too_late_is_told_and_kept(self, ava, talks):
        thread_id = talks.create()
        page = get(ava, f"{THREADS}/{thread_id}")
        talks.say(thread_id, "faster")

        reply = send(ava, thread_id, "message", page, content="Too late, alas.")

        assert reply.status_code == 409
        assert "it is not idle any more" in reply.text
        assert "Too late, alas." in reply.text
        assert "Nothing was changed." in reply.text


class TestControls:
    def test_stop_and_resume_say_what_was_done(self, ava, talks):
        thread_id, held = talks.running()
        assert send(ava, thread_id, "stop").status_code == 303
        assert "A stop is asked for already" in get(ava, f"{THREADS}/{thread_id}").text
        talks.fail(held)

        assert send(ava, thread_id, "resume").status_code == 303
        assert "Waits for a worker" in get(ava, f"{THREADS}/{thread_id}").text
        assert talks.claim().run["resumes"] == held.run_id

    def test_a_control_is_bound_to_what_its_author_saw(self, ava, talks):
        thread_id, held = talks.running()
        page = get(ava, f"{THREADS}/{thread_id}")
        talks.settle(held)
        talks.say(thread_id, "another")

        reply = send(ava, thread_id, "stop", page)

        assert reply.status_code == 409
        assert "the thread has moved on" in reply.text
        assert talks.snapshot(thread_id)["thread"]["state"] == "running"

    def test_held_follow_ups_go_on_when_somebody_resumes(self, ava, talks):
        thread_id, _ = talks.running()
        talks.say(thread_id, "later", how="follow_up")
        talks.control(thread_id, "stop")
        held = talks.snapshot(thread_id)
        assert held["runs"][-1]["stopping"]
        talks.clock.advance(MINUTE_S)
        talks.control(thread_id, "stop")

        assert "Stopped, with follow-ups held" in get(ava, f"{THREADS}/{thread_id}").text
        assert send(ava, thread_id, "resume").status_code == 303
        assert talks.claim().run["input"]["content"] == "later"

    def test_an_operator_resumes_and_says_nothing(self, site, ava, talks):
        thread_id, held = talks.running()
        talks.fail(held)
        site.person("oda", Role.OPERATOR)
        site.clock.advance(MINUTE_S)
        oda = site.signed_in("oda")
        page = get(oda, f"{THREADS}/{thread_id}")

        assert "Its owner, ava, says something" in page.text
        assert "/message" not in page.text
        assert "/delete" not in page.text
        assert send(oda, thread_id, "resume", page).status_code == 303

    def test_deleting_wants_the_tick_and_the_password_and_says_what_is_gone(self, site, ava, talks):
        thread_id = talks.create()
        assert "Tick this first" in send(ava, thread_id, "delete").text
        site.clock.advance(PAST_FRESHNESS_S)
        unproved = send(ava, thread_id, "delete", sure="yes")
        assert unproved.status_code == 403
        assert 'id="delete-password"' in unproved.text
        wrong = send(ava, thread_id, "delete", sure="yes", password="not it")
        assert wrong.status_code == 422

        gone = send(ava, thread_id, "delete", sure="yes", password=site.passwords["ava"])

        assert (gone.status_code, gone.headers["Location"]) == (303, THREADS)
        assert "The thread is deleted" in get(ava, THREADS).text
        assert thread_id not in get(ava, THREADS).text
        page = get(ava, f"{THREADS}/{thread_id}")
        assert page.status_code == 409
        assert "This thread was deleted" in page.text

    def test_a_thread_that_does_something_is_not_deleted(self, ava, talks):
        thread_id = talks.create()
        page = get(ava, f"{THREADS}/{thread_id}")
        talks.say(thread_id, "go on")

        reply = send(ava, thread_id, "delete", page, sure="yes")

        assert reply.status_code == 409
        assert "Not deleted: it is not idle" in reply.text


class TestAnswering:
    def test_an_approval_is_two_buttons_and_what_was_shown(self, ava, talks):
        thread_id, (asked,) = talks.asked(question(shown={"question": "Cancel it?", "order": "order-17"}))
        page = get(ava, f"{THREADS}/{thread_id}")
        assert "Cancel it?" in page.text
        assert "order-17" in page.text
        assert re.findall(r'name="reply-0" value="(\w+)"', page.text) == ["true", "false"]

        assert answer(ava, thread_id, asked, page, **{"reply-0": "false"}).status_code == 303

        assert talks.claim().run["replies"][0]["reply"] is False
        assert "Your answer is recorded" in get(ava, f"{THREADS}/{thread_id}").text

    @pytest.mark.parametrize("schema", [{}, {"type": "string"}])
    def test_an_answer_is_no_longer_than_one_of_an_application(self, ava, talks, schema):
        thread_id, (asked,) = talks.asked(question(schema=schema))
        field = "reply-0" if schema else "reply-text"

        reply = answer(ava, thread_id, asked, **{field: "a" * 70_000})

        assert reply.status_code == 422
        assert "65536 bytes" in reply.text
        assert "a" * 70_000 in reply.text
        assert talks.snapshot(thread_id)["waiting"][0]["state"] == "open"

    @pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
    def test_what_may_be_nothing_can_be_left_empty(self, ava, talks, kind):
        schema = {"type": "object", "properties": {"a": {"type": [kind, "null"]}}, "required": ["a"]}
        thread_id, (asked,) = talks.asked(question(schema=schema))
        page = get(ava, f"{THREADS}/{thread_id}")
        fields = re.findall(r'<(?:input|textarea)[^>]*name="reply-0"[^>]*>', page.text)
        assert fields
        assert not [field for field in fields if "required" in field]

        assert answer(ava, thread_id, asked, page, **{"reply-0": ""}).status_code == 303
        assert talks.claim().run["replies"][0]["reply"] == {"a": None}

    def test_an_approval_that_is_pressed_twice_is_admitted_once(self, ava, talks):
        thread_id, (asked,) = talks.asked(question())
        page = get(ava, f"{THREADS}/{thread_id}")

        replies = [answer(ava, thread_id, asked, page, **{"reply-0": "true"}) for _ in range(3)]

        assert [reply.status_code for reply in replies] == [303] * 3
        assert len(talks.snapshot(thread_id)["runs"]) == 2

    def test_another_answer_is_refused_with_the_one_that_counts_and_whose_it_is(self, ava, talks):
        thread_id, (asked,) = talks.asked(question())
        page = get(ava, f"{THREADS}/{thread_id}")
        answer(ava, thread_id, asked, page, **{"reply-0": "true"})

        fields = {**form(page, f"{THREADS}/{thread_id}/waiting/{asked['waiting_id']}/reply"), "request_id": "another"}
        reply = post(ava, f"{THREADS}/{thread_id}/waiting/{asked['waiting_id']}/reply", {**fields, "reply-0": "false"})

        assert reply.status_code == 409
        assert "Answered already, and otherwise" in reply.text
        assert "Yes, approved" in reply.text
        assert re.search(r"Recorded <time.*</time> by ava\.", reply.text)

    def test_words_that_nobody_would_see_are_not_sent(self, ava, talks):
        thread_id = talks.create()
        reply = send(ava, thread_id, "message", content="\u200b\u2060")

        assert reply.status_code == 422
        assert "Write something first." in reply.text
        assert talks.snapshot(thread_id)["messages"] == []

    def test_the_same_form_with_the_other_button_is_refused(self, ava, talks):
        thread_id, (asked,) = talks.asked(question())
        page = get(ava, f"{THREADS}/{thread_id}")
        answer(ava, thread_id, asked, page, **{"reply-0": "true"})

        assert answer(ava, thread_id, asked, page, **{"reply-0": "false"}).status_code == 409

    def test_several_are_answered_in_any_order_and_what_is_answered_says_by_whom(self, ava, talks):
        thread_id, asked = talks.asked(question(), question("t2", kind="reply", schema={"type": "string"}))

        assert answer(ava, thread_id, asked[1], **{"reply-0": "some words"}).status_code == 303

        page = get(ava, f"{THREADS}/{thread_id}").text
        assert "2 questions, 1 of them open" in page
        assert "some words" in page
        assert re.search(r"Answered <time.*</time> by ava\.", page)
        assert answer(ava, thread_id, asked[0], **{"reply-0": "true"}).status_code == 303
        assert sorted(str(each["reply"]) for each in talks.claim().run["replies"]) == ["True", "some words"]

    def test_what_does_not_fit_is_said_beside_its_member_and_nothing_typed_is_lost(self, ava, talks):
        thread_id, (asked,) = talks.asked(question(kind="reply", schema=ADDRESS))
        reply = answer(ava, thread_id, asked, **{"reply-0": "ab", "reply-1": "99"})

        assert reply.status_code == 422
        assert "must hold 3 to any number of" in reply.text
        assert 'value="99"' in reply.text
        assert "Nothing was admitted" in reply.text
        assert talks.snapshot(thread_id)["waiting"][0]["state"] == "open"
        reply = answer(ava, thread_id, asked, **{"reply-0": "Long Street 4", "reply-1": "no number"})
        assert "Must be a whole number." in reply.text
        assert "Long Street 4" in reply.text

        assert answer(ava, thread_id, asked, **{"reply-0": "Long Street 4", "reply-1": ""}).status_code == 303
        assert talks.claim().run["replies"][0]["reply"] == {"street": "Long Street 4"}

    def test_a_question_that_was_asked_again_is_answered_as_it_is_now(self, ava, talks):
        thread_id, (asked,) = talks.asked(question())
        old = get(ava, f"{THREADS}/{thread_id}")
        talks.reply(thread_id, asked["waiting_id"], reply=True)
        again = talks.wait(talks.claim(), question(kind="reply", schema=ADDRESS))["waiting"][0]
        assert (again["waiting_id"], again["revision"]) == (asked["waiting_id"], 2)

        reply = answer(ava, thread_id, asked, old, **{"reply-0": "true"})

        assert reply.status_code == 409
        assert "it was asked again" in reply.text
        assert talks.snapshot(thread_id)["waiting"][0]["state"] == "open"

    def test_what_is_no_longer_asked_is_told(self, ava, talks):
        thread_id, (asked,) = talks.asked(question())
        page = get(ava, f"{THREADS}/{thread_id}")
        talks.control(thread_id, "stop")

        reply = answer(ava, thread_id, asked, page, **{"reply-0": "true"})

        assert reply.status_code == 409
        assert "it is no longer asked" in reply.text

    def test_a_shape_that_no_form_has_is_answered_as_json_with_its_schema(self, ava, talks):
        schema = {"anyOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"]}, {"type": "integer"}]}
        thread_id, (asked,) = talks.asked(question(kind="reply", schema=schema))
        page = get(ava, f"{THREADS}/{thread_id}")
        assert "&#34;anyOf&#34;" in page.text
        assert "This is not one JSON value" in answer(ava, thread_id, asked, **{"reply-json": "{"}).text
        wrong = answer(ava, thread_id, asked, **{"reply-json": '"text that is kept"'})
        assert wrong.status_code == 422
        assert "text that is kept" in wrong.text

        assert answer(ava, thread_id, asked, **{"reply-json": '{"a": [1]}'}).status_code == 303
        assert talks.claim().run["replies"][0]["reply"] == {"a": [1]}

    def test_where_anything_goes_words_are_words_and_json_is_json(self, ava, talks):
        thread_id, asked = talks.asked(*(question(f"t{n}", kind="reply", schema={}) for n in range(2)))
        answer(ava, thread_id, asked[0], **{"reply-text": "true"})
        answer(ava, thread_id, asked[1], **{"reply-as": "json", "reply-json": "true"})

        assert [each["reply"] for each in talks.claim().run["replies"]] == ["true", True]

    def test_decisions_of_the_approval_middleware_are_sent_together(self, ava, talks):
        schema = {
            "type": "object", "required": ["decisions"], "additionalProperties": False,
            "properties": {"decisions": {"type": "array", "minItems": 1, "items": {
                "type": "object", "required": ["type"],
                "properties": {"type": {"enum": ["approve", "reject", "edit", "respond"]}},
            }}},
        }  # fmt: skip
        shown = {
            "action_requests": [{"name": "cancel", "args": {"order": 1}}, {"name": "refund", "args": {"cents": 2}},
                                {"name": "write", "args": {}}],
            "review_configs": [{"action_name": "refund", "allowed_decisions": ["approve", "edit"]}],
        }  # fmt: skip
        thread_id, (asked,) = talks.asked(question(schema=schema, shown=shown))
        fields = {"reply-0-type": "approve", "reply-1-type": "edit", "reply-1-args": '{"cents": 1}',
                  "reply-2-type": "reject", "reply-2-message": "Not today."}  # fmt: skip

        missing = answer(ava, thread_id, asked, **{**fields, "reply-2-type": ""})
        assert missing.status_code == 422
        assert "Decide about this one as well" in missing.text
        assert "Not today." in missing.text
        forbidden = answer(ava, thread_id, asked, **{**fields, "reply-1-type": "reject"})
        assert forbidden.status_code == 422
        assert answer(ava, thread_id, asked, **fields).status_code == 303

        assert talks.claim().run["replies"][0]["reply"] == {"decisions": [
            {"type": "approve"}, {"type": "edit", "edited_action": {"name": "refund", "args": {"cents": 1}}},
            {"type": "reject", "message": "Not today."},
        ]}  # fmt: skip

    def test_only_the_owner_answers(self, site, ava, talks):
        thread_id, _ = talks.asked(question())
        site.person("oda", Role.OPERATOR)
        site.clock.advance(MINUTE_S)
        page = get(site.signed_in("oda"), f"{THREADS}/{thread_id}")

        assert "Only the owner, ava, answers this." in page.text
        assert "/reply" not in page.text

    def test_an_owner_whom_the_agent_lets_in_no_more_looks_and_says_nothing(self, ava, talks):
        thread_id, _ = talks.asked(question())
        talks.declare(public=False, principals=["bob"])
        page = get(ava, f"{THREADS}/{thread_id}")

        assert "The agent does not let you in any more" in page.text
        assert "/reply" not in page.text


class TestKeeping:
    def test_what_was_written_in_an_earlier_session_comes_back(self, site, ava, talks):
        thread_id = talks.create()
        fields = {
            **form(get(ava, f"{THREADS}/{thread_id}"), f"{THREADS}/{thread_id}/message"),
            "content": "Long words.",
        }

        reply = post(ava, f"{THREADS}/{thread_id}/message", fields, token="A" * 43, **{"Sec-Fetch-Site": "same-origin"})

        assert reply.status_code == 403
        assert "Long words." in reply.text
        assert "You signed in again" in reply.text
        assert heard(talks, thread_id) == []

    def test_what_was_written_into_an_answer_survives_the_end_of_the_session(self, site, ava, talks):
        thread_id, (asked,) = talks.asked(question(kind="reply", schema=ADDRESS))
        action = f"{THREADS}/{thread_id}/waiting/{asked['waiting_id']}/reply"
        fields = {**form(get(ava, f"{THREADS}/{thread_id}"), action), "reply-0": "Long Street 4"}
        post(ava, "/logout")

        reply = post(ava, action, fields, token="A" * 43, **{"Sec-Fetch-Site": "same-origin"})

        assert reply.status_code == 401
        assert "Long Street 4" in reply.text
        sign_in(ava, "ava", site.passwords["ava"])
        assert talks.snapshot(thread_id)["waiting"][0]["state"] == "open"


@pytest.mark.parametrize("form_name", ["say", "stop", "resume", "delete", "wr_" + "0" * 32])
def test_every_refusal_of_threads_has_its_sentence(form_name):
    beside = {
        "capture_not_full", "clock_moved_backwards", "cursor_gap", "request_conflict", "thread_deleted",
        "stale_revision",
    }  # fmt: skip
    for code in {*WORDS, *beside}:
        assert refusal(form_name, code) is not UNEXPECTED, code
    assert len({each.title for each in REFUSALS.values()}) == len(REFUSALS)


@pytest.mark.parametrize("control", ["message", "steer", "follow-up", "stop", "resume"])
@pytest.mark.parametrize("request_id", ["", "a b", "x" * 200])
def test_a_form_without_its_request_id_is_none_of_ours(ava, talks, control, request_id):
    thread_id, held = talks.running()
    talks.append(held, *said("x"))

    fields = {"request_id": request_id, **({"revision": "1"} if control in {"stop", "resume"} else {"content": "x"})}

    assert post(ava, f"{THREADS}/{thread_id}/{control}", fields).status_code == 400


@pytest.mark.parametrize(
    ("shown", "heading"),
    [
        ({"question": "Cancel it?", "tool": "cancel"}, "Cancel it?"),
        ({"tool": "cancel", "arguments": {"order": "17"}}, "Approve cancel?"),
        ({"question": "x" * 201}, "Approve or deny"),
        ({"question": {"a": 1}}, "Approve or deny"),
    ],
    ids=["question", "tool", "too long", "no text"],
)
def test_a_question_is_called_by_what_it_is_about(ava, talks, shown, heading):
    thread_id, _ = talks.asked(question(shown=shown))

    assert f'id="ask-1-title">{heading}</h2>' in get(ava, f"{THREADS}/{thread_id}").text
