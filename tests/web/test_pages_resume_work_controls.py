"""What people do to work from its page: done, refused with the reason, or asked for what is missing."""

from __future__ import annotations

import html
import re

import pytest
import sqlalchemy as sa

from app.pages.conflicts import CONFLICTS
from app.pages.controls import DONE
from app.pages.explanations import Control
from continuity import limits
from continuity.services.callers import Role
from continuity.services.deletion import Deletions
from continuity.store import schema
from tests.people import change_vault
from tests.web.pages import get, post
from tests.web.reading import LIST, page_of, text_of
from tests.web.scenes import MAIL, PUBLISH, QUERY, Stage

WAIT_S = 61


@pytest.fixture
def stage(site):
    return Stage(site)


@pytest.fixture
def op(stage):
    stage.site.person("op")
    return stage.site.signed_in("op")


def form_of(reply, action: str, answer: str = "") -> dict[str, str]:
    """Return what a browser would send of a form before anybody writes into it."""
    forms = re.findall(rf'<form[^>]*action="[^"]*/{action}"[^>]*>.*?</form>', reply.text, flags=re.DOTALL)
    form = next(each for each in forms if not answer or f'name="happened" value="{answer}"' in each)
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)
    return {name: html.unescape(value) for name, value in hidden if name != "csrf_token"}


def press(browser, scene, action: str, *, answer: str = "", seen=None, **written: str):
    """Fill in a form of the page, as it is now or as it was `seen`, and send it."""
    page = seen or get(browser, page_of(scene))
    return post(browser, f"{page_of(scene)}/{action}", {**form_of(page, action, answer), **written})


def arrive(browser, reply) -> str:
    """Follow the redirect; return the words of the page."""
    assert reply.status_code == 303, text_of(reply)
    return text_of(get(browser, reply.headers["Location"]))


def audit_actions(site) -> list[str]:
    return [
        row.action
        for row in site.wiring.store.read(
            lambda c: c.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
        )
    ]


# ---- done


def test_enabling_lets_a_worker_begin_and_says_so_once(stage, op):
    scene = stage.prepare()

    reply = press(op, scene, "enable")

    assert reply.headers["Location"] == page_of(scene)
    said = arrive(op, reply)
    assert DONE["work_enabled"] in said
    assert "Ready for its first attempt" in said
    assert DONE["work_enabled"] not in text_of(get(op, page_of(scene)))
    scene.begin()


def test_pausing_keeps_attempts_away_and_takes_the_receipt_of_one_granted_before(stage, op):
    scene = stage.mail()
    attempt = scene.begin()

    said = arrive(op, press(op, scene, "pause"))

    assert DONE["work_paused"] in said
    assert "New attempts paused" in said
    assert attempt.succeed()["accepted"] is True


def test_stopping_ends_the_operation_with_the_reason_in_the_history(stage, op):
    scene = stage.ready(PUBLISH, MAIL)

    said = arrive(op, press(op, scene, "stop", reason="Wrong document.\r\nAda asked for it."))

    assert DONE["work_stopped"] in said
    assert "Stopped before it had any effect" in said
    assert "Wrong document. Ada asked for it." in said
    assert "Will not run" in said
    assert scene.view()["phase"] == "ended"
    assert scene.view()["history"][-1]["reason"] == "Wrong document.\nAda asked for it."
    assert audit_actions(stage.site).count("workflow.operation_stopped") == 1


def test_confirming_that_it_happened_completes_it_with_what_was_written(stage, op):
    scene = stage.mail()
    scene.lose()

    said = arrive(op, press(
        op, scene, "confirm", answer="yes", effect_id="msg-77", result='{"url": "x", "n": [1, null]}', reason="Seen.",
    ))  # fmt: skip

    assert DONE["work_happened"] in said
    assert "Completed on a person's word" in said
    receipt = scene.view()["operations"][0]["receipt"]
    assert (receipt["effect_id"], receipt["result"]) == ("msg-77", {"url": "x", "n": [1, None]})


