"""Whole conversations in a real browser: an agent that works, dies, asks and answers while somebody looks on."""

from __future__ import annotations

import re
import signal
import threading
import time

import pytest
from playwright.sync_api import expect

pytest.importorskip("langchain")

from app.cli.remote import PersonConnection
from tests.browser.conversations import OVER_S, SHOP, Reader, Shop, worlds
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS, Visit
from tests.patience import wait_for

pytestmark = pytest.mark.browser

HOSTILE = (
    '<script>document.title="x"</script> "><img src=x onerror=alert(1)> {{7*7}} \u202egnp.exe \x1b[31m \u200b\r\n\tend'
)
SECOND_US = 1_000_000
POLLED_MS = 12_000
"""Longer than it takes a page that follows nothing to ask again."""
FOLLOWED_MS = 4_000
"""Shorter than that."""
CLAIM_POLLED_MS = 11_000
"""Longer than it takes the countdown of a claim to ask again."""


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    folder = tmp_path_factory.mktemp("conversations")
    with worlds(instance_template.copy_to(folder / "instance"), folder) as made:
        yield made


@pytest.fixture(scope="module")
def session(world, browser):
    """Somebody signed in, once for all tests: what a browser keeps of it."""
    visit = Visit.begun(browser, world.stage.url)
    visit.sign_in("op", world.passwords["op"])
    kept = visit.context.storage_state()
    visit.context.close()
    return kept


@pytest.fixture
def op(world, session, open_visit):
    return open_visit(world.stage.url, storage_state=session)


@pytest.fixture
def shop(world, tmp_path):
    made = Shop(world, tmp_path)
    yield made
    made.close()


