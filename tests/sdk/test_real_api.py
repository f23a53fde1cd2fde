"""The SDK against the real application: what a host meets when things go wrong, with a clock moved by hand."""

from __future__ import annotations

import json
import threading

import pytest
import requests

from continuity import errors, limits
from continuity.client import ContinuityClient, NotDispatched, OutcomeNotRecorded, RecoveryBlocked, Refused, Tool
from continuity.services.callers import Role
from continuity.tools import DirectoryPublisher, JsonResponseTool, make_output, publish_operation
from tests.web.site import site_on
from tests.wsgi_adapter import WSGIAdapter

UPLOAD = {"name": "upload", "tool": "upload", "arguments": {"a": [1, 2.0, "é"]}}


@pytest.fixture
def site(fresh_instance):
    with site_on(fresh_instance.folder) as made:
        made.person("ada", Role.ADMINISTRATOR)
        yield made


class Host:
    """What a host has: tokens from a person, clients in this process, a clock that is the server's."""

    def __init__(self, site):
        self.site = site
        self.browser = site.signed_in("ada")
        self.adapter = WSGIAdapter(site.app)
        self.operator = self.client("doc-operator", "evidence_collector")

    def token(self, principal, role, **scope):
        reply = self.browser.post("/v1/evidence/grants", {"principal_id": principal, "role": role, **scope})
        assert reply.status_code == 200, reply.json
        return reply.json["token"]

    def client(self, principal, role, *, trace=None, **scope):
        return ContinuityClient(
            "http://localhost", self.token(principal, role, **scope), adapter=self.adapter, trace=trace,
            clock=lambda: self.site.clock.monotonic / 1e6, sleep=self.site.clock.advance,
        )  # fmt: skip

    def prepared(self, key="key-1", *, enabled=True, operations=None, **definition):
        view = self.operator.create_workflow(key, operations or [{**UPLOAD, **definition}])
        if enabled:
            self.operator.configure(view["workflow_id"], enabled=True)
        return view["workflow_id"]

    def worker(self, workflow_id, **options):
        return self.client(f"worker-{workflow_id[:12]}", "continuity_host", run_id=workflow_id, **options)

    def operation(self, workflow_id, name="upload"):
        view = self.operator.get_workflow(workflow_id)
        return next(op for op in view["operations"] if op["name"] == name)

    def lose(self, call, when, times=1):
        """Lose the next `times` requests or replies of a call on the way."""
        left = [times]

        def fault(path, moment):
            if path.endswith(call) and moment == when and left[0]:
                left[0] -= 1
                raise requests.ConnectionError("lost")

        self.adapter.fault = fault


@pytest.fixture
def host(site):
    return Host(site)


class Destination:
    """Keeps what arrived, by operation; says what a test wants it to say."""

    def __init__(self):
        self.effects = []
        self.says = None
        self.knows = True

    def execute(self, arguments, operation_id, idempotency_key, _timeout_s):
        self.effects.append((operation_id, idempotency_key, json.dumps(arguments)))
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says or self.success(operation_id)

    def query(self, _arguments, operation_id, *_):
        if self.knows and any(effect[0] == operation_id for effect in self.effects):
            return self.success(operation_id)
        return {"outcome": "absent", "operation_id": operation_id}

    @staticmethod
    def success(operation_id):
        return {
            "outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": "e-1", "result": {"n": 1},
        }  # fmt: skip

    def tools(self):
        return {"upload": Tool(execute=self.execute, query=self.query)}


@pytest.fixture
def there():
    return Destination()


def stop_of(client, workflow_id, there):
    with pytest.raises(RecoveryBlocked) as caught:
        client.run_operation(workflow_id, "upload", there.tools())
    return caught.value


def test_work_is_done_once_and_its_result_is_for_ever(host, there):
    workflow_id = host.prepared()
    worker = host.worker(workflow_id)

    results = [worker.run_operation(workflow_id, "upload", there.tools()) for _ in range(3)]

    assert results == [{"n": 1}] * 3
    assert len(there.effects) == 1
    operation = host.operation(workflow_id)
    assert operation["status"] == "completed"
    assert [attempt["outcome"] for attempt in operation["attempts"]] == ["confirmed_succeeded"]
    assert there.effects[0][2] == json.dumps({"a": [1, 2, "é"]})


def test_work_that_nobody_enabled_is_not_begun(host, there):
    workflow_id = host.prepared(enabled=False)

    stop = stop_of(host.worker(workflow_id), workflow_id, there)

    assert stop.code == "workflow_disabled_or_capture_unavailable"
    assert there.effects == []