def test_confirming_that_it_did_not_happen_allows_exactly_one_more(stage, op):
    scene = stage.mail()
    scene.lose()

    said = arrive(op, press(op, scene, "confirm", answer="no", looked="yes", reason="Not in the outbox."))

    assert DONE["work_did_not_happen"] in said
    assert "Ready once more, on a person's word" in said
    assert "A person confirmed that it did not happen." in said
    assert "The effect may have happened." not in said
    assert "Not done yet" in said
    in_list = text_of(get(op, LIST))
    assert "Not done yet" in in_list
    assert "Not started" not in in_list
    scene.begin().succeed()
    assert scene.view()["phase"] == "done"


def test_deleting_destroys_it_and_goes_back_to_the_list(stage, op):
    scene = stage.mail(key="to-forget").stop()

    reply = press(op, scene, "delete", sure="yes")

    assert reply.headers["Location"] == LIST
    said = arrive(op, reply)
    assert DONE["work_deleted"] in said
    assert "to-forget" not in said
    assert get(op, page_of(scene)).status_code == 409


# ---- refused


def stale(stage, scene):
    scene.pause()
    scene.enable()


def deleted(stage, scene):
    stage.services.deletions.delete(stage.person, scene.workflow_id)


def refusals():
    """Return for every control and code how to get there: the work, what happens after the page was opened."""
    nothing = lambda _stage, _scene: None  # noqa: E731

    def lost(stage):
        scene = stage.mail(**QUERY)
        scene.lose()
        return scene

    def stop_and_delete(stage, scene):
        scene.stop()
        deleted(stage, scene)

    def begin(_stage, scene):
        scene.begin()

    def set_clock_back(stage, _scene):
        stage.site.clock.set_back(60)

    def reduce_capture(stage, _scene):
        change_vault(stage.site.wiring.store, stage.site.wiring.vault, capture_mode="metadata")

    return {
        (Control.ENABLE, "stale_revision"): (lambda s: s.prepare(), stale_by_stopping_other),
        (Control.ENABLE, "capture_not_full"): (lambda s: s.prepare(), reduce_capture),
        (Control.ENABLE, "clock_moved_backwards"): (lambda s: s.prepare(), set_clock_back),
        (Control.ENABLE, "workflow_deleted"): (lambda s: s.prepare(), stop_and_delete),
        (Control.PAUSE, "stale_revision"): (lambda s: s.mail(), begin),
        (Control.PAUSE, "workflow_deleted"): (lambda s: s.mail(), stop_and_delete),
        (Control.STOP, "stale_revision"): (lambda s: s.mail(), begin),
        (Control.STOP, "workflow_deleted"): (lambda s: s.mail(), stop_and_delete),
        (Control.CONFIRM, "stale_revision"): (lost, stale),
        (Control.CONFIRM, "effect_may_still_land"): (unsure, nothing),
        (Control.CONFIRM, "workflow_deleted"): (lost, stop_and_delete),
        (Control.DELETE, "workflow_deleted"): (lambda s: s.mail().stop(), deleted),
        (Control.DELETE, "stale_revision"): (stopped_late, a_late_receipt_comes),
    }


def stale_by_stopping_other(stage, scene):
    scene.enable()
    scene.pause()


def unsure(stage):
    scene = stage.mail()
    scene.begin().report("unknown")
    return scene


def stopped_late(stage):
    scene = stage.mail()
    scene.attempt = scene.lose()
    return scene.stop()


def a_late_receipt_comes(stage, scene):
    stage.site.clock.advance(1)
    scene.attempt.succeed()


WRITTEN = {
    Control.ENABLE: {},
    Control.PAUSE: {},
    Control.STOP: {"reason": "No longer wanted <here>."},
    Control.CONFIRM: {"reason": "Looked at the <outbox>.", "looked": "yes"},
    Control.DELETE: {"sure": "yes"},
}


@pytest.mark.parametrize("pair", refusals(), ids=lambda pair: f"{pair[0]}-{pair[1]}")
def test_a_refusal_says_why_changes_nothing_and_shows_the_new_state(stage, op, pair):
    control, code = pair
    make, meanwhile = refusals()[pair]
    scene = make(stage)
    seen = get(op, page_of(scene))
    meanwhile(stage, scene)
    answer = "no" if control is Control.CONFIRM else ""
    before = stage.site.rows(schema.workflows), stage.site.rows(schema.events)

    reply = press(op, scene, str(control), answer=answer, seen=seen, **WRITTEN[control])

    assert reply.status_code == 409
    text = CONFLICTS[control][code]
    assert text.title in html.unescape(reply.text)
    if code != "workflow_deleted":
        assert "Nothing was changed." in reply.text
        assert scene.workflow_id in reply.text
    assert (stage.site.rows(schema.workflows), stage.site.rows(schema.events)) == before


