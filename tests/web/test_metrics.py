"""What a monitoring system reads: right numbers, for whom they are, and nothing that anybody wrote."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import metrics
from app.auth.accounts import LOCAL
from continuity.errors import UnavailableError
from continuity.services.callers import Role
from tests.observing import LEAST
from tests.web.matrix import World
from tests.web.scenes import Stage
from tests.web.site import METRICS_TOKEN, PRODUCER_TOKEN, site_on

ROOT = Path(__file__).parents[2]
BEARER = {"Authorization": f"Bearer {METRICS_TOKEN}"}


def read(site, headers=BEARER):
    response = site.browser().send("GET", "/metrics", headers=headers)
    assert response.status_code == 200, response.text
    assert response.content_type == metrics.CONTENT_TYPE
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


@pytest.fixture
def stage(site):
    return Stage(site)


def test_decisions_and_outcomes_are_counted_by_what_was_answered(site, stage):
    scene = stage.mail("one").begin()
    scene.report("confirmed_succeeded", effect_id="e-1", result=None)

    found = read(site)

    assert found["atmem_decisions_total", "authorized_attempt", "execute"] == 1
    assert found["atmem_outcomes_total", "accepted", "completed"] == 1


def test_commits_are_counted_with_the_time_that_they_take_and_the_units_that_they_hold(site, stage):
    before = read(site)["atmem_commit_seconds_count",]
    stage.mail("one").begin()

    found = read(site)

    assert found["atmem_commit_seconds_count",] > before
    assert 0 < found["atmem_commit_seconds_sum",] < 60
    assert found["atmem_commit_units_sum",] >= found["atmem_commit_seconds_count",]
    assert found["atmem_write_wait_seconds_count",] >= found["atmem_commit_seconds_count",]


def test_what_has_not_ended_is_there_by_phase_and_a_scrape_asks_the_database_at_most_every_ten_seconds(site, stage):
    stage.mail("one")
    assert read(site)["atmem_workflows", "ready"] == 1

    stage.mail("two")
    assert read(site)["atmem_workflows", "ready"] == 1
    site.clock.advance(metrics.KEPT_S)

    found = read(site)
    assert found["atmem_workflows", "ready"] == 2
    assert found["atmem_vault_locked",] == 0
    assert found["atmem_sessions", "person"] >= 1


def test_events_are_counted_by_what_became_of_them(site):
    producer = {"Authorization": f"Bearer {PRODUCER_TOKEN}"}
    event = {"format": "atmem.continuity.v1", **LEAST}
    for body in (event, event, {**event, "format": "another"}):
        site.browser().post("/v1/continuity/events", body, headers=producer)

    found = read(site)

    assert [found["atmem_observation_events_total", each] for each in ("accepted", "replayed", "refused")] == [1, 1, 1]


def test_requests_are_counted_by_method_and_status_and_a_method_made_up_is_another(site):
    site.browser().send("GET", "/nowhere")
    site.browser().send("BREW", "/nowhere")

    found = read(site)

    assert found["atmem_http_requests_total", "404", "GET"] == 1
    assert {labels[-1] for labels in found if labels[0] == "atmem_http_requests_total"} <= {"GET", "POST", "other"}


def test_a_database_that_does_not_answer_is_told_as_such(site, monkeypatch):
    def fail(_work):
        raise UnavailableError("The database cannot answer now.")

    monkeypatch.setattr(type(site.wiring.store), "read", lambda _self, work: fail(work))

    found = read(site)

    assert found["atmem_database_up",] == 0
    assert ("atmem_workflows", "decision") not in found


def test_without_a_token_in_the_environment_only_administrators_read(fresh_instance):
    with site_on(fresh_instance.folder, {"ATMEM_METRICS_TOKEN": ""}) as site:
        site.person("ada", Role.ADMINISTRATOR)
        assert site.browser().send("GET", "/metrics", headers=BEARER).status_code == 401
        assert site.browser().send("GET", "/metrics").status_code == 401
        assert site.signed_in("ada").send("GET", "/metrics").status_code == 200


def test_the_token_of_metrics_is_good_for_nothing_else(site):
    for method, path in (("GET", "/v1/continuity"), ("POST", "/v1/continuity/events"), ("GET", "/v1/threads")):
        assert site.browser().send(method, path, None if method == "GET" else {}, headers=BEARER).status_code == 403


def test_no_label_holds_what_somebody_wrote(site):
    world = World(site)
    site.wiring.auth.accounts.create("sentinel-person", role=Role.OPERATOR, workspace_names=("default",), by=LOCAL)
    target = world.target()
    site.browser().send("GET", "/sentinel-path?sentinel=query", headers={"User-Agent": "sentinel-agent"})

    text = site.browser().send("GET", "/metrics", headers=BEARER).text

    assert "sentinel" not in text
    assert target.workflow_id not in text


def test_what_nobody_scrapes_is_counted_all_the_same(monkeypatch):
    monkeypatch.setattr(metrics, "_NOTED_MOST", 4)
    counted = metrics.Metrics()

    for _ in range(3):
        counted.requested("GET", 200, 5)
    assert value(counted) is None
    counted.requested("GET", 200, 5)
    assert value(counted) == 4
    counted.requested("GET", 200, 5)
    counted.settle()
    counted.settle()
    assert value(counted) == 5


def test_a_process_whose_folder_is_shared_counts_at_once():
    with metrics.shared():
        counted = metrics.Metrics()
        counted.requested("GET", 200, 5)

        assert value(counted) == 1


def value(counted):
    return counted.registry.get_sample_value("atmem_http_requests_total", {"method": "GET", "status": "200"})


def test_a_server_counts_what_nobody_scrapes(site):
    site.browser().send("GET", "/healthz")
    assert value(site.wiring.metrics) is None

    site.wiring.housekeeping.run_due()

    assert value(site.wiring.metrics) == 1
    assert metrics.SETTLE_S <= 1


def test_counting_loses_nothing_between_threads(site):
    before = read(site).get(("atmem_http_requests_total", "200", "GET"), 0)
    threads = [
        threading.Thread(target=lambda: [site.browser().send("GET", "/healthz") for _ in range(50)]) for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    # The reading before is one of them.
    assert read(site)["atmem_http_requests_total", "200", "GET"] == before + 201


def test_the_page_and_the_dashboard_name_what_there_is_and_nothing_else(site, stage):
    stage.mail("one").begin().report("confirmed_succeeded", effect_id="e-1", result=None)
    site.browser().post("/v1/continuity/events", {}, headers={"Authorization": f"Bearer {PRODUCER_TOKEN}"})
    text = site.browser().send("GET", "/metrics", headers=BEARER).text
    there = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}

    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    dashboard = json.loads((ROOT / "docs/deploy/grafana.json").read_text(encoding="utf-8"))
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])

    told = set(re.findall(r"^\| `(atmem_\w+)`", page, re.MULTILINE))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in there if name.startswith("atmem_")} == told
    assert set(re.findall(r"\b(?:atmem|process)_\w+", asked)) <= there
