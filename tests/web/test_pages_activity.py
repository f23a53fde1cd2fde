"""Activity → Resume work as a browser without scripts meets it."""

from __future__ import annotations

import csv
import html
import io
import re

import pytest

from continuity.services.callers import Role
from observations import pruning
from tests.web.pages import HTMX, get
from tests.web.reading import poll_of, text_of
from tests.web.scenes import Stage
from tests.web.told import ACTIVITY, Observer

DAY_S = 86_400


@pytest.fixture
def told(site):
    return Observer(site)


@pytest.fixture
def inv(site):
    site.person("inv", Role.INVESTIGATOR)
    return site.signed_in("inv")


def rows_of(reply) -> list[dict[str, str]]:
    assert reply.status_code == 200
    assert reply.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert reply.headers["Content-Disposition"].startswith("attachment; filename=")
    return list(csv.DictReader(io.StringIO(reply.data.decode(), newline="")))


def ids_in(reply) -> list[str]:
    return [html.unescape(found) for found in re.findall(r'class="table-main id"[^>]*>([^<]*)<', reply.text)]


def older_in(reply) -> str:
    return html.unescape(re.search(r'id="to-older"[^>]*href="([^"]*)"', reply.text)[1])


# ---- what it says


def test_an_empty_page_says_what_to_do_first_with_the_command(inv):
    said = text_of(get(inv, ACTIVITY))

    assert "No event has been received yet" in said
    assert "atmem continuity credential \\ --principal my-observer --observer --scope local --token-only" in said
    assert "--atflows-url http://127.0.0.1:8768" in said
    assert "$0" not in said


def test_the_words_of_what_it_is_stand_on_every_page(told, inv):
    told.story()

    for path in (ACTIVITY, f"{ACTIVITY}/flow-1"):
        said = text_of(get(inv, path))
        assert "reported charges, not a complete invoice" in said
        assert "received events only" in said
        assert "Nobody has checked them" in said


def test_what_has_no_price_is_at_least_and_never_zero(told, inv):
    told.story()

    said = text_of(get(inv, ACTIVITY))

    assert "Reported cost at least $0.0042 , 1 unknown" in said
    assert "Of it by retry and recovery $0.0042" in said
    assert "Attempts 2 0 retries, 1 recovery" in said
    assert "1 of 2 charges 1 attempt has no price at all" in said
    assert "2,100 in" in said
    assert "at least 80 , 1 without out" in said


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ([0], "Reported cost $0.00 Of it"),
        ([None], "Reported cost unknown 1 without a price Of it"),
        ([0, None], "Reported cost at least $0.00 , 1 unknown Of it"),
        ([1], "Reported cost $0.000001 Of it"),
        ([1_234_567_890], "Reported cost $1,234.56789 Of it"),
        ([2**53 - 1, 2**53 - 1, 1], "Reported cost $18,014,398,509.481983 Of it"),
        ([], "Reported cost no charge reported Of it"),
    ],
)
def test_every_state_of_a_cost_is_written_exactly(told, inv, costs, said):
    told.tell()
    for number, cost in enumerate(costs):
        told.charge(f"c{number}", cost)

    assert said in text_of(get(inv, ACTIVITY))
    assert said in text_of(get(inv, f"{ACTIVITY}/flow-1"))


def test_a_contradicted_charge_shows_as_conflicting_with_what_came_first(told, inv):
    told.charge("c1", 500_000)
    told.contradict("c1", 900_000)

    overview, one = text_of(get(inv, ACTIVITY)), text_of(get(inv, f"{ACTIVITY}/flow-1"))

    assert "$0.50 1 conflicting" in overview
    assert "1 event refused" in overview
    assert "1 event contradicts what was received before" in one
    assert "Conflicting 1 event said otherwise; what came first stands" in one
    assert "$0.90" not in overview + one