@pytest.mark.parametrize(("control", "said"), [("enable", "It is enabled already"), ("pause", "It is paused already")])
def test_what_somebody_else_has_done_meanwhile_is_said_to_be_so(stage, op, control, said):
    scene = stage.prepare() if control == "enable" else stage.mail()
    seen = get(op, page_of(scene))
    scene.enable() if control == "enable" else scene.pause()

    reply = press(op, scene, control, seen=seen)

    assert reply.status_code == 409
    assert said in reply.text
    assert "still agree" not in reply.text


@pytest.mark.parametrize("control", ["enable", "pause", "stop", "confirm", "delete"])
def test_the_address_of_a_control_leads_to_the_page_of_its_work(stage, op, control):
    scene = stage.mail()

    reply = get(op, f"{page_of(scene)}/{control}")

    assert (reply.status_code, reply.headers["Location"]) == (303, page_of(scene))


@pytest.mark.parametrize(("control", "code"), [
    (Control.STOP, "lease_live"), (Control.STOP, "operation_final"),
    (Control.CONFIRM, "lease_live"), (Control.CONFIRM, "operation_final"),
    (Control.DELETE, "workflow_unfinished"),
])  # fmt: skip
def test_a_form_that_the_page_does_not_offer_is_refused_with_its_own_sentence(stage, op, control, code):
    scene = stage.mail()
    scene.stop() if code == "operation_final" else scene.begin()
    view = scene.view()
    fields = {"name": "send-mail", "revision": str(view["revision"]), **WRITTEN[control]}
    if control is Control.CONFIRM:
        fields |= {"happened": "no", "late_receipts": "0"}
    if control is Control.DELETE:
        fields = {"mark": view["pulse"], "sure": "yes"}

    reply = post(op, f"{page_of(scene)}/{control}", fields)

    assert reply.status_code == 409
    assert CONFLICTS[control][code].title in html.unescape(reply.text)


@pytest.mark.parametrize("control", [Control.ENABLE, Control.PAUSE, Control.STOP, Control.CONFIRM])
def test_a_control_beyond_the_last_change_says_so(stage, op, monkeypatch, control):
    scene = stage.mail(**QUERY)
    scene.lose()
    if control is Control.ENABLE:
        scene.pause()
    monkeypatch.setattr(limits, "REVISIONS_PER_WORKFLOW", 0)
    monkeypatch.setattr(limits, "CONTROL_HEADROOM", 0)
    fields = {"revision": str(scene.view()["revision"])}
    if control in {Control.STOP, Control.CONFIRM}:
        fields |= {"name": "send-mail", "reason": "It is."}
    if control is Control.CONFIRM:
        fields |= {"happened": "yes", "late_receipts": "0", "effect_id": "e"}

    reply = post(op, f"{page_of(scene)}/{control}", fields)

    assert reply.status_code == 409
    assert CONFLICTS[control]["workflow_revision_limit_reached"].title in html.unescape(reply.text)


def test_did_not_happen_without_an_attempt_left_is_refused_and_not_offered(stage, op, monkeypatch):
    monkeypatch.setattr(limits, "ATTEMPTS_PER_OPERATION", 1)
    scene = stage.mail()
    scene.lose()
    page = get(op, page_of(scene))
    assert "no attempt is left that could follow" in page.text
    fields = {**form_of(page, "confirm", "yes"), "happened": "no", "looked": "yes", "reason": "Not there."}

    reply = post(op, f"{page_of(scene)}/confirm", fields)

    assert reply.status_code == 409
    assert CONFLICTS[Control.CONFIRM]["attempt_limit_reached"].title in html.unescape(reply.text)