def test_the_same_key_with_other_arguments_is_refused_and_another_key_is_new_work(host):
    first = host.prepared("key-1")

    with pytest.raises(errors.ConflictError) as caught:
        host.prepared("key-1", arguments={"a": 2})
    assert caught.value.code == "definition_conflict"
    assert host.prepared("key-1") == first
    assert host.prepared("key-2") != first


def test_a_lost_begin_reply_is_met_by_a_live_lease_and_then_by_a_query(host, there):
    workflow_id = host.prepared(capability="query")
    worker = host.worker(workflow_id)
    host.lose("/begin", "reply")

    with pytest.raises(errors.TransportError):
        worker.run_operation(workflow_id, "upload", there.tools())
    blocked = stop_of(worker, workflow_id, there)
    host.site.clock.advance(limits.LEASE_S + 1)
    asked = stop_of(worker, workflow_id, there)

    assert (blocked.code, asked.code) == ("attempt_in_progress", "effect_not_found")
    assert 0 < blocked.retry_after_s <= limits.LEASE_S
    assert there.effects == []
    assert [attempt["mode"] for attempt in host.operation(workflow_id)["attempts"]] == ["execute", "query"]


def test_a_lost_begin_request_has_granted_nothing(host, there):
    workflow_id = host.prepared()
    worker = host.worker(workflow_id)
    host.lose("/begin", "request")

    with pytest.raises(errors.TransportError):
        worker.run_operation(workflow_id, "upload", there.tools())

    assert worker.run_operation(workflow_id, "upload", there.tools()) == {"n": 1}


@pytest.mark.parametrize("when", ["request", "reply"])
def test_a_lost_outcome_is_sent_again_and_accepted_once(host, there, when):
    workflow_id = host.prepared()
    host.lose("/outcome", when, times=3)

    assert host.worker(workflow_id).run_operation(workflow_id, "upload", there.tools()) == {"n": 1}

    operation = host.operation(workflow_id)
    assert (operation["status"], operation["late_receipts"]) == ("completed", 0)
    assert len(there.effects) == 1


def test_a_receipt_that_nobody_takes_is_found_again_by_a_query(host, there):
    workflow_id = host.prepared(capability="query")
    worker = host.worker(workflow_id)
    host.lose("/outcome", "request", times=1_000)

    with pytest.raises(OutcomeNotRecorded) as caught:
        worker.run_operation(workflow_id, "upload", there.tools())
    host.lose("/outcome", "request", times=0)

    assert caught.value.receipt["effect_id"] == "e-1"
    assert worker.run_operation(workflow_id, "upload", there.tools()) == {"n": 1}
    assert len(there.effects) == 1


def test_a_receipt_in_hand_can_still_be_delivered(host, there):
    workflow_id = host.prepared()
    worker = host.worker(workflow_id)
    reply = worker.begin(workflow_id, "upload", run_id="r", attempt_id="at_1")
    receipt = there.success(reply["operation_id"])
    host.site.clock.advance(3 * limits.LEASE_S)

    values = {"run_id": "r", "attempt_id": "at_1", "lease_token": reply["lease_token"], "receipt": receipt}
    first = worker.outcome(workflow_id, "upload", **values)
    again = worker.outcome(workflow_id, "upload", **values)

    assert (first["accepted"], first["status"]) == (True, "completed")
    assert again == {**first, "replayed": True}


def test_a_worker_that_wakes_up_too_late_does_not_execute(host, there):
    workflow_id = host.prepared()

    def sleep_after_reply(point):
        if point == "begin.after_reply":
            host.site.clock.advance(30)

    sleepy = host.worker(workflow_id, trace=sleep_after_reply)

    assert stop_of(sleepy, workflow_id, there).code == "not_dispatched"
    assert there.effects == []
    assert host.operation(workflow_id)["status"] == "pending"
    assert host.worker(workflow_id).run_operation(workflow_id, "upload", there.tools()) == {"n": 1}


@pytest.mark.parametrize(
    ("says", "code", "status", "again"),
    [
        (NotDispatched("No route."), "not_dispatched", "pending", "done"),
        (Refused("Quota."), "refused_by_destination", "refused", "refused_by_destination"),
        (TimeoutError(), "outcome_unknown", "uncertain", "needs_confirmation"),
        ({"outcome": "unknown"}, "outcome_unknown", "uncertain", "needs_confirmation"),
        ({"outcome": "made up"}, "outcome_unknown", "uncertain", "needs_confirmation"),
        (None, None, "completed", "done"),
    ],
)
def test_what_a_tool_knows_decides_what_may_follow(host, there, says, code, status, again):
    workflow_id = host.prepared()
    worker = host.worker(workflow_id)
    there.says = says

    if code is None:
        worker.run_operation(workflow_id, "upload", there.tools())
    else:
        assert stop_of(worker, workflow_id, there).code == code
    assert host.operation(workflow_id)["status"] == status
    there.says = None
    if again == "done":
        assert worker.run_operation(workflow_id, "upload", there.tools()) == {"n": 1}
    else:
        assert stop_of(worker, workflow_id, there).code == again
        assert len(there.effects) == 1