def test_the_time_line_and_the_charges_of_one_workflow(told, inv):
    told.story()

    said = text_of(get(inv, f"{ACTIVITY}/flow-1"))

    assert "1: Not known. 2 · Recovery: Completed." in said
    assert "Attempt 1 · at-c1" in said
    assert "unknown Unknown no price source no model named 1,200 in , not reported out" in said
    assert "Attempt 2 · at-c2" in said
    assert "$0.0042 Reported list-2026 m-1 900 in , 80 out" in said
    assert "A receipt that AtMem gives again makes no attempt and adds nothing here." in said


def test_the_basis_of_cached_tokens_is_kept(told, inv):
    told.charge("c1", 5, input_tokens=100, cached_input_tokens=60, cached_basis="included")
    told.charge("c2", 5, input_tokens=100, cached_input_tokens=70, cached_basis="separate")

    said = text_of(get(inv, f"{ACTIVITY}/flow-1"))

    assert "cached 60 of the input" in said
    assert "cached 70 beside the input" in said


def test_first_attempts_and_repeats_are_apart_in_the_chart_and_its_table(told, inv):
    told.charge("c1", 1_000_000)
    told.charge("c2", 3_000_000, attempt_id="at-2", retry=True)
    told.charge("c3", None, attempt_id="at-2")

    reply = get(inv, ACTIVITY)

    date = re.search(r"\d{4}-\d\d-\d\d to (\d{4}-\d\d-\d\d)", text_of(reply))[1]
    assert f"{date} $1.00 at least $3.00 , 1 unknown at least $4.00 , 1 unknown" in text_of(reply)
    picture = reply.text.partition('<svg class="chart"')[2]
    heights = {
        what: float(re.search(rf'<rect class="{what}"[^>]*height="([^"]*)"', picture)[1])
        for what in ("bar-first", "bar-repeated")
    }
    assert heights["bar-repeated"] == pytest.approx(3 * heights["bar-first"], rel=0.01)
    assert 'class="unknown-mark"' in reply.text


def test_costs_by_source_by_price_source_and_by_outcome(told, inv):
    told.charge("c1", 3_000_000, charge_source="provider-a")
    told.charge("c2", 1_000_000, charge_source="provider-b", attempt_id="at-2")
    told.charge("c3", None, charge_source="provider-b", attempt_id="at-2")
    told.tell(event="completed")

    said = text_of(get(inv, ACTIVITY))

    assert re.search(r"provider-a tokens .*? 1 \$3\.00 provider-b .*? 2 at least \$1\.00 , 1 unknown", said)
    assert re.search(r"list-2026 tokens .*? 2 \$4\.00 none named .*? 1 unknown 1 without a price", said)
    assert "Completed 1 $3.00 No outcome 1 at least $1.00 , 1 unknown" in said


def test_demo_data_is_marked_and_can_be_left_out(site, told, inv):
    told.charge("c1", 1_000_000)
    demo = Observer(site, "demo")
    demo.charge("d1", 9_000_000, workflow_id="made-up", attempt_id="at-d")

    shown, without = get(inv, ACTIVITY), get(inv, f"{ACTIVITY}?demo=no")

    assert "Demo data is counted here" in text_of(shown)
    assert "Reported cost $10.00" in text_of(shown)
    assert set(ids_in(shown)) == {"flow-1", "made-up"}
    assert "Demo data is counted here" not in text_of(without)
    assert "Reported cost $1.00" in text_of(without)
    assert ids_in(without) == ["flow-1"]
    assert "This is demo data" in text_of(get(inv, f"{ACTIVITY}/made-up"))
    assert [row["workflow_id"] for row in rows_of(get(inv, f"{ACTIVITY}/workflows.csv?demo=no"))] == ["flow-1"]


def test_scopes_are_told_apart(site, told, inv):
    told.charge("c1", 1_000_000)
    Observer(site, "other").charge("c1", 2_000_000)

    assert "Reported cost $3.00" in text_of(get(inv, ACTIVITY))
    assert "Reported cost $2.00" in text_of(get(inv, f"{ACTIVITY}?scope=other"))
    assert "No workflow was first seen" in text_of(get(inv, f"{ACTIVITY}?scope=nobody"))
    first = get(inv, f"{ACTIVITY}/flow-1")
    assert "Reported cost $1.00" in text_of(first)
    assert 'href="/activity/flow-1?scope=other"' in first.text
    assert "Reported cost $2.00" in text_of(get(inv, f"{ACTIVITY}/flow-1?scope=other"))
    assert get(inv, f"{ACTIVITY}/flow-1?scope=third").status_code == 404