def test_the_second_of_two_operators_is_told_that_the_first_decided(stage, op):
    stage.site.person("eva")
    eva = stage.site.signed_in("eva")
    scene = stage.mail()
    scene.lose()
    seen = get(eva, page_of(scene))
    press(op, scene, "confirm", answer="yes", effect_id="msg-1", reason="Seen by me.")

    reply = press(eva, scene, "confirm", answer="no", seen=seen, looked="yes", reason="Nothing there.")

    said = text_of(reply)
    assert reply.status_code == 409
    assert "Not confirmed: there is something you have not seen" in said
    assert "Seen by me." in said
    assert "by op" in said


def test_a_late_receipt_that_came_after_the_page_was_opened_must_be_read_first(stage, op):
    scene = stage.mail(**QUERY)
    attempt = scene.lose()
    scene.begin().report("absent")
    seen = get(op, page_of(scene))
    attempt.succeed()

    reply = press(op, scene, "confirm", answer="no", seen=seen, looked="yes", reason="Nothing there.")

    said = text_of(reply)
    assert reply.status_code == 409
    assert "Not confirmed: there is something you have not seen" in said
    assert "A late receipt claims that it happened" in said
    assert "Nothing there." in said


def test_a_late_receipt_that_comes_while_the_work_is_being_deleted_is_not_destroyed_unread(stage, op, monkeypatch):
    scene = stopped_late(stage)
    delete = Deletions.delete

    def overtaken(*given, **named):
        a_late_receipt_comes(stage, scene)
        return delete(*given, **named)

    monkeypatch.setattr(Deletions, "delete", overtaken)

    reply = press(op, scene, "delete", sure="yes")

    assert reply.status_code == 409
    assert "work_deleted" not in reply.headers.get("Set-Cookie", "")
    assert "late receipt" in text_of(get(op, page_of(scene))).lower()


# ---- incomplete


@pytest.mark.parametrize(
    ("answer", "written", "problem"),
    [
        ("yes", {"effect_id": " ", "reason": "Seen."}, "Name the effect as the destination does"),
        ("yes", {"effect_id": "x" * 1_025, "reason": "Seen."}, "At most 1,024 characters; these are 1,025."),
        ("yes", {"effect_id": "e", "reason": " \n"}, "Say why"),
        ("yes", {"effect_id": "e", "reason": "x" * 1_001}, "At most 1,000 characters; these are 1,001."),
        ("yes", {"effect_id": "e", "reason": "y", "result": "{"}, "This is not one JSON value as AtMem keeps it."),
        ("yes", {"effect_id": "e", "reason": "y", "result": 'null, "x": 1'}, "This is not one JSON value"),
        ("yes", {"effect_id": "e", "reason": "y", "result": "NaN"}, "This is not one JSON value as AtMem keeps it."),
        ("yes", {"effect_id": "e", "reason": "y", "result": f'"{"x" * 66_000}"'}, "At most 64 KiB."),
        ("no", {"reason": "Not there."}, "Look at the destination now, then tick this."),
        ("no", {"looked": "yes", "reason": ""}, "Say why"),
    ],
)
def test_what_a_confirmation_lacks_is_told_beside_its_field_and_the_rest_is_kept(stage, op, answer, written, problem):
    scene = stage.mail()
    scene.lose()
    before = scene.view()["revision"]

    reply = press(op, scene, "confirm", answer=answer, **written)

    assert reply.status_code == 422
    assert problem in text_of(reply)
    assert 'aria-invalid="true"' in reply.text
    assert scene.view()["revision"] == before
    kept = written["reason"].strip()
    assert not kept or kept in html.unescape(reply.text)
    opened = re.search(r'<details class="control" id="control-confirm-1"( open)?', reply.text)
    assert opened[1]


def test_a_stop_without_a_reason_is_asked_for_one(stage, op):
    scene = stage.ready(PUBLISH, MAIL)

    reply = press(op, scene, "stop", reason="")

    assert reply.status_code == 422
    assert "Say why: whoever reads the history later was not here." in text_of(reply)
    assert len(re.findall("Say why", reply.text)) == 1


