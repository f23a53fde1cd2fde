"""What networks do to requests and replies: lost, doubled, cut, late, in crumbs. Nothing is done twice for it."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.crash import proxy as faults
from tests.crash.conftest import BOTH
from tests.crash.proxy import Proxy
from tests.crash.test_kill_worker import brought_to_one_effect

LOST_REPLIES = [faults.drop_reply, faults.reset_reply, faults.cut_reply]
NEVER_ARRIVED = [faults.drop_request, faults.cut_request]
HARMLESS = [faults.half_close, faults.crumble, faults.delayed(0.3)]
DOUBLED = [faults.duplicate, faults.duplicate_at_once]


def name(fault):
    return fault.__name__


@pytest.fixture
def stage(request):
    """SQLite's server, unless a test asks for both: most faults are over before the database is reached."""
    return request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_stage")


@pytest.fixture
def proxy(stage):
    parts = urlsplit(stage.url)
    with Proxy((parts.hostname, parts.port)) as proxy:
        yield proxy


@pytest.fixture(params=["none", "both"])
def case(request, stage, tmp_path):
    return stage.case(request.param, tmp_path)


def through(proxy, case, **plan):
    proxy.plan.update({call: list(chosen) for call, chosen in plan.items()})
    found = case.start(url=proxy.url).report()
    case.check()
    return found


@pytest.mark.parametrize("fault", LOST_REPLIES, ids=name)
def test_a_lost_reply_to_begin_is_not_asked_for_again_and_nothing_is_done(proxy, case, fault):
    assert through(proxy, case, begin=[fault])["end"] == "error"

    assert proxy.seen == ["begin"]
    assert case.sink == []
    (attempt,) = case.operation["attempts"]
    assert "ended" not in attempt
    brought_to_one_effect(case)


@pytest.mark.parametrize("fault", NEVER_ARRIVED, ids=name)
def test_a_begin_that_never_arrived_whole_has_left_nothing(proxy, case, fault):
    assert through(proxy, case, begin=[fault])["end"] == "error"

    assert proxy.seen == ["begin"]
    assert case.operation["attempts"] == []
    assert case.run()["end"] == "result"
    assert len(case.sink) == 1


@pytest.mark.parametrize("fault", LOST_REPLIES, ids=name)
def test_a_lost_reply_to_an_outcome_is_asked_for_again_and_replayed(proxy, case, fault):
    assert through(proxy, case, outcome=[fault])["end"] == "result"

    assert proxy.seen == ["begin", "outcome", "outcome"]
    assert [ack["reply"].get("replayed") for ack in case.acks if ack["call"] == "outcome"] == [True]
    brought_to_one_effect(case)
    assert len(case.sink) == 1


@pytest.mark.parametrize("fault", NEVER_ARRIVED, ids=name)
def test_an_outcome_that_never_arrived_whole_is_sent_again_and_taken(proxy, case, fault):
    assert through(proxy, case, outcome=[fault, fault])["end"] == "result"

    assert proxy.seen == ["begin", "outcome", "outcome", "outcome"]
    assert [ack["reply"].get("replayed") for ack in case.acks if ack["call"] == "outcome"] == [None]
    assert len(case.sink) == 1


@pytest.mark.parametrize("fault", HARMLESS, ids=name)
def test_a_slow_or_crumbling_connection_changes_nothing(proxy, case, fault):
    assert through(proxy, case, begin=[fault], outcome=[fault])["end"] == "result"

    assert proxy.seen == ["begin", "outcome"]
    assert len(case.sink) == 1


@pytest.mark.parametrize("stage", BOTH, indirect=True)
@pytest.mark.parametrize("fault", DOUBLED, ids=name)
def test_a_doubled_request_does_no_harm(proxy, case, fault):
    found = through(proxy, case, begin=[fault], outcome=[fault])

    operation = case.operation
    assert len(operation["attempts"]) == 1
    assert operation["late_receipts"] == 0
    if found["end"] == "result":
        assert len(case.sink) == 1
    else:
        # The host heard the reply to the second one, which granted nothing.
        assert found["code"] == "attempt_already_issued"
        assert case.sink == []
    brought_to_one_effect(case)


def test_an_outcome_before_its_begin_and_one_of_another_attempt_change_nothing(stage, tmp_path):
    case = stage.case("none", tmp_path)
    operator = stage.operator
    receipt = {"outcome": "unknown"}
    ids = {"run_id": "run-1", "attempt_id": "at-1"}

    early = operator.send_outcome(case.workflow_id, "publish-it", **ids, lease_token="not-yet", receipt=receipt)
    grant = operator.begin(case.workflow_id, "publish-it", **ids)
    other = operator.send_outcome(
        case.workflow_id, "publish-it", run_id="run-1", attempt_id="at-2", lease_token=grant["lease_token"],
        receipt=receipt,
    )  # fmt: skip

    assert [(reply["accepted"], reply["status"]) for reply in (early, other)] == [
        (False, "pending"),
        (False, "uncertain"),
    ]
    (operation,) = case.view()["operations"]
    assert [late["proved"] for late in operation["late"]] == [False, False]
    assert "ended" not in operation["attempts"][0]