# ---- filters, search, pages


def test_a_range_of_days_chooses_charges_and_workflows(site, told, inv):
    now = site.clock.now_us() // 1_000_000
    told.charge("c1", 1_000_000)
    told.charge("c2", 2_000_000, workflow_id="old", attempt_id="at-old", time=now - 40 * DAY_S)

    month, quarter = get(inv, ACTIVITY), get(inv, f"{ACTIVITY}?days=90")

    assert "Reported cost $1.00" in text_of(month)
    assert ids_in(month) == ["flow-1"]
    assert "Reported cost $3.00" in text_of(quarter)
    assert ids_in(quarter) == ["flow-1", "old"]


def test_dates_win_over_days(told, inv):
    told.tell(workflow_id="then", attempt_id="x", time=1_000_000_000)

    assert ids_in(get(inv, f"{ACTIVITY}?days=7&from=2001-09-01&to=2001-09-30")) == ["then"]
    assert ids_in(get(inv, f"{ACTIVITY}?to=2001-09-09")) == ["then"]
    assert ids_in(get(inv, f"{ACTIVITY}?from=2001-09-10&to=2001-09-30")) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("from=2026-02-30", "The first day must be a date like 2026-11-30."),
        ("to=tomorrow", "The last day must be a date like 2026-11-30."),
        ("to=20260101", "The last day must be a date like 2026-11-30."),
        ("from=2026-02-02&to=2026-02-01", "The first day must not be after the last day."),
        ("from=1999-01-01&to=2026-02-01", "The first day must be at most 3,660 days before the last day."),
        ("from=1969-12-31", "The first day must be 1970-01-01 or later."),
    ],
)
def test_a_date_that_cannot_be_is_told_beside_its_field(told, inv, query, said):
    told.tell()

    reply = get(inv, f"{ACTIVITY}?{query}")

    assert reply.status_code == 422
    assert said in text_of(reply)
    assert 'aria-invalid="true"' in reply.text
    assert poll_of(reply) is None


@pytest.mark.parametrize(
    "query",
    ["days=31", "days=0", "outcome=lost", "demo=yes", "unknown=1", "days=7&days=30", "limit=1000000",
     "q=" + "x" * 129, "q=a%00b"],
)  # fmt: skip
def test_a_query_that_no_page_makes_is_refused(told, inv, query):
    told.tell()

    for path in (ACTIVITY, f"{ACTIVITY}/live.html", f"{ACTIVITY}/workflows.csv", f"{ACTIVITY}/workflows.json"):
        assert get(inv, f"{path}?{query}").status_code == 400, path


@pytest.mark.parametrize("outcome", ["completed", "abandoned", "blocked", "unknown", "open"])
def test_workflows_are_filtered_by_an_outcome_of_theirs(told, inv, outcome):
    for word in ("completed", "abandoned", "blocked", "unknown"):
        told.tell(f"flow-{word}", f"at-{word}", word)
    told.tell("flow-open", "at-open")

    assert ids_in(get(inv, f"{ACTIVITY}?outcome={outcome}")) == [f"flow-{outcome}"]


def test_a_search_finds_the_beginning_of_a_workflow_or_a_whole_attempt(told, inv):
    told.tell("invoice-1", "at-1")
    told.tell("invoice-2", "at-2")
    told.tell("mail-1", "at-3")

    assert ids_in(get(inv, f"{ACTIVITY}?q=invoice")) == ["invoice-1", "invoice-2"]
    assert ids_in(get(inv, f"{ACTIVITY}?q=at-3")) == ["mail-1"]
    nothing = get(inv, f"{ACTIVITY}?q=at-")
    assert ids_in(nothing) == []
    assert "fits the outcome and the search" in text_of(nothing)