def test_a_deletion_must_be_meant(stage, op):
    scene = stage.mail().stop()

    reply = press(op, scene, "delete")

    assert reply.status_code == 422
    assert "Tick this first" in text_of(reply)
    assert scene.view()["phase"] == "ended"


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("enable", {}),
        ("enable", {"revision": "-1"}),
        ("enable", {"revision": "1e3"}),
        ("enable", {"revision": "9" * 40}),
        ("enable", {"revision": "1", "extra": "1"}),
        ("stop", {"name": "../x", "reason": "r", "revision": "1"}),
        ("confirm", {"name": "send-mail", "happened": "perhaps", "reason": "r", "revision": "1", "late_receipts": "0"}),
    ],
)
def test_fields_that_no_form_of_ours_has_are_refused(stage, op, action, fields):
    scene = stage.mail()

    reply = post(op, f"{page_of(scene)}/{action}", fields)

    assert reply.status_code == 400
    assert "This request cannot be read" in reply.text


def test_an_operation_that_is_not_there_is_not_found(stage, op):
    scene = stage.mail()
    fields = {"name": "another", "reason": "r", "revision": str(scene.view()["revision"])}

    assert post(op, f"{page_of(scene)}/stop", fields).status_code == 404


# ---- who


# ---- the password, and forms that have grown old

TYPED = {
    "confirm": {"effect_id": "msg-77 <1>", "result": '{"n": "</textarea>"}', "reason": "Ada has it.\nLook."},
    "delete": {"sure": "yes"},
    "stop": {"reason": "The release <is> off."},
}
FROM_HERE = {"Sec-Fetch-Site": "same-origin"}


def opened(stage, op, action):
    """Return work to which `action` applies, and its page as it was when somebody began to write."""
    scene = stage.mail()
    if action == "confirm":
        scene.lose()
    if action == "delete":
        scene.stop()
    return scene, get(op, page_of(scene))


def send(browser, scene, action, seen, *, token="own", **more):
    """Send what `TYPED` has into the form of the page that was `seen`."""
    hidden = form_of(seen, action, "yes" if action == "confirm" else "")
    typed = {**hidden, **TYPED[action], **more.pop("fields", {})}
    return post(browser, f"{page_of(scene)}/{action}", typed, token=token, **more)


def is_kept(action, reply):
    """Say whether everything that was typed stands in the form again."""
    if action == "delete":
        return re.search(r'id="delete-sure"[^>]* checked', reply.text) is not None
    return all(text in html.unescape(reply.text) for text in TYPED[action].values())


@pytest.mark.parametrize("action", ["confirm", "delete"])
def test_a_password_that_has_grown_old_is_asked_for_in_the_form_and_nothing_is_lost(stage, op, action):
    scene, seen = opened(stage, op, action)
    stage.site.clock.advance(601)
    before = stage.site.rows(schema.workflows), stage.site.rows(schema.events)

    asked = send(op, scene, action, seen)

    assert asked.status_code == 403
    assert "Your password is needed once more" in text_of(asked)
    assert is_kept(action, asked)
    assert 'name="password"' in asked.text
    assert (stage.site.rows(schema.workflows), stage.site.rows(schema.events)) == before
    done = send(op, scene, action, asked, fields={"password": stage.site.passwords["op"]})
    assert done.status_code == 303


@pytest.mark.parametrize("action", ["confirm", "delete"])
def test_a_wrong_password_in_a_form_loses_nothing_and_is_never_shown(stage, op, action):
    scene, seen = opened(stage, op, action)
    stage.site.clock.advance(601)

    asked = send(op, scene, action, seen, fields={"password": "not-this-one"})

    assert asked.status_code == 422
    assert "The password is wrong." in text_of(asked)
    assert "not-this-one" not in asked.text
    assert is_kept(action, asked)
    assert audit_actions(stage.site).count("user.reauthenticate") == 1


def test_passwords_in_a_form_are_counted_as_everywhere(stage, op):
    scene, seen = opened(stage, op, "confirm")
    stage.site.clock.advance(601)

    replies = [send(op, scene, "confirm", seen, fields={"password": f"guess {n}"}) for n in range(7)]

    assert replies[-1].status_code == 429
    assert int(replies[-1].headers["Retry-After"]) > 0
    assert is_kept("confirm", replies[-1])


