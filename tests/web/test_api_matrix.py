"""The authorisation matrix (security.md T08) and the proof that it can fail (T09)."""

from __future__ import annotations

import pytest

from app.api.documentation import documented
from app.auth import credentials
from app.auth.admission import STATIC, Admission, admission_of
from continuity.errors import ForbiddenError
from continuity.services import deletion, evidence_runs, opening, threads_ledger, threads_rights
from tests.web.matrix import ASKERS, EXPECTED, World, ask
from tests.web.site import site_on

CELLS = [(endpoint, asker) for endpoint in EXPECTED for asker in ASKERS]


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("matrix") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


def test_every_route_has_a_row(world):
    assert {rule.endpoint for rule in documented(world.site.app)} == set(EXPECTED)


def test_every_endpoint_says_whom_it_admits(world):
    app = world.site.app

    assert [name for name in app.view_functions if admission_of(app, name) is None] == []
    assert STATIC in app.view_functions


def test_an_endpoint_that_says_nothing_is_refused(fresh_instance):
    with site_on(fresh_instance.folder) as site:
        site.app.add_url_rule("/forgotten", "forgotten", lambda: "secret")

        reply = site.browser().send("GET", "/forgotten")

    assert reply.status_code == 403
    assert reply.json["error"]["code"] == "forbidden"


@pytest.mark.parametrize(("endpoint", "asker"), CELLS)
def test_who_may_do_what(world, endpoint, asker):
    reply = ask(world, endpoint, asker)

    assert reply.status_code == EXPECTED[endpoint].expected[asker], reply.text
    if reply.status_code >= 400:
        assert reply.json["format"] == "atmem-api-error-v1"
    if reply.status_code == 401 and not endpoint.startswith("session."):
        assert reply.headers["WWW-Authenticate"] == "Bearer"


def surprises(world, status):
    """Return the endpoints that answered otherwise than the matrix says to somebody it expects `status` for."""
    cells = [(endpoint, asker) for endpoint, asker in CELLS if EXPECTED[endpoint].expected[asker] == status]
    return {endpoint for endpoint, asker in cells if ask(world, endpoint, asker).status_code != status}


def rows_with(status):
    return {endpoint for endpoint, row in EXPECTED.items() if status in row.expected.values()}


def test_without_the_check_of_scope_the_matrix_fails(fresh_instance, monkeypatch):
    monkeypatch.setattr(opening, "is_visible", lambda _row, _caller: True)
    monkeypatch.setattr(deletion, "is_visible", lambda _row, _caller: True)
    monkeypatch.setattr(evidence_runs, "is_visible", lambda _row, _caller: True)
    monkeypatch.setattr(threads_rights, "require", lambda _caller, _row, _right, *, owner_ix: None)
    monkeypatch.setattr(threads_ledger.ThreadLedger, "lock_run", _lock_any_run)
    monkeypatch.setattr(credentials._Issuer, "reaches", lambda _issuer, _workspace: True)
    monkeypatch.setattr(credentials, "_within", lambda _issuer: credentials.sa.true())

    with site_on(fresh_instance.folder) as site:
        # Receipts are each principal's own whatever it may see, and the cursor of the matrix is nobody's.
        doubled = {"threads_api.history", "threads_api.receipt"}
        assert surprises(World(site), 404) == rows_with(404) - doubled


def _lock_any_run(ledger, connection, _caller, run_id):
    row = connection.execute(threads_ledger.statements.LOCKED_HEAD_BY_RUN, {"run_id": run_id}).one_or_none()
    return ledger.open_living(row)


def test_without_the_check_of_kind_and_role_the_matrix_fails(fresh_instance, monkeypatch):
    monkeypatch.setattr(Admission, "require", lambda _admission, _caller: None)

    with site_on(fresh_instance.folder) as site:
        # Credentials and an observer's scope are asked about once more where the work is done, and the sessions' views
        # ask by themselves.
        doubled = {
            "grants.issue", "grants.revoke", "session.reauthenticate", "session.change_password", "session.logout",
            "observers.submit", "evidence.export_plaintext", "capture.show", "capture.change",
            "keys.lock", "keys.unlock", "keys.rotate",
        }  # fmt: skip
        # Nobody but who may have threads is taken for an owner, and nobody but a worker for one, by the services too.
        doubled |= {endpoint for endpoint in EXPECTED if endpoint.startswith("thread")}
        assert surprises(World(site), 403) == rows_with(403) - doubled


def test_a_refusal_for_kind_or_role_says_nothing_of_objects(world):
    """The same bytes for an id that exists and one that does not: nothing was looked up."""
    worker = world.ask_as("worker of another workflow", world.target())
    existing, missing = world.target().workflow_id, "wf_" + "f" * 32

    replies = [worker.send("POST", f"/v1/continuity/{name}/confirm", None) for name in (existing, missing)]

    assert [reply.status_code for reply in replies] == [403, 403]
    assert replies[0].json["error"] == replies[1].json["error"]


def test_a_person_of_no_admitted_role_is_told_so():
    with pytest.raises(ForbiddenError):
        Admission().require(_person())


def _person():
    from continuity.services.callers import Caller, CallerKind, Role  # noqa: PLC0415

    return Caller(CallerKind.PERSON, "user:u", "req_x", None, 1, role=Role.ADMINISTRATOR)