def test_every_workflow_is_met_once_however_many_come_meanwhile(told, inv):
    for number in range(60):
        told.tell(f"flow-{number:03}", f"at-{number}")
    seen, path = [], ACTIVITY
    for turn in range(3):
        reply = get(inv, path)
        seen += ids_in(reply)
        told.tell(f"late-{turn}", f"at-late-{turn}")
        path = older_in(reply) if turn < 2 else path
    assert sorted(seen) == [f"flow-{number:03}" for number in range(60)]
    assert 'id="to-older"' not in reply.text
    assert poll_of(reply) is None
    assert "Later pages are not kept up to date." in text_of(reply)


def test_a_cursor_is_good_for_its_person_its_question_and_fifteen_minutes(site, told, inv):
    site.person("adm", Role.ADMINISTRATOR)
    for number in range(30):
        told.tell(f"flow-{number}", f"at-{number}")
    path = older_in(get(inv, ACTIVITY))
    bad = [f"{path}A", path[:-1], f"{path}&outcome=open", f"{ACTIVITY}?cursor=x"]

    for each in bad:
        reply = get(inv, each)
        assert reply.status_code == 303, each
        assert "cursor" not in reply.headers["Location"]
    assert get(site.signed_in("adm"), path).status_code == 303
    assert get(inv, path).status_code == 200
    site.clock.advance(901)
    assert get(inv, path).status_code == 303
    assert "That place in the list is no longer kept." in text_of(get(inv, ACTIVITY))


def test_many_attempts_of_a_workflow_come_in_pages(told, inv):
    for number in range(60):
        told.tell(attempt_id=f"at-{number:02}", time=1_000_000_000 + number)

    first = get(inv, f"{ACTIVITY}/flow-1")
    path = html.unescape(re.search(r'id="to-later"[^>]*href="([^"]*)"', first.text)[1])
    second = get(inv, path)

    assert "at-49" in first.text
    assert "at-50" not in first.text
    assert "at-59" in second.text
    assert get(inv, f"{path}A").status_code == 303
    assert len(rows_of(get(inv, f"{ACTIVITY}/flow-1/attempts.csv"))) == 60


# ---- live


@pytest.mark.parametrize("path", [ACTIVITY, f"{ACTIVITY}/flow-1"])
def test_the_fragment_is_in_the_page_and_polls_until_something_new_came(told, inv, path):
    told.story()
    page = get(inv, path)
    address = poll_of(page)

    same = get(inv, address, **HTMX)
    told.charge("more", 1)
    changed = get(inv, address, **HTMX)

    assert same.status_code == 204
    assert changed.status_code == 200
    assert 'hx-trigger="every 10s"' in changed.text
    assert "<html" not in changed.text
    assert changed.text.strip() in get(inv, path).text