def test_a_right_password_begins_a_new_session_even_where_the_form_lacks_something(stage, op):
    scene, seen = opened(stage, op, "confirm")
    stage.site.clock.advance(601)
    old = op.cookie()

    asked = send(op, scene, "confirm", seen, fields={"password": stage.site.passwords["op"], "reason": " "})

    assert asked.status_code == 422
    assert 'name="password"' not in asked.text
    assert op.cookie() != old
    assert stage.site.wiring.auth.sessions.peek(old) is None
    # The token of the page that came back belongs to the session that came with it.
    token = re.search(r'name="csrf_token" value="([^"]+)"', asked.text)[1]
    assert send(op, scene, "confirm", asked, token=token).status_code == 303


@pytest.mark.parametrize("action", TYPED)
def test_what_was_written_before_the_session_went_on_elsewhere_is_shown_again_and_not_done(stage, op, action):
    scene, seen = opened(stage, op, action)
    old = re.search(r'name="csrf_token" value="([^"]+)"', seen.text)[1]
    post(op, "/reauthenticate", {"password": stage.site.passwords["op"]})
    before = stage.site.rows(schema.workflows), stage.site.rows(schema.events)

    again = send(op, scene, action, seen, token=old, **FROM_HERE)

    assert again.status_code == 403
    assert "You signed in again after this form was opened" in text_of(again)
    assert action == "delete" or is_kept(action, again)
    assert (stage.site.rows(schema.workflows), stage.site.rows(schema.events)) == before
    assert send(op, scene, action, again).status_code == 303


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}])
def test_words_that_another_site_sends_never_stand_on_our_page(stage, op, headers):
    scene, seen = opened(stage, op, "stop")

    strange = send(op, scene, "stop", seen, token="A" * 43, fields={"reason": "planted words"}, **headers)
    op.client.delete_cookie("atmem_session")
    nobody = send(op, scene, "stop", seen, token=None, fields={"reason": "planted words"}, **headers)

    assert (strange.status_code, nobody.status_code) == (403, 303)
    assert "planted words" not in strange.text + nobody.text


@pytest.mark.parametrize("action", ["confirm", "stop"])
def test_what_was_written_before_the_session_ended_stands_in_the_reply_alone(stage, op, action):
    scene, seen = opened(stage, op, action)
    old = re.search(r'name="csrf_token" value="([^"]+)"', seen.text)[1]
    stage.site.wiring.auth.sessions.end(op.cookie())

    told = send(op, scene, action, seen, token=old, **FROM_HERE)

    assert told.status_code == 401
    assert "You were signed out while you wrote" in text_of(told)
    assert is_kept(action, told)
    assert "Location" not in told.headers
    assert not any("msg-77" in value or "release" in value for value in told.headers.values())


@pytest.mark.parametrize("role", [Role.INVESTIGATOR, Role.OPERATOR])
def test_a_form_that_has_grown_old_shows_nobody_what_they_may_not_see(stage, role):
    stage.host_of("there", workspace_id="other")
    stage.site.person("far", role, at=("other",))
    browser = stage.site.signed_in("far")
    scene = stage.mail(key="not-for-them")

    fields = {"name": "send-mail", "reason": "Mine.", "revision": "1"}
    reply = post(browser, f"{page_of(scene)}/stop", fields, token="A" * 43, **FROM_HERE)

    assert reply.status_code == 403
    assert "not-for-them" not in reply.text


def test_what_was_written_stays_readable_when_its_form_is_no_longer_offered(stage, op):
    scene, seen = opened(stage, op, "confirm")
    scene.stop()

    reply = send(op, scene, "confirm", seen)

    assert reply.status_code == 409
    assert is_kept("confirm", reply)


@pytest.mark.parametrize("action", ["enable", "pause", "stop", "confirm", "delete"])
def test_an_investigator_is_refused_before_anything_is_looked_up(stage, action):
    stage.site.person("inv", Role.INVESTIGATOR)
    browser = stage.site.signed_in("inv")
    scene = stage.mail()

    replies = [post(browser, f"{address}/{action}", {}) for address in (page_of(scene), f"{LIST}/wf_{'0' * 32}")]

    assert [reply.status_code for reply in replies] == [403, 403]
    assert "You may not do this" in replies[0].text
