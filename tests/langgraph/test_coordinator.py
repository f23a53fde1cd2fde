"""What a coordinator's credential can do, over HTTP, and all that it cannot."""

from __future__ import annotations

import secrets

import pytest

from continuity import limits
from continuity.client import ContinuityClient, RecoveryBlocked
from continuity.errors import ConflictError, ForbiddenError, MalformedError, NotFoundError
from continuity.integrations import GovernedToolRunner, RegisteredTool
from continuity.transport import Transport
from tests.langgraph.hall import Hall, call
from tests.servers import start, stop

SEND = {"name": "send", "tool": "send", "arguments": {"to": "a"}}
BEGIN = {"name": "send", "run_id": "run-1", "attempt_id": "at-1"}


@pytest.fixture
def client(hall):
    return hall.client()


def test_its_work_is_created_enabled_and_begun_in_one_request(client, hall):
    view = client.create_workflow("k", [SEND], activate=True, begin=BEGIN)
    assert (view["enabled"], view["begin"]["action"]) == (True, "execute")
    assert hall.operator.get_workflow(view["workflow_id"])["creator_role"] == "continuity_coordinator"


def test_its_keys_are_its_own(client, hall):
    """Neither those of operators nor those of another coordinator."""
    there = {
        hall.operator.create_workflow("shared-key", [SEND])["workflow_id"],
        client.create_workflow("shared-key", [SEND])["workflow_id"],
        hall.client().create_workflow("shared-key", [{**SEND, "tool": "other"}])["workflow_id"],
    }
    assert len(there) == 3


def test_renewing_the_credential_of_a_principal_goes_on_with_its_work(hall):
    principal = f"agent-{secrets.token_hex(6)}"
    before, after = (ContinuityClient(hall.url, hall.grant(principal)) for _ in range(2))
    made = before.create_workflow("k", [SEND], activate=True)
    assert after.create_workflow("k", [SEND], activate=True)["workflow_id"] == made["workflow_id"]
    with pytest.raises(ConflictError, match="definition"):
        after.create_workflow("k", [{**SEND, "tool": "other"}])


def test_it_finds_its_own_work_by_key_and_creates_none_by_looking(client, hall):
    made = client.create_workflow("k", [SEND], activate=True)
    assert client.find_workflow("k", [SEND])["workflow_id"] == made["workflow_id"]
    assert client.find_workflow("other", [SEND]) is None
    assert client.find_workflow("other", [SEND]) is None
    stranger = hall.client()
    assert stranger.find_workflow("k", [SEND]) is None
    assert stranger.find_workflow("k", [{**SEND, "tool": "other"}]) is None
    with pytest.raises(ConflictError) as caught:
        client.find_workflow("k", [{**SEND, "tool": "other"}])
    assert (caught.value.code, caught.value.workflow_id) == ("definition_conflict", made["workflow_id"])


def test_of_another_workspace_it_is_another_authority(hall, client):
    principal = f"agent-{secrets.token_hex(6)}"
    elsewhere = ContinuityClient(hall.url, hall.grant(principal, workspace_id="elsewhere"))
    here = client.create_workflow("k", [SEND], activate=True)["workflow_id"]
    assert elsewhere.find_workflow("k", [SEND]) is None
    with pytest.raises(NotFoundError):
        elsewhere.get_workflow(here)
    assert elsewhere.create_workflow("k", [SEND], activate=True)["workflow_id"] != here
    with pytest.raises(ConflictError):
        hall.grant(principal, workspace_id="default")