def test_a_list_with_a_next_page_is_not_sent_again_for_its_cursor_alone(site, told, inv):
    for number in range(30):
        told.tell(f"flow-{number}", f"at-{number}")
    start_us = site.clock.now_us()
    # Into the middle of the time in which one cursor is kept.
    site.clock.advance(300 - start_us // 1_000_000 % 300 + 10)
    address = poll_of(get(inv, ACTIVITY))

    site.clock.advance(10)
    assert get(inv, address, **HTMX).status_code == 204
    site.clock.advance(300)
    assert get(inv, address, **HTMX).status_code == 200


def test_the_poll_asks_what_the_page_asked(told, inv):
    told.story()
    address = poll_of(get(inv, f"{ACTIVITY}?days=90&q=flow&demo=no"))

    for part in ("days=90", "q=flow", "demo=no", "mark="):
        assert part in address


# ---- files


def test_the_table_of_workflows_has_numbers_and_empty_cells_where_nothing_is_known(told, inv):
    told.story()
    told.tell("no-charge", "at-n")

    by_id = {row["workflow_id"]: row for row in rows_of(get(inv, f"{ACTIVITY}/workflows.csv"))}

    assert by_id["flow-1"]["known_cost_microusd"] == "4200"
    assert by_id["flow-1"]["unpriced_charges"] == "1"
    assert by_id["flow-1"]["recoveries"] == "1"
    assert by_id["flow-1"]["completed_attempts"] == by_id["flow-1"]["unknown_attempts"] == "1"
    assert by_id["no-charge"]["charges"] == "0"
    assert by_id["no-charge"]["known_cost_microusd"] == by_id["no-charge"]["input_tokens"] == ""


def test_the_table_of_attempts_has_a_row_a_charge(told, inv):
    told.story()
    told.contradict("at-c2", 9, attempt_id="at-2", run_id="run-2")
    told.tell(attempt_id="at-3")

    rows = rows_of(get(inv, f"{ACTIVITY}/flow-1/attempts.csv"))

    told_of = [(row["attempt_id"], row["charge_id"], row["cost_state"], row["cost_microusd"]) for row in rows]
    assert told_of == [
        ("at-1", "at-c1", "unknown", ""), ("at-2", "at-c2", "conflicting", "4200"), ("at-3", "", "", ""),
    ]  # fmt: skip


def test_the_files_in_json_hold_what_the_pages_show(told, inv):
    told.story()

    whole = get(inv, f"{ACTIVITY}/workflows.json")
    one = get(inv, f"{ACTIVITY}/flow-1/attempts.json")

    assert whole.headers["Content-Disposition"].startswith('attachment; filename="atmem-activity-')
    assert whole.json["totals"]["cost_microusd"] == "4200"
    assert whole.json["totals"]["unpriced"] == 1
    assert whole.json["retries_and_recoveries"]["cost_microusd"] == "4200"
    assert [each["workflow_id"] for each in whole.json["workflows_first_seen"]] == ["flow-1"]
    assert whole.json["holds_all_workflows"] is True
    assert [each["cost_microusd"] for each in one.json["attempts"]] == [None, "4200"]
    assert one.json["attempts"][0]["listed_charges"][0]["cost_state"] == "unknown"
    for reply in (whole, one):
        assert reply.json["note"] == "Reported charges, not a complete invoice. Received events only."


def test_a_file_that_is_not_whole_says_so(told, inv, monkeypatch):
    from app.pages import activity_downloads  # noqa: PLC0415

    monkeypatch.setattr(activity_downloads, "WORKFLOWS_MOST", 1)
    for number in range(201):
        told.tell(f"flow-{number}", f"at-{number}")

    reply = get(inv, f"{ACTIVITY}/workflows.json")

    assert reply.json["holds_all_workflows"] is False
    assert "-newest-1.json" in reply.headers["Content-Disposition"]


def test_files_of_attempts_that_are_not_whole_say_so(told, inv, monkeypatch):
    from app.pages import activity_downloads  # noqa: PLC0415

    monkeypatch.setattr(activity_downloads, "ATTEMPTS_MOST", 1)
    for number in range(201):
        told.tell(attempt_id=f"at-{number}")
    for number in range(51):
        told.charge(f"c{number}", workflow_id="flow-2", attempt_id="at-many")

    for ending in ("csv", "json"):
        cut = get(inv, f"{ACTIVITY}/flow-1/attempts.{ending}")
        many = get(inv, f"{ACTIVITY}/flow-2/attempts.{ending}")
        assert f'"atmem-flow-1-200-of-201-attempts.{ending}"' in cut.headers["Content-Disposition"]
        assert f'"atmem-flow-2-first-50-charges-an-attempt.{ending}"' in many.headers["Content-Disposition"]
    assert (cut.json["holds_all_attempts"], cut.json["holds_all_charges"]) == (False, False)
    assert (many.json["holds_all_attempts"], many.json["holds_all_charges"]) == (True, False)


def test_a_repeat_without_any_charge_costs_nothing_that_is_known(told, inv):
    told.charge("c1", 5_000_000)
    told.tell(attempt_id="at-2", retry=True)

    (row,) = rows_of(get(inv, f"{ACTIVITY}/workflows.csv"))
    (line,) = get(inv, f"{ACTIVITY}/workflows.json").json["workflows_first_seen"]

    assert (row["known_cost_microusd"], row["repeated_cost_microusd"]) == ("5000000", "")
    assert line["repeated_cost_microusd"] is None
    assert "$0.00" not in text_of(get(inv, f"{ACTIVITY}/flow-1"))


def test_what_was_pruned_is_counted_and_said_to_be_gone(site, told, inv):
    told.charge("c1", 5_000_000, time=1_000_000_000)
    told.tell(attempt_id="at-2", run_id="run-2")
    pruning.prune(site.wiring.observations.store, "local", before_us=1_500_000_000 * 1_000_000)

    said = text_of(get(inv, f"{ACTIVITY}/flow-1"))
    file = get(inv, f"{ACTIVITY}/flow-1/attempts.csv")

    assert "1 attempt is no longer kept. The sums above count it." in said
    assert "$5.00" in said
    assert "at-1" not in said
    assert '"atmem-flow-1-1-of-2-attempts.csv"' in file.headers["Content-Disposition"]


def test_a_workflow_of_which_no_attempt_is_kept_does_not_deny_its_charges(site, told, inv):
    told.charge("c1", 5_000_000, time=1_000_000_000)
    pruning.prune(site.wiring.observations.store, "local", before_us=1_500_000_000 * 1_000_000)

    reply = get(inv, f"{ACTIVITY}/flow-1")

    assert "1 attempt is no longer kept. The sums above count it." in text_of(reply)
    assert "$5.00" in text_of(reply)
    assert "No charge was reported" not in text_of(reply)
    assert "No attempt is kept whose charges could be listed." in text_of(reply)
    assert "<table" not in reply.text


# ---- both ways to Decisions


def test_activity_and_decisions_lead_to_each_other(site, inv):
    stage = Stage(site)
    scene = stage.mail()
    Observer(site).story(scene.workflow_id)

    decisions = get(inv, f"/resume-work/{scene.workflow_id}")
    activity = get(inv, f"{ACTIVITY}/{scene.workflow_id}")

    assert f'href="{ACTIVITY}/{scene.workflow_id}"' in decisions.text
    assert f'href="/resume-work/{scene.workflow_id}"' in activity.text


def test_work_without_observations_says_that_nothing_was_received(site, inv):
    scene = Stage(site).mail()

    reply = get(inv, f"{ACTIVITY}/{scene.workflow_id}")

    assert reply.status_code == 200
    assert "No event was received about this workflow" in text_of(reply)
    assert f'href="/resume-work/{scene.workflow_id}"' in reply.text
    assert f"run --workflow-id {scene.workflow_id}" in text_of(reply)
    assert "WORKFLOW_ID" not in text_of(reply)


@pytest.mark.parametrize("end", ["done", "stopped"])
def test_finished_work_without_observations_is_advised_nothing_that_reports_nothing(site, inv, end):
    scene = Stage(site).mail().enable()
    if end == "done":
        scene.begin().succeed()
    else:
        scene.stop()

    reply = get(inv, f"{ACTIVITY}/{scene.workflow_id}")

    assert reply.status_code == 200
    assert "It is finished, and what is finished reports nothing any more." in text_of(reply)
    assert "run --workflow-id" not in text_of(reply)


def test_an_operator_is_led_nowhere_near_activity(site):
    scene = Stage(site).mail()
    Observer(site).story(scene.workflow_id)
    site.person("op")
    op = site.signed_in("op")

    for path in ("/resume-work", f"/resume-work/{scene.workflow_id}", "/account"):
        assert "/activity" not in get(op, path).text, path


def test_of_work_in_another_workspace_activity_leads_not_to_decisions(site):
    stage = Stage(site)
    stage.host_of("there", workspace_id="other")
    scene = stage.mail()
    Observer(site).story(scene.workflow_id)
    site.person("far", Role.INVESTIGATOR, at=("other",))
    far = site.signed_in("far")

    reply = get(far, f"{ACTIVITY}/{scene.workflow_id}")

    assert reply.status_code == 200
    assert "/resume-work/" not in reply.text
    assert "no page that you may see" in text_of(reply)


def test_a_workflow_that_nobody_told_of_is_not_there(inv):
    for path in ("", "/live.html", "/attempts.csv", "/attempts.json"):
        assert get(inv, f"{ACTIVITY}/never-heard-of{path}").status_code == 404, path
