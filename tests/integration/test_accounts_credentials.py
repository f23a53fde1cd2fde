"""Bearer credentials: what is issued to whom, what a token stands for, when it is dead (security.md T01–T06, T15)."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from app.auth import tokens
from app.auth.accounts import LOCAL
from app.auth.requests import GrantRequest, RevokeRequest
from app.auth.schema import credentials, memberships
from continuity.errors import (
    ConflictError,
    ForbiddenError,
    MalformedError,
    NotFoundError,
    SealedError,
    UnauthenticatedError,
)
from continuity.services.callers import CallerKind
from continuity.store import schema
from tests.people import Role, install

DAY_S = 86_400
WORKER = "continuity_host"
COORDINATOR = "continuity_coordinator"


@pytest.fixture
def people(store, tmp_path):
    return with_people(install(store, tmp_path))


@pytest.fixture
def here(sqlite_store, tmp_path):
    return with_people(install(sqlite_store, tmp_path))


def with_people(made):
    made.person("root", Role.ADMINISTRATOR)
    made.person("ada", at=("default", "north"))
    made.person("bob", at=("south",))
    made.person("ivy", Role.INVESTIGATOR)
    return made


def revoke(made, by, principal_id, workspace_id=None):
    request = RevokeRequest.from_json({"principal_id": principal_id, "workspace_id": workspace_id})
    return made.auth.credentials.revoke(made.caller(by), request)


def is_dead(made, token):
    try:
        made.resolve(token)
    except UnauthenticatedError:
        return True
    return False


class TestWhatATokenStandsFor:
    def test_a_worker_reaches_its_one_workflow(self, people):
        workflow_id = people.workflow("north")

        caller = people.resolve(people.grant(people.caller("ada"), "w", role=WORKER, run_id=workflow_id))

        assert caller.kind is CallerKind.WORKER
        assert caller.workflow_id == workflow_id
        assert caller.workspaces == frozenset({people.workspace("north")})
        assert caller.principal == "w"
        assert caller.role is None
        assert not caller.is_fresh

    def test_a_coordinator_has_a_namespace_of_its_own_in_one_workspace(self, people):
        ada = people.caller("ada")

        one = people.resolve(people.grant(ada, "one", role=COORDINATOR, workspace_id="north"))
        again = people.resolve(people.grant(ada, "one", role=COORDINATOR, workspace_id="north"))
        two = people.resolve(people.grant(ada, "two", role=COORDINATOR))

        assert one.home_workspace == people.workspace("north")
        assert two.home_workspace == people.workspace("default")
        assert one.owner_pk == again.owner_pk
        assert one.owner_pk is not None
        assert one.owner_pk != two.owner_pk
        assert one.workflow_id is None

    def test_an_operator_reaches_what_its_issuer_reaches(self, people):
        of_ada = people.resolve(people.grant(people.caller("ada"), "a"))
        of_bob = people.resolve(people.grant(people.caller("bob"), "b"))
        of_root = people.resolve(people.grant(people.caller("root"), "r"))

        assert of_ada.workspaces == frozenset({people.workspace("default"), people.workspace("north")})
        assert of_bob.workspaces == frozenset({people.workspace("south")})
        assert of_root.workspaces is None
        assert of_ada.home_workspace == of_root.home_workspace == people.workspace("default")
        assert of_bob.home_workspace == people.workspace("south")

    def test_an_operator_of_one_workspace_reaches_that(self, people):
        caller = people.resolve(people.grant(people.caller("root"), "r", workspace_id="north"))

        assert caller.workspaces == frozenset({people.workspace("north")})
        assert caller.home_workspace == people.workspace("north")

    def test_the_actor_is_the_credential_and_not_the_person(self, here):
        caller = here.resolve(here.grant(here.caller("ada"), "a"))

        assert caller.actor.startswith("cred:crd_")
        assert len(caller.actor) == 29

    def test_while_the_vault_is_locked_a_token_is_still_known(self, here):
        token = here.grant(here.caller("ada"), "a")
        here.vault.lock()

        assert here.resolve(token).principal == ""

    def test_a_name_that_was_read_before_is_sealed_as_well_while_the_vault_is_locked(self, here):
        token = here.grant(here.caller("ada"), "a")
        assert here.resolve(token).principal == "a"
        here.vault.lock()

        assert here.resolve(token).principal == ""


class TestResolving:
    def test_it_is_one_select_and_no_write(self, people):
        token = people.grant(people.caller("ada"), "w", role=WORKER, run_id=people.workflow())
        people.resolve(token)
        seen = []
        event.listen(people.store.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))

        people.resolve(token)

        assert [statement.split()[0] for statement in seen] == ["SELECT"]

    def test_a_token_with_a_wrong_checksum_costs_no_look_up(self, people):
        token = people.grant(people.caller("ada"), "a")
        seen = []
        event.listen(people.store.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))

        assert is_dead(people, token[:-1] + ("0" if token[-1] != "0" else "1"))
        assert seen == []

    @pytest.mark.parametrize(
        "header",
        [
            "", "Bearer", "Bearer ", "Basic {}", "Bearer  {}", "Bearer {} ", " Bearer {}", "Bearer\t{}", "{}",
            "Bearer {}, Bearer {}", "Bearer {}\n", "Bearer é{}", "Token {}",
        ],
    )  # fmt: skip
    def test_only_one_form_of_header_is_taken(self, here, header):
        token = here.grant(here.caller("ada"), "a")

        with pytest.raises(UnauthenticatedError):
            here.auth.principals.bearer(header.format(token, token), request_id="req_test")

    @pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
    def test_the_scheme_is_read_in_any_case(self, here, scheme):
        token = here.grant(here.caller("ada"), "a")

        assert here.auth.principals.bearer(f"{scheme} {token}", request_id="req_test").kind is CallerKind.OPERATOR

    def test_a_well_formed_token_that_nobody_issued_is_refused(self, people):
        assert is_dead(people, tokens.new_token(CallerKind.OPERATOR))

    def test_the_database_holds_no_token(self, people):
        token = people.grant(people.caller("ada"), "secret-principal")
        row = people.rows(credentials)[0]

        assert token not in repr(row)
        assert row.token_hash == tokens.hash_of(token)
        assert "secret-principal" not in repr(people.rows(schema.owners))

    def test_last_use_is_written_down_later_and_once_a_minute(self, people):
        token = people.grant(people.caller("ada"), "a")
        people.resolve(token)
        assert people.rows(credentials)[0].last_used_at is None

        people.auth.tidy()
        first = people.rows(credentials)[0].last_used_at
        people.clock.advance(30)
        people.resolve(token)
        people.auth.tidy()
        same = people.rows(credentials)[0].last_used_at
        people.clock.advance(31)
        people.resolve(token)
        people.auth.tidy()

        assert first == same
        assert people.rows(credentials)[0].last_used_at == people.clock.now_us()


class TestEndOfACredential:
    def test_it_expires_after_90_days_unless_it_says_otherwise(self, people):
        ada = people.caller("ada")
        usual, short = people.grant(ada, "a"), people.grant(ada, "b", expires_in_seconds=60)

        people.clock.advance(59)
        assert not is_dead(people, short)
        people.clock.advance(1)
        assert is_dead(people, short)
        people.clock.advance(90 * DAY_S - 61)
        assert not is_dead(people, usual)
        people.clock.advance(1)
        assert is_dead(people, usual)

    def test_a_clock_set_back_does_not_revive_it(self, here):
        token = here.grant(here.caller("ada"), "a", expires_in_seconds=60)
        here.clock.advance(61)
        here.set_vault(clock_high_water=here.clock.now_us())

        here.clock.set_back(DAY_S)

        assert is_dead(here, token)

    def test_it_is_revoked_from_the_next_request_on(self, people):
        token = people.grant(people.caller("ada"), "a")
        assert not is_dead(people, token)

        assert revoke(people, "ada", "a") == 1
        assert is_dead(people, token)
        assert revoke(people, "ada", "a") == 0

    def test_its_issuer_is_disabled(self, people):
        token = people.grant(people.caller("ada"), "a")

        people.auth.accounts.disable("ada", by=LOCAL)
        assert is_dead(people, token)
        people.auth.accounts.enable("ada", by=LOCAL)
        assert not is_dead(people, token)

    @pytest.mark.parametrize("fields", [{}, {"workspace_id": "north"}, {"role": COORDINATOR, "workspace_id": "north"}])
    def test_its_issuer_may_issue_no_more(self, people, fields):
        token = people.grant(people.caller("ada"), "a", **fields)

        people.auth.accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL)

        assert is_dead(people, token)

    def test_its_issuer_left_the_workspace(self, people):
        ada = people.caller("ada")
        here, everywhere = people.grant(ada, "a", workspace_id="north"), people.grant(ada, "b")
        north = people.workspace("north")
        left = sa.delete(memberships).where(memberships.c.workspace_pk == north)

        people.store.write(lambda connection: connection.execute(left).rowcount)

        assert is_dead(people, here)
        assert people.resolve(everywhere).workspaces == frozenset({people.workspace("default")})

    def test_an_administrators_shrinks_with_the_role(self, people):
        people.person("eve", Role.ADMINISTRATOR, at=("south",))
        eve = people.caller("eve")
        everywhere, north = people.grant(eve, "a"), people.grant(eve, "b", workspace_id="north")

        people.auth.accounts.set_role("eve", Role.OPERATOR, by=LOCAL)

        assert people.resolve(everywhere).workspaces == frozenset({people.workspace("south")})
        assert is_dead(people, north)

    def test_its_workflow_is_deleted_and_another_takes_its_place(self, people):
        workflow_id = people.workflow()
        token = people.grant(people.caller("ada"), "w", role=WORKER, run_id=workflow_id)
        people.change(schema.workflows, deleted_at=people.clock.now_us(), sealed_head=None)

        people.workflow()

        assert is_dead(people, token)

    def test_the_vault_was_restored(self, people):
        token = people.grant(people.caller("ada"), "a")

        people.set_vault(epoch=2)

        assert is_dead(people, token)


class TestIssuing:
    def test_only_operators_and_administrators_issue(self, people):
        with pytest.raises(ForbiddenError):
            people.grant(people.caller("ivy"), "a")

    def test_no_credential_issues_or_revokes_another(self, here):
        machine = here.resolve(here.grant(here.caller("root"), "a"))

        with pytest.raises(ForbiddenError):
            here.grant(machine, "b")
        with pytest.raises(ForbiddenError):
            here.auth.credentials.revoke(machine, RevokeRequest.from_json({"principal_id": "a"}))
        with pytest.raises(ForbiddenError):
            here.auth.credentials.in_scope(machine)

    def test_the_password_must_have_been_given_within_ten_minutes(self, here):
        ada = here.caller("ada")
        stale = dataclasses.replace(ada, is_fresh=False)

        with pytest.raises(ForbiddenError) as refused:
            here.grant(stale, "a")
        assert refused.value.code == "reauthentication_required"

    @pytest.mark.parametrize("fields", [{"workspace_id": "south"}, {"workspace_id": "nowhere"}])
    @pytest.mark.parametrize("role", ["evidence_collector", COORDINATOR])
    def test_never_wider_than_ones_own_scope(self, people, fields, role):
        with pytest.raises(NotFoundError) as refused:
            people.grant(people.caller("ada"), "a", role=role, **fields)

        assert refused.value.message == "There is no such workspace."
        assert people.rows(credentials) == []

    def test_a_coordinator_without_a_workspace_is_of_the_default_one_or_nowhere(self, people):
        with pytest.raises(NotFoundError):
            people.grant(people.caller("bob"), "a", role=COORDINATOR)

    def test_an_administrator_names_a_workspace_into_being(self, people):
        caller = people.resolve(people.grant(people.caller("root"), "a", role=COORDINATOR, workspace_id="my-project"))

        assert caller.home_workspace == people.workspace("my-project")

    @pytest.mark.parametrize("workspace", ["south", "default"])
    def test_a_worker_of_another_workspaces_workflow_is_not_to_be_had(self, people, workspace):
        theirs = people.workflow("south")
        refusals = set()
        for run_id, named in [(theirs, None), (theirs, workspace), ("wf_" + "0" * 32, None)]:
            with pytest.raises(NotFoundError) as refused:
                people.grant(people.caller("ada"), "w", role=WORKER, run_id=run_id, workspace_id=named)
            refusals.add((refused.value.code, refused.value.message))

        assert len(refusals) == 1

    def test_a_worker_may_name_the_workspace_it_is_in_and_no_other(self, people):
        workflow_id, ada = people.workflow("north"), people.caller("ada")

        people.grant(ada, "w", role=WORKER, run_id=workflow_id, workspace_id="north")
        with pytest.raises(NotFoundError):
            people.grant(ada, "w", role=WORKER, run_id=workflow_id, workspace_id="default")

    def test_a_worker_of_a_deleted_workflow_is_refused(self, people):
        workflow_id = people.workflow()
        people.change(schema.workflows, deleted_at=people.clock.now_us(), sealed_head=None)

        with pytest.raises(ConflictError) as refused:
            people.grant(people.caller("ada"), "w", role=WORKER, run_id=workflow_id)
        assert refused.value.code == "workflow_deleted"
        with pytest.raises(NotFoundError):
            people.grant(people.caller("bob"), "w", role=WORKER, run_id=workflow_id)

    def test_a_locked_vault_issues_nothing(self, here):
        ada = here.caller("ada")
        here.vault.lock()

        with pytest.raises(SealedError):
            here.grant(ada, "a")
        assert here.rows(credentials) == []

    def test_a_vault_that_another_process_locked_issues_nothing(self, here):
        ada = here.caller("ada")
        here.set_vault(state="locked")

        with pytest.raises(SealedError):
            here.grant(ada, "a")

    def test_a_person_demoted_since_signing_in_issues_nothing(self, here):
        ada = here.caller("ada")
        here.auth.accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL)
        with pytest.raises(ForbiddenError):
            here.grant(ada, "a")

        here.auth.accounts.disable("ada", by=LOCAL)
        with pytest.raises(UnauthenticatedError):
            here.grant(ada, "a")

    def test_it_is_audited_without_the_token(self, people):
        token = people.grant(people.caller("ada"), "a")
        revoke(people, "ada", "a")

        assert people.actions()[-3:] == [
            ("credential.issue", "done"),
            ("user.sign_in", "done"),
            ("credential.revoke", "done"),
        ]
        seq = max(row.seq for row in people.rows(schema.audit) if row.action == "credential.issue")
        detail = people.store.read(lambda connection: people.audit.detail(connection, seq))
        assert detail == {"principal_id": "a", "role": "evidence_collector", "run_id": None}
        assert token not in repr(detail)


class TestPrincipals:
    def test_a_new_credential_leaves_the_older_ones_alive(self, people):
        ada = people.caller("ada")
        made = [people.grant(ada, "a") for _ in range(3)]

        assert not any(is_dead(people, token) for token in made)
        assert revoke(people, "ada", "a") == 3
        assert all(is_dead(people, token) for token in made)

    def test_two_issued_at_once_for_a_new_principal_both_work(self, people):
        ada, barrier, made = people.caller("ada"), threading.Barrier(4), []

        def run():
            barrier.wait()
            made.append(people.grant(ada, "a", role=COORDINATOR))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        callers = [people.resolve(token) for token in made]
        assert len(callers) == 4
        assert len({caller.owner_pk for caller in callers}) == 1
        assert len(people.rows(schema.owners)) == 1

    @pytest.mark.parametrize(
        "fields",
        [
            {"role": COORDINATOR},
            {"role": COORDINATOR, "workspace_id": "north"},
            {"workspace_id": "default"},
            {"workspace_id": "north"},
        ],
    )
    def test_a_known_name_keeps_its_kind_and_workspace(self, people, fields):
        ada = people.caller("ada")
        people.grant(ada, "a")

        with pytest.raises(ConflictError):
            people.grant(ada, "a", **fields)
        assert len(people.rows(credentials)) == 1

    def test_a_worker_principal_may_serve_another_workflow_of_its_workspace(self, people):
        ada, one, two = people.caller("ada"), people.workflow("north"), people.workflow("north")
        first = people.resolve(people.grant(ada, "w", role=WORKER, run_id=one))
        second = people.resolve(people.grant(ada, "w", role=WORKER, run_id=two))

        assert (first.workflow_id, second.workflow_id) == (one, two)
        with pytest.raises(ConflictError):
            people.grant(ada, "w", role=WORKER, run_id=people.workflow("default"))


class TestRenewing:
    def test_the_same_holder_gets_another_token_and_whoever_may_issue_no_more_gets_none(self, people):
        old = people.grant(people.caller("ada"), "w", role=WORKER, run_id=people.workflow("north"))
        credential_id = people.auth.credentials.in_scope(people.caller("ada"))[0].credential_id
        ada = people.caller("ada")

        new = people.auth.credentials.renew(ada, credential_id, expires_in_s=DAY_S).token

        assert new != old
        assert people.resolve(new).principal == people.resolve(old).principal == "w"
        people.auth.accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL)
        with pytest.raises(ForbiddenError):
            people.auth.credentials.renew(ada, credential_id, expires_in_s=DAY_S)


class TestRevoking:
    def test_what_is_not_in_ones_scope_is_not_found(self, people):
        people.grant(people.caller("bob"), "b", workspace_id="south")
        people.grant(people.caller("bob"), "everywhere")

        for principal_id, workspace in [
            ("b", None),
            ("b", "south"),
            ("everywhere", None),
            ("nobody", None),
            ("b", "x"),
        ]:
            with pytest.raises(NotFoundError) as refused:
                revoke(people, "ada", principal_id, workspace)
            assert refused.value.message == "There is no such principal."
        assert revoke(people, "root", "b") == 1
        assert revoke(people, "root", "everywhere") == 1

    def test_a_colleague_of_the_workspace_may_revoke(self, people):
        people.person("zoe", at=("north",))
        token = people.grant(people.caller("ada"), "c", role=COORDINATOR, workspace_id="north")

        assert revoke(people, "zoe", "c") == 1
        assert is_dead(people, token)

    def test_a_named_workspace_narrows_it(self, people):
        people.grant(people.caller("ada"), "c", role=COORDINATOR, workspace_id="north")

        with pytest.raises(NotFoundError):
            revoke(people, "ada", "c", "default")
        assert revoke(people, "ada", "c", "north") == 1

    def test_investigators_revoke_nothing(self, here):
        here.grant(here.caller("ada"), "a")

        with pytest.raises(ForbiddenError):
            revoke(here, "ivy", "a")


class TestList:
    def test_it_shows_ones_own_scope_with_names_and_without_tokens(self, people):
        workflow_id = people.workflow("north")
        token = people.grant(people.caller("ada"), "w", role=WORKER, run_id=workflow_id)
        people.clock.advance(1)
        people.grant(people.caller("bob"), "b")
        people.auth.tidy()

        of_ada = people.auth.credentials.in_scope(people.caller("ada"))
        of_root = people.auth.credentials.in_scope(people.caller("root"))

        assert [(line.principal_id, line.workspace, line.workflow_id, line.issuer) for line in of_ada] == [
            ("w", "north", workflow_id, "ada")
        ]
        assert [line.principal_id for line in of_root] == ["b", "w"]
        assert token not in repr(of_root)


VALID = {"principal_id": "a", "role": "evidence_collector"}
WRONG_GRANTS = [
    {},
    {"role": "evidence_collector"},
    {"principal_id": "a"},
    {**VALID, "principal_id": "a b"},
    {**VALID, "principal_id": "é"},
    {**VALID, "principal_id": ""},
    {**VALID, "principal_id": "a" * 129},
    {**VALID, "principal_id": 1},
    {**VALID, "role": "administrator"},
    {**VALID, "role": "continuity_observer"},
    {**VALID, "role": "thread_worker"},
    {**VALID, "role": ["evidence_collector"]},
    {**VALID, "run_id": "wf_" + "0" * 32},
    {"principal_id": "a", "role": WORKER},
    {**VALID, "observation_scope": "local"},
    {**VALID, "agents": ["a"]},
    {**VALID, "expires_in_seconds": 0},
    {**VALID, "expires_in_seconds": -1},
    {**VALID, "expires_in_seconds": 366 * DAY_S},
    {**VALID, "expires_in_seconds": True},
    {**VALID, "expires_in_seconds": 1.5},
    {**VALID, "expires_in_seconds": "60"},
    {**VALID, "workspace_id": "a/b"},
    {**VALID, "token": "atm_o"},
    {**VALID, "owner_pk": 1},
    {**VALID, "created_at": 1},
]


@pytest.mark.parametrize("body", WRONG_GRANTS, ids=str)
def test_a_grant_that_breaks_a_rule_is_malformed(body):
    with pytest.raises(MalformedError):
        GrantRequest.from_json(body)


def test_a_kind_that_is_not_issued_is_told_which_are():
    with pytest.raises(MalformedError, match="evidence_collector, continuity_host, continuity_coordinator"):
        GrantRequest.from_json({**VALID, "role": "person"})


def test_null_is_the_same_as_absent_and_a_year_is_the_longest():
    nulls = dict.fromkeys(["run_id", "workspace_id", "observation_scope", "agents", "expires_in_seconds"])

    assert GrantRequest.from_json({**VALID, **nulls}) == GrantRequest.from_json(VALID)
    assert GrantRequest.from_json({**VALID, "expires_in_seconds": 365 * DAY_S}).expires_in_s == 365 * DAY_S