@pytest.mark.parametrize("role", ["continuity_host", "continuity_observer"])
def test_a_credential_that_may_create_no_work_runs_no_call(hall, client, role):
    workflow_id = client.create_workflow("k", [SEND], activate=True)["workflow_id"]
    scope = {"run_id": workflow_id} if role == "continuity_host" else {"observation_scope": "local"}
    other = ContinuityClient(hall.url, hall.grant(f"other-{secrets.token_hex(6)}", role, **scope))
    called = []
    narrow = {"type": "object", "maxProperties": 0}
    for arguments in (None, narrow):
        tool = RegisteredTool("send", lambda *given: called.append(given), arguments=arguments)
        runner = GovernedToolRunner(other, [tool], namespace="tests", enabled=True)
        with pytest.raises((ForbiddenError, NotFoundError)):
            runner.run_calls([call(to="a")], thread_id="t", message_id="m")
    assert called == []


def test_its_workflows_have_one_operation(client):
    with pytest.raises(MalformedError, match="one operation"):
        client.create_workflow("k", [SEND, {**SEND, "name": "again"}])


def test_it_never_undoes_a_pause(client, hall):
    workflow_id = client.create_workflow("k", [SEND], activate=True)["workflow_id"]
    hall.pause(workflow_id)
    again = client.create_workflow("k", [SEND], activate=True, begin=BEGIN)
    assert (again["workflow_id"], again["enabled"]) == (workflow_id, False)
    assert again["begin"]["reason"] == "workflow_disabled_or_capture_unavailable"
    with pytest.raises(ForbiddenError):
        client.configure(workflow_id, enabled=True)
    assert hall.operator.get_workflow(workflow_id)["enabled"] is False


def test_others_work_does_not_exist_for_it(client, hall):
    others = [
        hall.operator.create_workflow(f"k-{secrets.token_hex(6)}", [SEND], activate=True)["workflow_id"],
        hall.client().create_workflow("k", [SEND], activate=True)["workflow_id"],
    ]
    attempts = (
        client.get_workflow,
        lambda at: client.begin(at, "send", run_id="r", attempt_id="a"),
        lambda at: client.configure(at, enabled=False),
        lambda at: client.abandon(at, "send", reason="No."),
    )
    for attempt in attempts:
        said = []
        for workflow_id in (*others, f"wf_{'0' * 32}"):
            with pytest.raises((NotFoundError, ForbiddenError)) as caught:
                attempt(workflow_id)
            said.append((type(caught.value), caught.value.message))
        assert len(set(said)) == 1
    with pytest.raises(NotFoundError):
        client.get_workflow(others[0])


def test_it_reads_its_own_work_and_lists_none(client):
    workflow_id = client.create_workflow("k", [SEND], activate=True)["workflow_id"]
    assert client.get_workflow(workflow_id)["workflow_key"] == "k"
    with pytest.raises(ForbiddenError):
        client.list_workflows()


def test_it_never_grants_rotates_locks_deletes_stops_or_confirms(hall):
    token = hall.token()
    client, transport = ContinuityClient(hall.url, token), Transport(hall.url, token)
    workflow_id = client.create_workflow("k", [SEND], activate=True)["workflow_id"]
    grant = {"principal_id": "more", "role": "continuity_coordinator", "workspace_id": "default"}
    decision = {
        "name": "send", "happened": False, "revision": 1, "late_receipts": 0, "reason": "Because.",
    }  # fmt: skip
    bodies = {
        "/v1/evidence/grants": grant,
        "/v1/evidence/revoke": {"principal_id": "hall-operator"},
        "/v1/evidence/delete": {"run_id": workflow_id, "confirmation": workflow_id},
        "/v1/evidence/settings/rotate": {"confirmation": "rotate"},
        "/v1/evidence/settings/lock": {"confirmation": "lock", "passphrase": "seven lanterns above the harbour"},
        "/v1/evidence/settings/unlock": {"passphrase": "seven lanterns above the harbour"},
        "/v1/evidence/settings/capture-mode": {"capture_mode": "off"},
        f"/v1/continuity/{workflow_id}/abandon": {"name": "send", "reason": "No."},
        f"/v1/continuity/{workflow_id}/confirm": decision,
    }
    for path, body in bodies.items():
        # And no NotFoundError: every one of these is there, and is refused for what the credential is.
        with pytest.raises(ForbiddenError):
            transport.call("POST", path, body)
    with pytest.raises(ForbiddenError):
        transport.call("GET", "/v1/evidence/settings")
    assert client.get_workflow(workflow_id)["operations"][0]["status"] == "pending"


