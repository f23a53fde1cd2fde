"""Decisions → Resume work as a browser without scripts meets it."""

from __future__ import annotations

import hashlib
import html
import json
import re

import pytest
import sqlalchemy as sa

from app.pages.worklist import TABS
from continuity import limits
from continuity.jsontext import canonical_bytes
from continuity.services.callers import Role
from continuity.store import listing, schema
from tests.web.pages import HTMX, get, post
from tests.web.reading import LIST, counts_in, cursor_in, keys_in, page_of, poll_of, text_of
from tests.web.scenes import FINAL_QUERY, IDEMPOTENT, LEASE_OVER_S, MAIL, PUBLISH, QUERY, Stage


@pytest.fixture
def stage(site):
    return Stage(site)


@pytest.fixture
def op(stage):
    stage.site.person("op")
    return stage.site.signed_in("op")


def audited(site) -> int:
    return len(site.rows(schema.audit))


# ---- the list


def test_an_empty_list_says_what_to_do_first_with_the_command(op):
    reply = get(op, LIST)

    assert reply.status_code == 200
    said = text_of(reply)
    assert "No work has been prepared yet" in said
    assert "atmem continuity credential \\ --principal document-operator --token-only" in said
    assert "python -m continuity.example prepare --workflow-key publish-my-document" in said
    assert "--url" not in said


def test_the_first_commands_name_the_address_of_this_server(https_site):
    https_site.person("op")
    browser = https_site.signed_in("op")

    assert "--token-only --url https://atmem.example" in text_of(get(browser, LIST))


def test_every_phase_has_a_tab_with_its_count_and_what_needs_a_decision_comes_first(stage, op):
    stage.mail().lose()
    stage.prepare()
    stage.mail()
    stage.mail().pause()
    stage.mail().begin().succeed()
    stage.mail().stop()
    stage.mail(**QUERY).lose()
    stage.mail().begin()

    reply = get(op, LIST)

    assert list(counts_in(reply)) == [*(phase.value for phase in TABS), "all"]
    assert next(iter(counts_in(reply))) == "decision"
    assert counts_in(reply)["all"] == "8"
    assert len(keys_in(reply)) == 8
    assert counts_in(reply)["review"] == counts_in(reply)["paused"] == counts_in(reply)["done"] == "1"


@pytest.mark.parametrize("phase", TABS)
def test_a_phase_without_work_says_so_in_its_own_words(stage, op, phase):
    stage.prepare() if phase != "review" else stage.mail()

    said = text_of(get(op, f"{LIST}?state={phase}"))

    assert "No work has been prepared yet" not in said
    others = {text_of(get(op, f"{LIST}?state={other}")) for other in TABS if other != phase}
    assert said not in others


def test_a_filter_keeps_one_phase(stage, op):
    stage.prepare(key="to-review")
    stage.mail(key="to-run")

    reply = get(op, f"{LIST}?state=review")

    assert keys_in(reply) == ["to-review"]
    assert 'id="tab-review"' in reply.text
    assert re.search(r'id="tab-review"[^>]*aria-current="true"', reply.text)


def test_what_needs_a_decision_is_announced_on_every_other_tab(stage, op):
    stage.mail().lose()
    sweep(stage)

    assert "1 workflow needs a decision" in text_of(get(op, LIST))
    assert "1 workflow needs a decision" not in text_of(get(op, f"{LIST}?state=decision"))


def sweep(stage):
    from continuity.services.sweeping import Sweeper  # noqa: PLC0415

    Sweeper(stage.site.wiring.store, stage.services.attempts.ledger).sweep()


def test_search_finds_whole_words_and_whole_ids_and_says_that_parts_are_not_found(stage, op):
    scene = stage.prepare(PUBLISH, key="weekly-report")
    stage.prepare(key="monthly-report")

    assert keys_in(get(op, f"{LIST}?q=weekly")) == ["weekly-report"]
    assert keys_in(get(op, f"{LIST}?q=publish+report")) == ["weekly-report"]
    assert keys_in(get(op, f"{LIST}?q={scene.workflow_id}")) == ["weekly-report"]
    missed = get(op, f"{LIST}?q=week")
    assert keys_in(missed) == []
    assert "parts of words are not found" in text_of(missed)