def test_an_unknown_upload_is_found_by_the_next_run(host, there):
    workflow_id = host.prepared(capability="query")
    worker = host.worker(workflow_id)
    there.says = TimeoutError()
    stop_of(worker, workflow_id, there)
    there.says = None

    assert worker.run_operation(workflow_id, "upload", there.tools()) == {"n": 1}
    assert len(there.effects) == 1


def test_an_idempotent_destination_gets_the_same_key_again_while_it_keeps_it(host, there):
    workflow_id = host.prepared(capability="idempotent", retention_seconds=600)
    worker = host.worker(workflow_id)
    there.says = TimeoutError()
    stop_of(worker, workflow_id, there)
    stop_of(worker, workflow_id, there)
    host.site.clock.advance(600)

    assert stop_of(worker, workflow_id, there).code == "idempotency_window_expired"
    assert len(there.effects) == 2
    assert len({key for _, key, _ in there.effects}) == 1
    assert there.effects[0][1].startswith("ik_")


def test_absence_becomes_final_and_then_the_work_goes_on_in_one_run(host, there):
    workflow_id = host.prepared(capability="query", absence_final_after_seconds=60)
    worker = host.worker(workflow_id)
    host.lose("/begin", "reply")
    with pytest.raises(errors.TransportError):
        worker.run_operation(workflow_id, "upload", there.tools())
    host.site.clock.advance(limits.LEASE_S + 1)

    stop = stop_of(worker, workflow_id, there)
    assert stop.code == "effect_not_found"
    assert 0 < stop.retry_after_s <= 60
    assert len(host.operation(workflow_id)["attempts"]) == 2
    host.site.clock.advance(stop.retry_after_s + 0.001)

    assert worker.run_operation(workflow_id, "upload", there.tools()) == {"n": 1}
    assert len(there.effects) == 1
    modes = [attempt["mode"] for attempt in host.operation(workflow_id)["attempts"]]
    assert modes == ["execute", "query", "query", "execute"]


def test_absence_is_never_assumed_where_it_is_not_declared(host, there):
    workflow_id = host.prepared(capability="query")
    worker = host.worker(workflow_id)
    there.says, there.knows = TimeoutError(), False
    stop_of(worker, workflow_id, there)

    for _ in range(5):
        host.site.clock.advance(86_400)
        stop = stop_of(worker, workflow_id, there)
        assert (stop.code, stop.retry_after_s) == ("effect_not_found", None)

    assert len(there.effects) == 1


def test_a_worker_that_was_overtaken_gets_the_result_that_was_saved(host, there):
    workflow_id = host.prepared(capability="query")

    def overtake(point):
        if point == "effect.after":
            host.site.clock.advance(limits.LEASE_S + 1)
            assert host.worker(workflow_id).run_operation(workflow_id, "upload", there.tools()) == {"n": 1}

    slow = host.worker(workflow_id, trace=overtake)

    assert slow.run_operation(workflow_id, "upload", there.tools()) == {"n": 1}
    assert len(there.effects) == 1
    assert host.operation(workflow_id)["late_receipts"] == 1


def test_operations_run_in_their_order(host, there):
    operations = [{**UPLOAD, "name": name} for name in ("first", "second")]
    workflow_id = host.prepared(operations=operations)
    worker = host.worker(workflow_id)

    with pytest.raises(RecoveryBlocked) as caught:
        worker.run_operation(workflow_id, "second", there.tools())
    assert caught.value.code == "earlier_work_unfinished"
    for name in ("first", "second"):
        assert worker.run_operation(workflow_id, name, there.tools()) == {"n": 1}
    assert len({effect[0] for effect in there.effects}) == 2


def test_a_pause_stops_new_work_and_takes_the_receipt_of_what_was_granted(host, there):
    workflow_id = host.prepared()

    def pause(point):
        if point == "effect.before":
            host.operator.configure(workflow_id, enabled=False)

    worker = host.worker(workflow_id, trace=pause)

    assert worker.run_operation(workflow_id, "upload", there.tools()) == {"n": 1}