@pytest.fixture(scope="module")
def small(instance_template, tmp_path_factory):
    """A server on which a coordinator may hold little history."""
    instance = instance_template.copy_to(tmp_path_factory.mktemp("small") / "instance")
    server = start(instance, extra={"ATMEM_COORDINATOR_HISTORY_BYTES": str(100 * 1024)})
    try:
        yield Hall(server)
    finally:
        stop(server)


def test_at_the_end_of_its_history_new_work_stops_and_what_was_admitted_goes_on(small):
    """Each granted attempt keeps room for its largest receipt, so that the second one finds none."""
    client = small.client()
    admitted = client.create_workflow("one", [SEND], activate=True, begin=BEGIN)
    for workflow_key in ("two", "three"):
        with pytest.raises(ConflictError) as caught:
            client.create_workflow(workflow_key, [SEND], activate=True, begin=BEGIN)
        assert caught.value.code == "coordinator_history_limit"
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": admitted["begin"]["operation_id"], "effect_id": "e",
        "result": "x" * 60_000,
    }  # fmt: skip
    taken = client.outcome(
        admitted["workflow_id"], "send", run_id="run-1", attempt_id="at-1",
        lease_token=admitted["begin"]["lease_token"], receipt=receipt,
    )  # fmt: skip
    assert (taken["accepted"], taken["status"]) == (True, "completed")
    assert client.get_workflow(admitted["workflow_id"])["operations"][0]["receipt"]["result"] == "x" * 60_000
    with pytest.raises(ConflictError):
        client.create_workflow("four", [SEND], activate=True, begin=BEGIN)


def test_at_the_end_of_its_history_a_refused_begin_names_the_work_that_is_there_and_no_other(small):
    client = small.client()
    client.create_workflow("one", [SEND], activate=True, begin=BEGIN)
    two = client.create_workflow("two", [SEND], activate=True)["workflow_id"]
    attempts = {
        lambda: client.create_workflow("two", [SEND], activate=True, begin=BEGIN): two,
        lambda: client.run_operation(two, "send", {}): two,
        lambda: client.create_workflow("three", [SEND], activate=True, begin=BEGIN): "",
    }
    for attempt, named in attempts.items():
        with pytest.raises(ConflictError) as caught:
            attempt()
        assert (caught.value.code, caught.value.workflow_id) == ("coordinator_history_limit", named)


def test_a_runner_says_that_its_coordinator_is_full_by_the_servers_own_code(small):
    client = small.client()
    client.create_workflow("one", [SEND], activate=True, begin=BEGIN)
    called = []
    runner = GovernedToolRunner(
        client, [RegisteredTool("send", lambda *given: called.append(given))], namespace="tests", enabled=True
    )
    with pytest.raises(RecoveryBlocked) as caught:
        runner.run_calls([call(to="a")], thread_id="t", message_id="m")
    assert caught.value.code == "coordinator_history_limit"
    assert called == []


def test_five_hundred_unfinished_workflows_are_the_most_and_finished_ones_make_room(client, hall):
    for number in range(limits.COORDINATOR_UNFINISHED):
        last = client.create_workflow(f"k-{number}", [SEND], activate=True)
    with pytest.raises(ConflictError) as caught:
        client.create_workflow("one-more", [SEND], activate=True)
    assert caught.value.code == "coordinator_open_limit"
    assert client.create_workflow("k-7", [SEND], activate=True, begin=BEGIN)["begin"]["action"] == "execute"
    hall.operator.abandon(last["workflow_id"], "send", reason="Not needed.")
    client.create_workflow("one-more", [SEND], activate=True)