def test_a_search_that_stopped_early_says_so_and_goes_on_where_it_stopped(stage, op, monkeypatch):
    monkeypatch.setattr(listing, "LOOKED_AT_MOST", 2)
    for key in ("left-right", "left-1", "right-1", "left-2", "right-2"):
        stage.prepare(key=key)

    newest = get(op, f"{LIST}?q=left+right")

    assert keys_in(newest) == []
    assert "Nothing was found so far" in text_of(newest)
    assert keys_in(get(op, cursor_in(newest))) == ["left-right"]


def test_a_search_that_goes_on_and_finds_nothing_more_leads_back(stage, op, monkeypatch):
    monkeypatch.setattr(listing, "LOOKED_AT_MOST", 2)
    for key in ("left-1", "right-1", "left-2", "right-2", "left-right"):
        stage.prepare(key=key)

    newest = get(op, f"{LIST}?q=left+right")
    older = get(op, cursor_in(newest))

    assert keys_in(newest) == ["left-right"]
    assert keys_in(older) == []
    assert "Nothing older was found" in text_of(older)
    assert 'id="to-newest"' in older.text


@pytest.mark.parametrize("q", ["...", "a b c d e f g h i", "x" * 201])
def test_a_search_that_cannot_be_made_is_told_beside_its_field(stage, op, q):
    stage.prepare()

    reply = get(op, f"{LIST}?q={q}")

    assert reply.status_code == 422
    assert re.search(r'id="q-problem">.*The search must be', reply.text, flags=re.DOTALL)
    assert f'value="{q}"' in reply.text
    assert poll_of(reply) is None


@pytest.mark.parametrize("query", ["state=nothing", "limit=3", "q=a&q=b", "x=1", "workspace=%2F", "cursor=%00"])
def test_a_query_that_no_link_of_ours_makes_is_refused_with_a_page(op, query):
    reply = get(op, f"{LIST}?{query}")

    assert reply.status_code in {303, 400}
    if reply.status_code == 400:
        assert "This request cannot be read" in reply.text


def test_pages_go_on_where_the_last_one_ended_and_keep_the_filter(stage, op):
    for number in range(30):
        stage.prepare(key=f"work-no-{number:02}")

    first = get(op, f"{LIST}?state=review&q=work")
    second = get(op, cursor_in(first))

    assert keys_in(first) == [f"work-no-{number:02}" for number in range(29, 4, -1)]
    assert keys_in(second) == [f"work-no-{number:02}" for number in range(4, -1, -1)]
    assert poll_of(first) is not None
    assert poll_of(second) is None
    assert "state=review" in cursor_in(first)
    assert 'id="to-newest"' in second.text
    assert 'id="to-older"' not in second.text


def test_a_cursor_that_is_too_old_leads_to_the_newest_page_and_says_so(stage, op):
    for number in range(30):
        stage.prepare(key=f"work-no-{number:02}")
    older = cursor_in(get(op, f"{LIST}?state=review"))
    stage.site.clock.advance(901)

    moved = get(op, older)
    arrived = get(op, moved.headers["Location"])

    assert (moved.status_code, moved.headers["Location"]) == (303, f"{LIST}?state=review")
    assert "That place in the list is no longer kept" in text_of(arrived)


def test_the_filter_by_workspace_is_for_people_who_have_several(stage, op):
    site = stage.site
    site.person("bo", at=("default", "other"))
    both = site.signed_in("bo")
    stage.prepare(key="here")
    stage.prepare(key="there", host=stage.host_of("other-host", workspace_id="other"))

    assert 'name="workspace"' not in get(op, LIST).text
    assert keys_in(get(op, LIST)) == ["here"]
    everywhere = get(both, LIST)
    assert keys_in(everywhere) == ["there", "here"]
    assert re.findall(r'<option value="([^"]*)"', everywhere.text) == ["", "default", "other"]
    one = get(both, f"{LIST}?workspace=other")
    assert keys_in(one) == ["there"]
    assert counts_in(one)["all"] == "1"
    assert keys_in(get(op, f"{LIST}?workspace=other")) == []


def test_counts_are_exact_to_a_thousand_and_then_say_so(stage, op, monkeypatch):
    monkeypatch.setattr(limits, "EXACT_COUNT_MAX", 2)
    for _ in range(2):
        stage.prepare()
    assert counts_in(get(op, LIST))["review"] == "2"

    stage.prepare()

    assert counts_in(get(op, LIST))["review"] == counts_in(get(op, LIST))["all"] == "2+"


# ---- polls