def test_a_worker_may_do_its_own_work_alone(host, there):
    mine, other = host.prepared("mine"), host.prepared("other")
    worker = host.worker(mine)

    with pytest.raises(errors.NotFoundError):
        worker.run_operation(other, "upload", there.tools())
    with pytest.raises(errors.OperationNotFoundError):
        worker.run_operation(mine, "no-such-operation", there.tools())
    with pytest.raises(errors.ForbiddenError):
        worker.configure(mine, enabled=True)
    assert there.effects == []


def test_a_revoked_credential_is_refused_at_once(host, there):
    workflow_id = host.prepared()
    worker = host.worker(workflow_id)
    principal = f"worker-{workflow_id[:12]}"
    assert host.browser.post("/v1/evidence/revoke", {"principal_id": principal}).status_code == 200

    with pytest.raises(errors.UnauthenticatedError, match=r"nothing was changed.*atmem continuity credential"):
        worker.run_operation(workflow_id, "upload", there.tools())


def test_a_lease_can_be_renewed_by_hand(host):
    workflow_id = host.prepared()
    worker = host.worker(workflow_id)
    reply = worker.begin(workflow_id, "upload", run_id="r", attempt_id="at_1")
    host.site.clock.advance(60)

    renewed = worker.renew(workflow_id, "upload", run_id="r", attempt_id="at_1", lease_token=reply["lease_token"])

    assert renewed["lease_until"] == pytest.approx(reply["lease_until"] + 60)


def test_a_coordinator_creates_and_runs_in_two_requests(host, there):
    coordinator = host.client("agent-tools", "continuity_coordinator", workspace_id="default")
    requests_seen = []
    host.adapter.fault = lambda path, when: requests_seen.append(path) if when == "request" else None

    assert coordinator.run_new_operation("call-1", UPLOAD, there.tools()) == {"n": 1}
    first = len(requests_seen)
    assert coordinator.run_new_operation("call-1", UPLOAD, there.tools()) == {"n": 1}

    assert (first, len(requests_seen)) == (2, 3)
    assert len(there.effects) == 1


def test_many_runs_at_once_have_one_effect(host, there):
    workflow_id = host.prepared()
    workers = [host.worker(workflow_id) for _ in range(4)]
    results, stops = [], []

    def work(worker):
        for _ in range(5):
            try:
                results.append(worker.run_operation(workflow_id, "upload", there.tools()))
            except RecoveryBlocked as stop:
                stops.append(stop.code)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(there.effects) == 1
    assert results
    assert all(result == {"n": 1} for result in results)
    assert set(stops) <= {"attempt_in_progress"}


def test_a_document_is_published_once_whatever_happens(host, tmp_path):
    (tmp_path / "README.md").write_text("# Mine\n")
    output = tmp_path / "published"
    operation = publish_operation(tmp_path / "README.md", output)
    view = host.operator.create_workflow("publish", [operation])
    make_output(operation)
    workflow_id = view["workflow_id"]
    host.operator.configure(workflow_id, enabled=True)
    tools = {DirectoryPublisher.TOOL: DirectoryPublisher(output)}

    def die(point):
        if point == "effect.after":
            raise SystemExit(9)

    worker = host.worker(workflow_id)
    host.lose("/outcome", "request", times=1_000)
    with pytest.raises(SystemExit):
        host.worker(workflow_id, trace=die).run_operation(workflow_id, "publish", tools)
    host.lose("/outcome", "request", times=0)
    host.site.clock.advance(limits.LEASE_S + 1)
    result = worker.run_operation(workflow_id, "publish", tools)

    assert [path.name for path in output.iterdir()] == [result["name"]]
    assert worker.run_operation(workflow_id, "publish", tools) == result
    attempts = host.operation(workflow_id, "publish")["attempts"]
    assert [attempt["mode"] for attempt in attempts] == ["execute", "query"]


def test_a_json_answer_is_kept_as_the_result(host):
    workflow_id = host.prepared()
    tools = {"upload": JsonResponseTool(lambda *_: {"id": "r-1", "items": [1, 2.0, None]})}
    worker = host.worker(workflow_id)

    first = worker.run_operation(workflow_id, "upload", tools)

    assert first == {"id": "r-1", "items": [1, 2, None]}
    assert worker.run_operation(workflow_id, "upload", {}) == first
    assert host.operation(workflow_id)["receipt"]["effect_id"] == "r-1"


def test_no_secret_of_a_run_is_readable_in_the_database(host, there, fresh_instance):
    sentinel = "SENTINEL-of-the-arguments"
    workflow_id = host.prepared(arguments={"secret": sentinel})
    there.says = {"outcome": "unknown", "note": "SENTINEL-of-the-receipt"}
    stop_of(host.worker(workflow_id), workflow_id, there)

    for path in fresh_instance.folder.rglob("*"):
        if path.is_file():
            assert b"SENTINEL-of" not in path.read_bytes()
