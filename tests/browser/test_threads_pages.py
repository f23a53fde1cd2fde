"""Conversations in a real browser: begun, read, answered, stopped, resumed, deleted; looked at in every situation."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.halls import Hall, opened
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS
from tests.integration.conversing import question, said
from tests.integration.tampering import tamper
from tests.web.talks import Talks

pytestmark = pytest.mark.browser

THREADS = "/threads"
HOSTILE = '<script>document.title="x"</script> "><img src=x onerror=alert(1)> {{7*7}} \u202egnp.exe \x1b[31m \u200b'
ADDRESS = {
    "type": "object",
    "title": "New address",
    "description": "Where the parcel goes instead.",
    "properties": {
        "street": {"type": "string", "title": "Street and number", "maxLength": 80},
        "country": {"title": "Country", "enum": ["Austria", "France", "Italy"]},
        "copies": {"type": "integer", "title": "Labels", "minimum": 1, "maximum": 5, "default": 1},
        "notes": {"type": "array", "title": "Notes for the driver", "items": {"type": "string"}},
        "is_gift": {"type": "boolean", "title": "Wrap it as a gift"},
        "contact": {
            "type": "object", "title": "Contact",
            "properties": {"phone": {"type": "string", "title": "Telephone", "maxLength": 30}},
            "required": ["phone"],
        },
    },
    "required": ["street", "country", "is_gift"],
}  # fmt: skip
TODOS = [
    {"content": "Look at order 17", "status": "completed"},
    {"content": "Ask whether to cancel it", "status": "in_progress"},
    {"content": "Write to the customer", "status": "pending"},
]


@pytest.fixture(scope="module")
def hall(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("threads") / "instance")
    with opened(instance) as made:
        yield made


@pytest.fixture(scope="module")
def talks(hall):
    return Talks(hall.site, "adm")


@pytest.fixture
def adm(hall, open_visit):
    return signed_in(hall, open_visit)


def signed_in(hall: Hall, open_visit, username: str = "adm", **options):
    hall.site.clock.advance(61)
    visit = open_visit(hall.url, **options)
    visit.sign_in(username, hall.password(username))
    return visit


def check(visit, name, tmp_path):
    """Look at the page as it stands: in both themes, wide and narrow, at every width, and on a picture."""
    for scheme in ("light", "dark"):
        for size in (WIDE, NARROW):
            visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            visit.page.set_viewport_size(size)
            assert visit.findings() == [], (name, scheme, size)
    assert {width: visit.overflow(width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0), name
    assert visit.page.locator("script:not([src]), style, [style], [onclick]").count() == 0
    take(visit.page, name, tmp_path)


def call(number, tool="lookup_order", **arguments):
    return {"kind": "tool_started", "call_id": f"c{number}", "tool": tool, "arguments": arguments}


def ended(number, outcome="ok", **fields):
    return {"kind": "tool_ended", "call_id": f"c{number}", "outcome": outcome, **fields}


def conversation(talks, name):
    """A thread whose agent has looked at an order and answered; and is asked about another one."""
    thread_id = talks.create(name)
    talks.say(thread_id, "Where is order 17? It was to be here on Friday.")
    held = talks.claim()
    talks.append(held, call(1, order="17"), {"kind": "state_changed", "values": {"todos": TODOS}})
    talks.append(
        held, ended(1, result={"order": "17", "state": "packed", "carrier": None}),
        *said("Order 17 is packed and is still in the house.\n\nThe carrier takes it tomorrow. Shall I cancel it?"),
    )  # fmt: skip
    talks.settle(held, {"answer": "Order 17 is packed."})
    return thread_id


class TestLooks:
    def test_answers_stand_in_the_conversation_and_a_claim_is_counted_down(self, talks, adm, tmp_path):
        thread_id = talks.create("answered")
        talks.say(thread_id, "Cancel orders 17 and 18.")
        held = talks.claim()
        talks.append(held, call(1, "cancel_order", order="17"), call(2, "cancel_order", order="18"))
        shown = [{"tool": "cancel_order", "arguments": {"order": order}} for order in ("17", "18")]
        asked = talks.wait(
            held, *(question(f"t{number}", shown=each) for number, each in enumerate(shown)),
            question("t3", kind="reply", schema={"type": "string"}, shown={"question": "What does the customer read?"}),
        )["waiting"]  # fmt: skip
        for request, reply in zip(asked, (True, False, f"We are sorry. {HOSTILE}"), strict=True):
            talks.reply(thread_id, request["waiting_id"], reply=reply)
        held = talks.claim()
        workflow_id = talks.governed(key="call-" + "7" * 64, run_id=held.run_id)
        talks.append(held, ended(1, workflow_id=workflow_id), ended(2, "denied"), *said("Order 17 is cancelled."))
        adm.go(f"{THREADS}/{thread_id}")

        turns = adm.page.locator(".turn-answer")
        expect(turns).to_have_count(3)
        expect(turns.nth(0)).to_contain_text("adm")
        expect(turns.nth(0)).to_contain_text("Approved")
        expect(turns.nth(1)).to_contain_text("Denied")
        expect(adm.page.locator(".turn-tool").nth(1)).to_contain_text("Denied by a person")
        left = adm.page.locator("#claim .countdown")
        expect(left).to_have_text(re.compile(r"^[1-5]?[0-9] s$"), timeout=5_000)
        turns.nth(1).locator("summary").click()
        check(adm, "thread-answers", tmp_path)

        adm.page.locator("#item-2-line").click()
        adm.page.get_by_role("link", name="The operation in Decisions").click()
        expect(adm.page.get_by_role("heading", level=1)).to_have_text("cancel")
        check(adm, "workflow-of-a-thread", tmp_path)
        adm.page.get_by_role("link", name="answered").click()
        expect(adm.page.get_by_role("heading", level=1)).to_have_text("answered")

    def test_an_empty_list(self, instance_template, tmp_path_factory, open_visit, tmp_path):
        instance = instance_template.copy_to(tmp_path_factory.mktemp("empty") / "instance")
        with opened(instance) as hall:
            visit = signed_in(hall, open_visit)
            visit.page.get_by_role("link", name="Threads").click()

            expect(visit.page.get_by_role("heading", name="No conversations yet")).to_be_visible()
            check(visit, "threads-empty", tmp_path)
            hall.site.wiring.vault.lock()
            assert visit.go(THREADS) == 423
            check(visit, "threads-locked", tmp_path)

    def test_a_list_and_every_situation_of_a_thread(self, talks, adm, tmp_path):
        lost = conversation(talks, "lost")
        talks.say(lost, "Cancel order 20.")
        talks.append(talks.claim(), *said("I cancel it now."), call(4, "cancel_order", order="20"))
        talks.clock.advance(61)
        talks.upkeep.expire_due()

        finished = conversation(talks, "finished")
        talks.say(finished, "Then cancel it, please.")
        held = talks.claim()
        talks.append(held, call(2, "cancel_order", order="17"), ended(2, result="cancelled"), *said("It is cancelled."))
        talks.settle(held, {"answer": "It is cancelled."})

        streaming = conversation(talks, "streaming")
        talks.say(streaming, "And order 18?")
        held = talks.claim()
        talks.append(
            held, call(3, order="18"), {"kind": "tool_progress", "call_id": "c3", "data": "page 2 of 3"},
            {"kind": "message_started", "message_id": "m-open"},
            {"kind": "message_part", "message_id": "m-open", "text": "Order 18 was sent on Monday with "},
        )  # fmt: skip
        talks.say(streaming, "Only the date, please.", how="steer")
        talks.say(streaming, "Then look at order 19 as well.", how="follow_up")

        approval = conversation(talks, "approval")
        talks.say(approval, "Cancel order 17.")
        shown = {"question": "Cancel order 17 for good?", "order": "17", "value": "€ 240.00", "items": ["lamp", "bulb"]}
        talks.wait(talks.claim(), question(shown=shown))

        form = conversation(talks, "address")
        talks.say(form, "Send it to my new address.")
        shown = {"question": "Where shall order 17 go?", "reason": "The address of the order is two years old."}
        talks.wait(talks.claim(), question(kind="reply", schema=ADDRESS, shown=shown))

        hitl = conversation(talks, "decisions")
        talks.say(hitl, "Do both.")
        requests = [
            {"name": "cancel_order", "args": {"order": "17"}, "description": "Cancels an order for good."},
            {"name": "refund", "args": {"order": "17", "cents": 24_000}},
        ]
        configs = [{"action_name": "refund", "allowed_decisions": ["approve", "edit", "reject"]}]
        shown = {"action_requests": requests, "review_configs": configs}
        talks.wait(talks.claim(), question(schema=DECISIONS, shown=shown), question("t2", kind="reply", schema={}))

        adm.go(THREADS)
        check(adm, "threads", tmp_path)
        situations = {
            "finished": finished, "streaming": streaming, "approval": approval, "object-form": form,
            "decisions": hitl, "attention": lost,
        }  # fmt: skip
        for name, thread_id in situations.items():
            assert adm.go(f"{THREADS}/{thread_id}") == 200
            check(adm, f"thread-{name}", tmp_path)


DECISIONS = {
    "type": "object",
    "properties": {"decisions": {"type": "array", "minItems": 1, "items": {
        "type": "object", "required": ["type"],
        "properties": {"type": {"enum": ["approve", "reject", "edit", "respond"]}},
    }}},
    "required": ["decisions"], "additionalProperties": False,
}  # fmt: skip


class TestStories:
    def test_a_whole_conversation_without_scripts(self, hall, talks, open_visit):
        visit = signed_in(hall, open_visit, java_script_enabled=False)
        page = visit.page
        visit.go(THREADS)
        page.locator("#new-thread summary").click()
        visit.field("Name").fill("without-scripts")
        page.get_by_role("button", name="Begin").click()
        assert visit.heading == "without-scripts"
        visit.field("Your message").fill("Cancel order 17.")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#note")).to_contain_text("It is accepted")

        shown = {"question": "Cancel order 17 for good?", "order": "17"}
        talks.wait(talks.claim(), question(shown=shown), question("t2", kind="reply", schema=ADDRESS, shown={}))
        page.reload()
        expect(page.get_by_role("heading", name="Cancel order 17 for good?")).to_be_visible()
        visit.field("Street and number").fill("Long Street 4")
        visit.field("Labels (may be left out)").fill("9")
        page.get_by_label("France").check()
        page.locator("form.ask-form").nth(1).get_by_label("No", exact=True).check()
        page.get_by_role("button", name="Send the answer").click()
        expect(page.locator("#incomplete")).to_contain_text("Nothing was admitted")
        expect(page.get_by_text("It must be at most 5")).to_be_visible()
        assert visit.field("Street and number").input_value() == "Long Street 4"
        assert page.get_by_label("France").is_checked()
        visit.field("Labels (may be left out)").fill("2")
        page.get_by_role("button", name="Send the answer").click()
        expect(page.locator("#acts")).to_contain_text("2 questions, 1 of them open")
        expect(page.locator(".answered")).to_contain_text("by adm")
        page.get_by_role("button", name="Approve").click()

        held = talks.claim()
        replies = [each["reply"] for each in held.run["replies"]]
        assert replies == [True, {"street": "Long Street 4", "country": "France", "copies": 2, "is_gift": False}]
        talks.append(held, *said("It is cancelled."))
        talks.settle(held, {"answer": "It is cancelled."})
        page.reload()
        expect(page.locator("#transcript")).to_contain_text("It is cancelled.")
        page.locator("#control-delete summary").click()
        page.get_by_label("Destroy without-scripts for good").check()
        page.get_by_role("button", name="Delete").click()
        expect(page.locator("#note")).to_contain_text("The thread is deleted")

    def test_what_needs_attention_is_found_read_and_resumed_with_the_keyboard(self, hall, talks, adm):
        thread_id = talks.create("attention-by-keyboard")
        talks.say(thread_id, "Do it.")
        talks.fail(talks.claim(), message="The model is down.")
        adm.go(f"{THREADS}?state=needs_attention")
        adm.page.get_by_role("link", name="attention-by-keyboard").focus()
        adm.page.keyboard.press("Enter")
        expect(adm.page.get_by_role("heading", name="The run failed")).to_be_visible()
        expect(adm.page.locator("#acts")).to_contain_text("The model is down.")

        adm.page.get_by_role("button", name="Resume").focus()
        adm.page.keyboard.press("Enter")

        expect(adm.page.locator("#thread-state")).to_contain_text("Running")
        expect(adm.page.locator("#acts")).to_contain_text("Waits for a worker")
        assert talks.claim().run["cause"] == "resume"

    def test_whatever_an_agent_says_is_text(self, talks, adm, tmp_path):
        thread_id, held = talks.running(HOSTILE, name="hostile")
        talks.append(held, *said(HOSTILE * 20), call(7, "x" * 90, **{"y" * 200: "z" * 2_000}), ended(7, result=HOSTILE))
        talks.append(held, {"kind": "state_changed", "values": {"note": "w" * 500, "order": {"deep": [HOSTILE] * 3}}})
        talks.wait(held, question(shown={"question": "?" * 150, "v" * 100: "w" * 900}, kind="reply", schema=ADDRESS))

        adm.go(f"{THREADS}/{thread_id}")

        check(adm, "thread-hostile", tmp_path)
        assert adm.page.title() != "x"
        assert adm.page.locator("img[src=x]").count() == 0

    def test_older_messages_are_read_page_by_page(self, talks, adm, tmp_path):
        thread_id, held = talks.running("The very first words.", name="long")
        for number in range(1, 71):
            talks.append(held, *said(f"Line {number}."))
        talks.settle(held)
        adm.go(f"{THREADS}/{thread_id}")
        assert adm.page.get_by_text("The very first words.").count() == 0

        adm.page.get_by_role("link", name="Show older").click()

        expect(adm.page.get_by_text("The very first words.")).to_be_visible()
        check(adm, "thread-history", tmp_path)
        adm.page.get_by_role("link", name="The newest").click()
        expect(adm.page.get_by_text("Line 70.")).to_be_visible()

    def test_an_operator_sees_where_it_stands_and_says_nothing(self, hall, talks, open_visit, tmp_path):
        thread_id, _ = talks.asked(question(shown={"question": "May I?"}), name="of-another")
        visit = signed_in(hall, open_visit, "op")
        visit.go(f"{THREADS}/{thread_id}")

        expect(visit.page.get_by_text("Only the owner, adm, answers this.")).to_be_visible()
        assert visit.page.get_by_role("button", name=re.compile("Approve|Deny|Send|Follow-up")).count() == 0
        check(visit, "thread-of-another", tmp_path)

    def test_what_was_deleted_and_what_does_not_open_say_so(self, hall, talks, adm, tmp_path):
        gone, broken = talks.create("to-delete"), talks.create("to-break")
        hall.site.wiring.threads.deletions.delete(talks.person, gone)
        tamper(
            hall.site.wiring.store,
            f"UPDATE continuity_threads SET sealed_head = zeroblob(80) WHERE thread_id = '{broken}'",
        )

        assert adm.go(f"{THREADS}/{gone}") == 409
        check(adm, "thread-gone", tmp_path)
        assert adm.go(f"{THREADS}/{broken}") >= 500
        check(adm, "thread-unreadable", tmp_path)
        adm.go(THREADS)
        expect(adm.page.get_by_role("link", name="Unreadable (key 1)")).to_be_visible()

    def test_the_list_is_kept_up_to_date(self, talks, adm):
        adm.go(THREADS)
        talks.create("came-later")

        expect(adm.page.get_by_role("link", name="came-later")).to_be_visible()