def test_the_lists_poll_answers_nothing_until_it_would_look_different(stage, op):
    stage.prepare()
    poll = poll_of(get(op, LIST))
    stage.site.clock.advance(60)

    assert get(op, poll, **HTMX).status_code == 204

    stage.prepare(key="a-new-one")
    changed = get(op, poll, **HTMX)
    assert changed.status_code == 200
    assert "a-new-one" in keys_in(changed)
    assert poll_of(changed) != poll


def test_a_long_lists_poll_brings_a_new_cursor_before_the_old_one_ends(stage, op):
    for _ in range(26):
        stage.prepare()
    first = get(op, LIST)

    assert get(op, poll_of(first), **HTMX).status_code == 204
    stage.site.clock.advance(301)
    renewed = get(op, poll_of(first), **HTMX)

    assert renewed.status_code == 200
    stage.site.clock.advance(700)
    assert get(op, cursor_in(first)).status_code == 303
    assert keys_in(get(op, cursor_in(renewed))) == ["work-1"]


def test_a_workflows_poll_answers_nothing_opens_nothing_and_writes_nothing_until_it_changes(stage, op):
    scene = stage.mail()
    poll = poll_of(get(op, page_of(scene)))
    stage.site.clock.advance(60)
    before = stage.site.everything()

    assert get(op, poll, **HTMX).status_code == 204
    assert stage.site.everything() == before

    scene.begin()
    changed = get(op, poll, **HTMX)
    assert changed.status_code == 200
    assert changed.text.lstrip().startswith('<div id="workflow"')
    assert "A worker is at it now" in changed.text


def test_a_lease_that_runs_out_changes_the_page_without_any_event(stage, op):
    scene = stage.mail()
    scene.begin()
    poll = poll_of(get(op, page_of(scene)))
    assert get(op, poll, **HTMX).status_code == 204

    stage.site.clock.advance(LEASE_OVER_S)

    assert "Needs confirmation: no receipt came" in get(op, poll, **HTMX).text


@pytest.mark.parametrize("end", ["done", "ended"])
def test_a_finished_workflow_is_polled_no_more(stage, op, end):
    scene = stage.mail()
    scene.begin().succeed() if end == "done" else scene.stop()

    assert poll_of(get(op, page_of(scene))) is None


def test_polls_do_not_keep_a_session_alive(stage, op):
    scene = stage.mail()
    polls = [poll_of(get(op, address)) for address in (LIST, page_of(scene))]

    for _ in range(4):
        stage.site.clock.advance(9 * 60)
        replies = [get(op, poll, **HTMX) for poll in polls]

    assert [reply.status_code for reply in replies] == [401, 401]
    assert {reply.headers["HX-Redirect"] for reply in replies} == {"/login?ended=yes"}


@pytest.mark.parametrize("address", [LIST, None], ids=["list", "workflow"])
def test_the_fragment_is_inside_of_the_page(stage, op, address):
    scene = stage.mail()
    scene.lose()
    address = address or page_of(scene)

    page = get(op, address)
    fragment = get(op, address, **HTMX)

    assert "<html" not in fragment.text
    assert fragment.text.strip() in page.text


# ---- the workflow page


def test_a_view_is_written_to_the_audit_log(stage, op):
    scene = stage.mail()
    before = audited(stage.site)

    get(op, page_of(scene))

    assert audited(stage.site) == before + 1
    last = stage.site.rows(schema.audit)[-1]
    assert "workflow.viewed" in [str(value) for value in last]


def test_the_page_shows_everything_a_reviewer_decides_by(stage, op):
    scene = stage.prepare({**PUBLISH, "timeout_seconds": 45, **FINAL_QUERY}, MAIL, key="publish-notes")

    said = text_of(get(op, page_of(scene)))

    for text in (
        "publish-notes", "Needs review", "0 of 2 completed", scene.workflow_id, "agent-host", "Waits for your review",
        "directory_publish", "/srv/published", '"filename": "release-notes.md"', "45 s an attempt",
        "becomes final 5 s after", "mail.send", "ada@example.org", "Neither query nor idempotency key",
        "Enable recovery", "This will", "This will not", "The work was prepared",
    ):  # fmt: skip
        assert text in said, text


def test_a_receipt_is_shown_with_digest_size_and_whose_word_it_is(stage, op):
    scene = stage.mail()
    scene.begin().succeed("msg-17")
    receipt = scene.view()["operations"][0]["receipt"]

    reply = get(op, page_of(scene))

    body = canonical_bytes(receipt)
    assert hashlib.sha256(body).hexdigest() in reply.text
    assert f"{len(body)} bytes in canonical form" in text_of(reply)
    assert "host-reported" in text_of(reply)
    shown = html.unescape(re.search(r'<pre id="receipt-1"[^>]*>(.*?)</pre>', reply.text, flags=re.DOTALL)[1])
    assert json.loads(shown) == receipt