def check(visit, name, folder):
    """Look at the page while it lives: axe in both themes, wide and narrow, every width, and a picture."""
    for scheme in ("light", "dark"):
        for size in (WIDE, NARROW):
            visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            visit.page.set_viewport_size(size)
            assert visit.findings() == [], (name, scheme, size)
    assert {width: visit.overflow(width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0), name
    assert visit.page.locator("script:not([src]), style, [style], [onclick]").count() == 0
    take(visit.page, name, folder)


def tab_of(visit, thread):
    """Open the thread in another tab of the same browser."""
    page = visit.context.new_page()
    page.on("pageerror", lambda error: visit.problems.append(f"uncaught: {error}"))
    page.goto(f"{visit.url}/threads/{thread}")
    return Reader(page)


def begun(world, **declared):
    """Have somebody ask an agent that the test is, and let it begin."""
    agent = world.agent(**declared)
    thread = world.thread(agent.agent)
    world.say(thread, "Tell me a story.")
    return agent, thread, agent.claim()


def tell(agent, claimed, message_id, *parts):
    agent.write(claimed, "append", records=[
        {"kind": "message_part", "message_id": message_id, "text": part} for part in parts
    ])  # fmt: skip


# ---- the example, from the first word to its one effect


def test_an_order_is_cancelled_once_in_a_conversation(world, op, shop, tmp_path):
    shop.open()
    op.go("/threads")
    begin = op.page.locator("#new-thread")
    # It stands open while there is no conversation yet.
    if begin.get_attribute("open") is None:
        begin.locator("summary").first.click()
    op.page.get_by_label("Agent").select_option(SHOP)
    op.field("Name").fill("monday")
    op.page.get_by_role("button", name="Begin", exact=True).click()
    reader = Reader(op.page)

    reader.say("Please cancel order 17.")

    expect(op.page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    reader.stands("waiting")
    expect(op.page.locator("#about")).to_contain_text("Look at the order under way")
    expect(op.page.locator("#transcript")).to_contain_text("lookup_order")
    expect(op.page.locator(".ask-open")).to_contain_text("cancel_order")
    assert shop.cancelled == []
    check(op, "thread-waiting", tmp_path)
    reader.press("Approve")

    expect(reader.last).to_have_text("Order 17 is cancelled.")
    reader.stands("idle")
    assert shop.cancelled == ["17"]
    expect(reader.said).to_contain_text("Order 17 is cancelled.")
    expect(reader.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    op.page.reload()
    assert reader.texts.all_inner_texts()[0] == "Please cancel order 17."
    expect(reader.texts.filter(has_text="Order 17 is cancelled.")).to_have_count(1)
    assert shop.cancelled == ["17"]


def test_what_a_person_denies_is_not_done(world, op, shop):
    shop.open()
    thread = world.thread()
    world.say(thread, "Cancel order 18")
    reader = Reader.at(op, thread)

    reader.press("Deny")

    expect(reader.last).to_contain_text("Order 18 was left as it is.")
    reader.stands("idle")
    assert shop.cancelled == []


def test_a_worker_that_dies_in_its_effect_is_resumed_by_a_person_and_does_it_once(world, op, shop, tmp_path):
    dying = shop.open(die_at="effect.after")
    thread = world.thread()
    world.say(thread, "Please cancel order 17.")
    # The browser's clock is the server's, or the pictures would tell of the future.
    op.page.clock.set_fixed_time(world.stage.clock.now_us() / SECOND_US)
    reader = Reader.at(op, thread)
    reader.press("Approve")
    assert shop.wait(dying) == -signal.SIGKILL
    assert shop.cancelled == ["17"]
    reader.stands("running")

    world.stage.advance(OVER_S)
    op.page.clock.set_fixed_time(world.stage.clock.now_us() / SECOND_US)

    reader.stands("needs_attention")
    expect(op.page.locator(".lead")).to_contain_text("What is safe next")
    check(op, "thread-interrupted", tmp_path)
    shop.open()
    time.sleep(1)
    assert world.state(thread) == "needs_attention", "it went on by itself"
    reader.unfold("resume")
    reader.press("Resume")
    expect(reader.last).to_have_text("Order 17 is cancelled.")
    reader.stands("idle")
    assert shop.cancelled == ["17"]


# ---- words as they come


WATCH = """whole => {
  window.wrong = [];
  const look = () => {
    const text = document.querySelector("[data-text='story']")?.textContent ?? "";
    if (!whole.startsWith(text)) wrong.push(text);
  };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}"""
"""Notes whatever is no beginning of the story, however short it stands there."""


class Telling(threading.Thread):
    """An agent that tells a story word by word, with things between that have the page rendered again."""

    def __init__(self, agent, claimed, words):
        super().__init__()
        self.agent = agent
        self.claimed = claimed
        self.words = words

    def run(self):
        self.agent.write(self.claimed, "append", records=[{"kind": "message_started", "message_id": "story"}])
        for number, word in enumerate(self.words):
            tell(self.agent, self.claimed, "story", word)
            if number % 8 == 7:
                todos = [{"content": f"Part {number}", "status": "in_progress"}]
                self.agent.write(
                    self.claimed, "append", records=[{"kind": "state_changed", "values": {"todos": todos}}]
                )
            time.sleep(0.03)


def test_a_reload_in_the_middle_of_a_stream_shows_every_word_once(world, op):
    agent, thread, claimed = begun(world, state_keys=("todos",))
    reader, other = Reader.at(op, thread), tab_of(op, thread)
    words = [f"word-{number} " for number in range(124)]
    whole = "".join(words)
    telling = Telling(agent, claimed, words)
    other.page.evaluate(WATCH, whole)
    # What is rendered for it is older than what it has been told by the time it comes.
    far = {"offline": False, "latency": 200, "downloadThroughput": -1, "uploadThroughput": -1}
    op.context.new_cdp_session(other.page).send("Network.emulateNetworkConditions", far)

    telling.start()
    for _ in range(3):
        time.sleep(0.7)
        reader.page.reload()
    telling.join()

    expect(other.last).to_have_text(whole, use_inner_text=False)
    expect(reader.last).to_have_text(whole, use_inner_text=False)
    assert [reader.last.text_content(), other.last.text_content()] == [whole, whole]
    expect(other.page.locator("#about")).to_contain_text("Part 119")
    assert other.page.evaluate("wrong") == [], "for a moment something else stood there"
    assert other.said.text_content() == "", "words were read out as they came"
    agent.write(claimed, "append", records=[{"kind": "message_ended", "message_id": "story"}])
    expect(other.said).to_contain_text("word-0 word-1")
    assert [reader.last.text_content(), other.last.text_content()] == [whole, whole]


def test_a_page_that_streams_is_for_everybody(world, op, tmp_path):
    agent, thread, claimed = begun(world, state_keys=("todos",))
    reader = Reader.at(op, thread)
    agent.write(claimed, "append", records=[
        {"kind": "state_changed", "values": {"todos": [{"content": "Tell it", "status": "in_progress"}]}},
        {"kind": "message_started", "message_id": "m1"},
        {"kind": "message_part", "message_id": "m1", "text": "Once upon a time there was a"},
        {"kind": "tool_started", "call_id": "c1", "tool": "look_up", "message_id": "m1", "arguments": {"what": "end"}},
        {"kind": "tool_progress", "call_id": "c1", "data": "page 3 of 9"},
    ])  # fmt: skip
    expect(reader.page.locator("[data-progress]")).to_have_text("page 3 of 9")
    tell(agent, claimed, "m1", " worker")

    expect(reader.last).to_have_text("Once upon a time there was a worker")
    check(op, "thread-streaming", tmp_path)


def test_text_stays_text_and_hides_nothing(world, op):
    agent, thread, claimed = begun(world)
    reader = Reader.at(op, thread)
    agent.write(claimed, "append", records=[{"kind": "message_started", "message_id": "m1"}])
    expect(reader.texts).to_have_count(2)
    title = op.page.title()

    tell(agent, claimed, "m1", HOSTILE)

    expect(reader.last).to_contain_text("\\u{202E}gnp.exe")
    streamed = reader.last.text_content()
    assert op.page.title() == title
    assert reader.last.locator("*").count() == 0
    op.page.reload()
    assert reader.last.text_content() == streamed


def test_a_reader_at_the_end_stays_there_and_nobody_else_is_moved(world, op):
    agent, thread, claimed = begun(world)
    reader = Reader.at(op, thread)
    agent.write(claimed, "append", records=[{"kind": "message_started", "message_id": "m1"}])
    tell(agent, claimed, "m1", "line\n" * 40)
    expect(reader.last).to_contain_text("line")
    reader.page.evaluate("document.getElementById('transcript').scrollIntoView({block: 'end'})")
    reader.page.wait_for_timeout(100)
    before = reader.page.evaluate("scrollY")

    tell(agent, claimed, "m1", "more\n" * 40)
    reader.page.wait_for_function("y => scrollY > y + 300", arg=before)
    reader.page.evaluate("scrollTo(0, 50)")
    reader.page.wait_for_timeout(100)
    tell(agent, claimed, "m1", "even more\n" * 40)
    expect(reader.last).to_contain_text("even more")
    reader.page.wait_for_timeout(100)

    assert reader.page.evaluate("scrollY") == 50


# ---- what somebody writes


def test_the_field_in_which_somebody_writes_does_not_run_away(world, op):
    agent, thread, claimed = begun(world)
    reader = Reader.at(op, thread)
    agent.write(claimed, "append", records=[{"kind": "message_started", "message_id": "m1"}])
    reader.box.press_sequentially("Wait")
    before = reader.box.bounding_box()["y"]

    for number in range(20):
        tell(agent, claimed, "m1", f"line {number}\n")
    expect(reader.last).to_contain_text("line 19")
    agent.write(claimed, "append", records=[{"kind": "message_ended", "message_id": "m1"}])
    expect(reader.page.locator(".streaming")).to_have_count(0)
    reader.page.wait_for_timeout(200)

    assert abs(reader.box.bounding_box()["y"] - before) <= 2


def test_what_somebody_types_stays_while_the_agent_works(world, op):
    agent, thread, claimed = begun(world)
    reader = Reader.at(op, thread)
    reader.box.press_sequentially("Look at the ")
    reader.page.keyboard.press("ArrowLeft")

    agent.say(claimed, "m1", "I am looking.")
    agent.write(claimed, "settle", output={"answer": "Done."})

    reader.stands("idle")
    expect(reader.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    assert reader.box.input_value() == "Look at the "
    assert reader.page.evaluate("[document.activeElement.id, document.activeElement.selectionStart]") == [
        "say-content", len("Look at the ") - 1,
    ]  # fmt: skip
    reader.page.keyboard.press("End")
    reader.page.keyboard.type("end.")
    reader.press("Send")
    reader.stands("running")
    expect(reader.last).to_have_text("Look at the end.")
    assert reader.box.input_value() == ""
    agent.say(agent.claim(), "m2", "There is none.")
    expect(reader.last).to_have_text("There is none.", timeout=FOLLOWED_MS)


def test_a_refusal_stands_to_be_read_and_gives_the_text_back(world, op):
    agent = world.agent()
    thread = world.thread(agent.agent)
    reader = Reader.at(op, thread)
    world.say(thread, "I was first.")

    reader.say("I am second.")

    expect(op.page.locator("#refused")).to_contain_text("Not sent: it is not idle any more")
    expect(reader.last).to_have_text("I was first.")
    assert reader.box.input_value() == "I am second."
    agent.say(agent.claim(), "m1", "I answer the first.")
    expect(reader.last).to_have_text("I answer the first.")
    expect(op.page.locator("#acts [data-changed]")).to_be_visible()
    expect(op.page.locator("#refused")).to_be_visible()
    reader.press("Follow-up")
    expect(reader.page.locator("#queue")).to_contain_text("I am second.")
    expect(op.page.locator("#refused")).to_have_count(0)
    assert reader.box.input_value() == ""
    assert op.path == f"/threads/{thread}"


def test_what_was_taken_without_an_answer_is_not_taken_again(world, op):
    agent = world.agent()
    thread = world.thread(agent.agent)
    reader = Reader.at(op, thread)

    def lose(route):
        route.fetch()
        route.abort()

    op.page.route("**/message", lose)
    reader.say("Pay the bill.")

    expect(op.page.locator("#say > .problem")).to_contain_text("Perhaps not sent")
    reader.page.evaluate("htmx.trigger('#conversation', 'news')")
    expect(op.page.get_by_role("button", name="Steer", exact=True)).to_be_visible()
    assert reader.box.input_value() == "Pay the bill."
    reader.press("Steer")
    expect(op.page.locator("#refused")).to_contain_text("This form was sent before")
    expect(reader.texts).to_have_text(["Pay the bill."])
    expect(op.page.locator("#queue")).to_have_count(0)


def test_what_the_page_shows_as_taken_before_its_answer_is_lost_is_not_taken_again(world, op):
    _agent, thread, _claimed = begun(world)
    reader = Reader.at(op, thread)
    taken = []

    def answer_late(route):
        route.fetch()
        taken.append(route)

    op.page.route("**/steer", answer_late)
    reader.say("Be brief.", "Steer")
    expect(reader.page.locator("#queue li")).to_have_count(1)
    # The page was brought up to date, controls and all, while the form waits for its answer.
    expect(reader.page.locator("#acts")).to_have_attribute("hx-get", re.compile(rf"mark=1-{revision(world, thread)}$"))
    taken[0].abort()
    expect(op.page.locator("#say > .problem")).to_contain_text("Perhaps not sent")
    op.page.unroute("**/steer")
    reader.press("Steer")

    expect(op.page.locator("#say > .problem")).to_have_count(0)
    expect(reader.box).to_have_value("")
    assert [each["content"] for each in world.snapshot(thread)["queue"]] == ["Be brief."]


def test_what_was_taken_and_cannot_be_shown_is_not_taken_again(world, op):
    agent = world.agent()
    thread = world.thread(agent.agent)
    reader = Reader.at(op, thread)

    def lead_away(route):
        answer = route.fetch(max_redirects=0)
        assert answer.status == 303
        route.fulfill(status=303, headers={"Location": "/threads/nothing"})

    op.page.route("**/message", lead_away)
    reader.say("Pay the bill.")
    expect(op.page.locator("#say > .problem")).to_contain_text("Perhaps done")
    op.page.unroute("**/message")
    reader.press("Send")

    reader.stands("running")
    assert reader.box.input_value() == ""
    assert [run["number"] for run in world.snapshot(thread)["runs"]] == [1]
    expect(reader.texts).to_have_text(["Pay the bill."])


def test_what_somebody_writes_while_a_form_is_on_its_way_stays(world, op):
    agent = world.agent()
    thread = world.thread(agent.agent)
    reader = Reader.at(op, thread)
    sent = []
    op.page.route("**/message", lambda route: sent.append(route))  # noqa: PLW0108 - it is given attributes
    reader.say("First.")
    wait_for(lambda: op.page.wait_for_timeout(50) or sent)
    reader.box.press_sequentially(" And another thing")

    sent[0].continue_()

    reader.stands("running")
    expect(reader.last).to_have_text("First.")
    assert "And another thing" in reader.box.input_value()


def revision(world, thread):
    return world.snapshot(thread)["thread"]["revision"]


def test_an_answer_that_does_not_fit_is_marked_and_kept(world, op):
    agent, thread, claimed = begun(world)
    number = {"type": "integer", "title": "How many?", "minimum": 1}
    shown = {"question": "How many?"}
    agent.write(claimed, "wait", requests=[{**QUESTIONS[0], "schema": number, "shown": shown}])
    reader = Reader.at(op, thread)
    field = reader.page.locator(".ask").get_by_role("textbox")
    reader.box.fill("Meanwhile")

    field.fill("a few")
    reader.press("Send the answer")

    expect(reader.page.locator("#incomplete")).to_be_visible()
    expect(field).to_have_attribute("aria-invalid", "true")
    assert field.input_value() == "a few"
    field.fill("3")
    reader.press("Send the answer")
    reader.stands("running")
    assert [each["reply"] for each in agent.claim().run["replies"]] == [3]
    assert reader.box.input_value() == "Meanwhile"


def test_a_steer_a_follow_up_and_a_stop_reach_the_agent(world, op):
    agent, thread, claimed = begun(world)
    reader = Reader.at(op, thread)

    reader.say("Be brief.", "Steer")
    expect(reader.page.locator("#queue")).to_contain_text("Be brief.")
    reader.say("And then the weather.", "Follow-up")
    expect(reader.page.locator("#queue li")).to_have_count(2)
    (steer,) = agent.calls.heartbeat(claimed, steers_read=0)["steers"]
    read = [{"kind": "progress", "data": "read"}]
    agent.write(claimed, "append", records=read, steers_read=steer["number"])
    expect(reader.last).to_have_text("Be brief.")
    expect(reader.page.locator("#queue li")).to_have_count(1)
    reader.unfold("stop")
    reader.press("Stop")

    expect(reader.page.locator("#thread-state")).to_contain_text("Stopping")
    agent.write(claimed, "settle", output={"answer": "I stop."})
    reader.stands("idle")
    expect(reader.page.locator("#run-1")).to_contain_text("Stopped")
    expect(reader.page.locator("#queue")).to_contain_text("And then the weather.")


QUESTIONS = [
    {
        "task": "ask", "ordinal": number, "kind": "reply", "schema": {"type": "string", "title": title},
        "shown": {"question": title},
    }
    for number, title in enumerate(("Which city?", "Which day?"))
]  # fmt: skip


def test_an_answer_in_one_tab_appears_in_the_other_and_takes_nothing_from_it(world, op):
    agent, thread, claimed = begun(world)
    agent.write(claimed, "wait", requests=QUESTIONS)
    reader, other = Reader.at(op, thread), tab_of(op, thread)
    city, day = (other.page.locator(".ask").nth(number) for number in (0, 1))
    day.get_by_role("textbox").fill("Monday, I thi")
    mine = reader.page.locator(".ask").first

    mine.get_by_role("textbox").fill("Lisbon")
    mine.get_by_role("button", name="Send the answer").click()

    expect(mine).to_contain_text("Lisbon")
    expect(city).to_contain_text("Lisbon", timeout=POLLED_MS)
    expect(city).to_contain_text("Answered")
    assert day.get_by_role("textbox").input_value() == "Monday, I thi"
    # What is asked no longer is not taken away from whoever writes an answer to it.
    reader.page.locator(".ask").nth(1).get_by_role("textbox").fill("Sunday")
    reader.press("Send the answer")
    reader.stands("running")
    other.page.evaluate("htmx.trigger('#acts', 'news')")
    mine = other.page.locator(".ask").last
    expect(mine).to_contain_text("not taken any more")
    assert mine.get_by_role("textbox").input_value() == "Monday, I thi"


# ---- what breaks


def test_without_a_place_for_a_stream_the_page_asks_for_pages_and_goes_back(world, op):
    agent, thread, claimed = begun(world)
    others = [tab_of(op, thread) for _ in range(4)]
    for each in others:
        expect(each.last).to_have_text("Tell me a story.")
    answers = []
    op.page.on("response", lambda answer: answers.append(answer.status) if "journal" in answer.url else None)
    reader = Reader.at(op, thread)
    agent.write(claimed, "append", records=[{"kind": "message_started", "message_id": "m1"}])

    tell(agent, claimed, "m1", "You are heard.")

    expect(reader.last).to_have_text("You are heard.")
    assert 503 in answers
    expect(reader.note).to_have_text("")
    for each in others:
        each.page.close()
    answers.clear()
    wait_for(lambda: op.page.wait_for_timeout(100) or _is_streaming(op.page))
    tell(agent, claimed, "m1", " Again.")
    expect(reader.last).to_have_text("You are heard. Again.")


def _is_streaming(page):
    """Say whether the page has asked for nothing of late: it is told."""
    entries = "performance.getEntriesByType('resource').filter(e => e.name.includes('journal')).length"
    before = page.evaluate(entries)
    page.wait_for_timeout(2_500)
    return page.evaluate(entries) == before


def test_a_server_that_is_gone_is_told_and_its_return_needs_nobody(world, op):
    agent, thread, claimed = begun(world)
    reader = Reader.at(op, thread)
    agent.write(claimed, "append", records=[{"kind": "message_started", "message_id": "m1"}])
    tell(agent, claimed, "m1", "One, ")
    expect(reader.last).to_have_text("One, ")

    world.stage.stop()
    expect(reader.note).to_contain_text("No news from the server. This page shows the state of ")
    assert reader.last.text_content() == "One, "
    world.stage.start()
    tell(agent, claimed, "m1", "two.")

    expect(reader.last).to_have_text("One, two.")
    expect(reader.note).to_have_text("")


def test_a_position_from_before_a_restore_has_the_page_loaded_anew(world, op):
    agent, thread, claimed = begun(world)

    def older(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=re.sub(r'(data-checkpoint="|mark=)1-', r"\g<1>7-", answer.text()))

    op.page.route(f"**/threads/{thread}", older)
    reader = Reader.at(op, thread)
    agent.say(claimed, "m1", "Still here.")

    expect(reader.last).to_have_text("Still here.")
    agent.say(claimed, "m2", "And again.")
    expect(reader.last).to_have_text("And again.")
    expect(reader.texts).to_have_count(3)


def test_signing_out_in_another_tab_stops_the_page_and_takes_nothing(world, open_visit):
    agent, thread, claimed = begun(world)
    visit = open_visit(world.stage.url)
    visit.sign_in("op", world.passwords["op"])
    reader = Reader.at(visit, thread)
    reader.box.fill("A long thought")
    other = tab_of(visit, thread)

    other.page.get_by_role("button", name="Sign out").click()
    other.page.wait_for_url("**/login")

    expect(reader.note).to_contain_text("You have been signed out")
    expect(reader.note.get_by_role("link", name="Sign in again in a new tab")).to_be_visible()
    agent.say(claimed, "m1", "Secret.")
    reader.page.wait_for_timeout(1_000)
    assert "Secret." not in reader.page.locator("#transcript").inner_text()
    # Somebody who has signed in again goes on where the page stood.
    Visit(visit.context, other.page, visit.url).sign_in("op", world.passwords["op"])
    reader.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(reader.last).to_have_text("Secret.")
    expect(reader.note).to_have_text("")
    assert reader.box.input_value() == "A long thought"


def test_a_session_whose_end_the_claim_hears_of_first_takes_nothing(world, open_visit):
    _agent, thread, _claimed = begun(world)
    visit = open_visit(world.stage.url)
    visit.sign_in("op", world.passwords["op"])
    visit.page.clock.install()
    visit.page.route(re.compile(r"/threads/[^/]+/(live|acts|journal)\b"), lambda route: route.abort())
    reader = Reader.at(visit, thread)
    reader.box.fill("A long thought")
    expect(reader.page.locator("#claim")).to_contain_text("A worker has this run")
    visit.context.clear_cookies()

    visit.page.clock.fast_forward(CLAIM_POLLED_MS)

    expect(reader.note).to_contain_text("You have been signed out")
    assert visit.path == f"/threads/{thread}"
    assert reader.box.input_value() == "A long thought"


def test_a_list_whose_session_ends_takes_no_name_that_is_being_written_beside_it(world, op):
    world.agent()
    op.go("/threads")
    name = op.field("Name")
    if not name.is_visible():
        op.page.locator("#new-thread summary").first.click()
    name.fill("half-a-name")
    op.context.clear_cookies()

    expect(op.page.locator("#trouble")).to_contain_text("You have been signed out.")
    assert op.path == "/threads"
    expect(name).to_have_value("half-a-name")


def test_a_claim_that_is_over_asks_no_more_and_takes_no_control_away(world, op):
    agent, thread, claimed = begun(world)
    op.page.clock.install()
    reader = Reader.at(op, thread)
    expect(reader.page.locator("#claim")).to_contain_text("A worker has this run")
    agent.write(claimed, "settle", output={"answer": "Done."})
    send = reader.page.get_by_role("button", name="Send", exact=True)
    expect(send).to_be_visible()
    expect(reader.page.locator("#claim")).to_be_hidden()
    asked = []
    op.page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/claim") else None)

    op.page.clock.fast_forward(CLAIM_POLLED_MS)
    op.page.wait_for_timeout(1_000)

    expect(send).to_be_visible()
    assert asked == []


def test_a_tab_that_nobody_sees_leaves_its_place_and_catches_up(world, op):
    agent, thread, claimed = begun(world)
    op.page.clock.install()
    reader = Reader.at(op, thread)
    agent.write(claimed, "append", records=[{"kind": "message_started", "message_id": "m1"}])
    tell(agent, claimed, "m1", "Seen, ")
    expect(reader.last).to_have_text("Seen, ")
    hide = (
        "is => { Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )

    op.page.evaluate(hide, True)
    op.page.clock.fast_forward(31_000)
    tell(agent, claimed, "m1", "unseen, ")
    op.page.wait_for_timeout(700)
    assert reader.last.text_content() == "Seen, "
    op.page.evaluate(hide, False)

    expect(reader.last).to_have_text("Seen, unseen, ", timeout=FOLLOWED_MS)
    tell(agent, claimed, "m1", "seen again.")
    expect(reader.last).to_have_text("Seen, unseen, seen again.", timeout=FOLLOWED_MS)


def test_a_thread_that_is_deleted_ends_its_page(world, op):
    agent, thread, claimed = begun(world)
    agent.write(claimed, "settle", output={"answer": "Done."})
    reader = Reader.at(op, thread)
    with PersonConnection(world.stage.url) as again:
        again.sign_in("op", world.passwords["op"])
        again.call("DELETE", f"/v1/threads/{thread}")

    reader.page.evaluate("htmx.trigger('#conversation', 'news')")

    expect(reader.note).to_contain_text("This thread is not there any more")
    expect(reader.note.get_by_role("link", name="All threads")).to_be_visible()