def test_a_confirmed_receipt_is_labelled_as_a_persons_word(stage, op):
    scene = stage.mail()
    scene.lose()
    scene.confirm(happened=True, reason="Seen in the outbox.")

    said = text_of(get(op, page_of(scene)))

    assert "operator-attested" in said
    assert "Completed on a person's word" in said
    assert "Seen in the outbox." in said
    assert "by adm" in said


def test_attempts_are_drawn_and_stand_in_a_table_with_the_same_facts(stage, op):
    scene = stage.mail(**QUERY)
    scene.lose()
    scene.begin().report("absent")
    stage.site.clock.advance(10)

    reply = get(op, page_of(scene))

    assert re.search(r"<svg[^>]*role=\"img\"[^>]*aria-labelledby=\"line-1-title line-1-text\"", reply.text)
    assert "1 · Execute: No receipt. 2 · Query: Not found." in text_of(reply)
    said = text_of(reply)
    for text in ("attempt-1", "attempt-2", "run-1", "No receipt", "Not found"):
        assert text in said


def test_a_live_lease_is_counted_down_by_the_servers_clock(stage, op):
    scene = stage.mail()
    scene.begin()
    stage.site.clock.advance(37)

    reply = get(op, page_of(scene))

    assert re.search(r'class="countdown" data-left="83"', reply.text)


def test_late_receipts_stand_beside_what_they_contradict(stage, op):
    scene = stage.mail(**QUERY)
    first = scene.lose()
    scene.begin().succeed("msg-2")
    first.succeed("msg-1")

    said = text_of(get(op, page_of(scene)))

    assert "Both say that it happened, under different effect ids: it may have happened twice." in said
    assert "A late receipt speaks against send-mail" in said
    assert said.index("What stands") < said.index('"effect_id": "msg-2"', said.index("What stands"))
    assert '"effect_id": "msg-1"' in said


def test_a_late_receipt_of_the_same_effect_is_told_to_agree(stage, op):
    scene = stage.mail(**QUERY)
    first = scene.lose()
    scene.begin().succeed("msg-1")
    first.report("confirmed_succeeded", effect_id="msg-1", result="in other words")

    said = text_of(get(op, page_of(scene)))

    assert "It names the same effect: both agree." in said
    assert "speaks against" not in said


def test_long_arguments_are_folded_and_whole(stage, op):
    arguments = {"to": "ada@example.org", "body": "line\n" * 2_000}
    scene = stage.prepare({**MAIL, "arguments": arguments})

    reply = get(op, page_of(scene))

    assert re.search(r'<details class="fold" id="arguments-1-fold">', reply.text)
    whole = html.unescape(re.search(r'<pre id="arguments-1"[^>]*>(.*?)</pre>', reply.text, flags=re.DOTALL)[1])
    assert json.loads(whole) == arguments


def test_history_says_who_when_and_why_with_names(stage, op):
    scene = stage.mail()
    scene.lose()
    scene.confirm(happened=False, reason="Not in the outbox.")
    scene.stop(reason="Nobody wants it any more.")

    said = text_of(get(op, page_of(scene)))
    history = said[said.index("History newest first") :]

    events = ["The work was stopped", "A person confirmed that it did not happen", "An attempt to execute was granted",
              "Recovery was enabled", "The work was prepared"]  # fmt: skip
    assert [event for event in events if event in history] == events
    assert sorted(events, key=history.index) == events
    for text in ("Not in the outbox.", "Nobody wants it any more.", "by adm", "by agent-host"):
        assert text in history


def test_an_investigator_sees_everything_and_is_offered_nothing(stage):
    stage.site.person("inv", Role.INVESTIGATOR)
    browser = stage.site.signed_in("inv")
    scene = stage.mail()
    scene.lose()

    reply = get(browser, page_of(scene))

    assert "Needs confirmation: no receipt came" in reply.text
    assert "Operators of this workspace and administrators decide." in reply.text
    assert 'action="/resume-work' not in reply.text
    assert "control-" not in reply.text


@pytest.mark.parametrize(
    ("make", "offered"),
    [
        (lambda stage: stage.prepare(), ["enable", "stop-1"]),
        (lambda stage: stage.mail(), ["pause", "stop-1"]),
        (lambda stage: stage.mail().pause(), ["enable", "stop-1"]),
        (lambda stage: stage.mail().stop(), ["delete"]),
    ],
)
def test_a_control_is_offered_where_it_would_be_taken(stage, op, make, offered):
    reply = get(op, page_of(make(stage)))

    assert re.findall(r'<details class="control" id="control-([\w-]+)"', reply.text) == offered


def test_nothing_of_an_operation_is_offered_while_a_worker_holds_its_lease(stage, op):
    scene = stage.mail()
    scene.begin()

    reply = get(op, page_of(scene))

    assert re.findall(r'<details class="control" id="control-([\w-]+)"', reply.text) == ["pause"]


def test_the_right_to_deny_is_held_back_until_the_effect_cannot_land_any_more(stage, op):
    scene = stage.mail()
    scene.begin().report("unknown")

    waiting = get(op, page_of(scene))
    stage.site.clock.advance(61)
    ready = get(op, page_of(scene))

    button = r'<button[^>]*id="confirm-1-no"( disabled)?>'
    assert re.search(button, waiting.text)[1] == " disabled"
    assert 'data-left="60" data-over="confirm-1-no"' in waiting.text
    assert re.search(button, ready.text)[1] is None
    assert "data-over" not in ready.text


def test_whoever_gave_the_password_long_ago_finds_a_field_for_it_in_the_forms_that_need_it(stage, op):
    scene = stage.mail()
    scene.lose()
    before = get(op, page_of(scene))
    stage.site.clock.advance(600)

    reply = get(op, page_of(scene))

    assert 'name="password"' not in before.text
    assert reply.text.count('name="password"') == 2
    assert 'name="effect_id"' in reply.text
    assert "it has to have been given within ten minutes" in text_of(reply)


def test_a_deleted_workflow_says_what_became_of_it(stage, op):
    scene = stage.mail().stop()
    stage.services.deletions.delete(stage.person, scene.workflow_id)

    reply = get(op, page_of(scene))

    assert reply.status_code == 409
    assert re.findall(r"<h1[^>]*>([^<]*)</h1>", reply.text) == ["This workflow was deleted"]
    (content,) = re.findall(r"<main.*</main>", reply.text, re.DOTALL)
    assert content.count("This workflow was deleted") == 1


def test_a_workflow_of_another_workspace_is_not_there(stage):
    stage.site.person("far", at=("other",))
    browser = stage.site.signed_in("far")
    scene = stage.mail()

    replies = [get(browser, address) for address in (page_of(scene), f"{LIST}/wf_{'0' * 32}")]

    assert [reply.status_code for reply in replies] == [404, 404]
    strip = re.compile(r"req_\w+|name=\"csrf_token\" value=\"[^\"]*\"")
    assert strip.sub("", replies[0].text) == strip.sub("", replies[1].text)


def test_a_locked_vault_shows_a_page_that_says_so_and_nothing_else(stage, op):
    scene = stage.mail(key="sealed-away")
    get(op, page_of(scene))
    stage.site.wiring.vault.lock()

    for address in (LIST, page_of(scene), f"{page_of(scene)}/live?mark=x"):
        reply = get(op, address)
        assert reply.status_code == 423
        assert "The vault is locked" in reply.text
        assert "sealed-away" not in reply.text


def test_a_broken_audit_log_shows_nothing_of_a_workflow(stage, op, monkeypatch):
    scene = stage.mail(key="unaudited")

    def broken(*_args, **_more):
        raise sa.exc.OperationalError("INSERT", {}, Exception("disk full"))

    monkeypatch.setattr(type(stage.site.wiring.audit), "append", broken)

    reply = get(op, page_of(scene))

    assert reply.status_code >= 500
    assert "unaudited" not in reply.text


def test_an_idempotent_destination_says_until_when_repeats_are_allowed(stage, op):
    scene = stage.mail(**IDEMPOTENT)
    scene.lose()

    said = text_of(get(op, page_of(scene)))

    assert "Can be repeated safely for now" in said
    assert "Repeats under the key are allowed until" in said
    stage.site.clock.advance(3_600)
    later = text_of(get(stage.site.signed_in("op"), page_of(scene)))
    assert "The key no longer protects a repeat" in later
    assert "Repeats under the key were allowed until" in later


def test_posting_to_a_page_of_the_list_is_no_address(op):
    assert post(op, LIST).status_code == 405
