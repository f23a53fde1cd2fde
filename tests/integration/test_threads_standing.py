"""What a page asks beside a snapshot: rights as services hold to them, a question by its id, counts."""

from __future__ import annotations

import pytest

from continuity.errors import ConflictError, ForbiddenError, NotFoundError, SealedError
from continuity.services.callers import Role
from continuity.services.threads_standing import Standing, ThreadStanding
from tests.integration.conversing import Conversing, converse, question


@pytest.fixture
def at(store, tmp_path) -> Conversing:
    return converse(store, tmp_path)


@pytest.fixture
def standing(at) -> ThreadStanding:
    return ThreadStanding(at.store, at.ledger)


NOBODYS = Standing(is_owner=False, may_say=False, may_control=False, may_delete=False)


class TestRights:
    @pytest.mark.parametrize(
        ("role", "may_control", "may_delete"), [(Role.OPERATOR, True, False), (Role.ADMINISTRATOR, True, True)]
    )
    def test_others_may_what_their_role_lets_them(self, at, standing, role, may_control, may_delete):
        found = standing.of(at.someone("bob", role), at.create())

        assert found == Standing(is_owner=False, may_say=False, may_control=may_control, may_delete=may_delete)

    def test_an_owner_may_everything_until_the_agent_lets_him_in_no_more(self, at, standing):
        thread_id = at.create()
        assert standing.of(at.person, thread_id) == Standing(
            is_owner=True, may_say=True, may_control=True, may_delete=True
        )

        at.declare(public=False)

        assert not standing.of(at.person, thread_id).may_say

    @pytest.mark.parametrize("role", list(Role))
    @pytest.mark.parametrize("is_owner", [True, False])
    def test_what_is_said_to_be_allowed_is_what_is_admitted(self, at, standing, role, is_owner):
        caller = at.someone("bob", role)
        thread_id = at.create(by=caller if is_owner else at.person)
        try:
            found = standing.of(caller, thread_id)
        except NotFoundError:
            found = NOBODYS

        assert admits(lambda: at.say(thread_id, by=caller)) is found.may_say
        if not found.may_say:
            at.say(thread_id, by=None if not is_owner else caller)
        assert admits(lambda: at.control(thread_id, "stop", by=caller)) is found.may_control

    def test_whoever_sees_no_thread_learns_nothing(self, at, standing):
        thread_id, waiting_id = waiting(at)
        stranger = at.someone("ina", Role.INVESTIGATOR)

        for call in (
            lambda: standing.of(stranger, thread_id),
            lambda: standing.question(stranger, thread_id, waiting_id),
        ):
            with pytest.raises(NotFoundError):
                call()

    def test_a_deleted_thread_and_a_locked_vault_say_so(self, at, standing):
        thread_id = at.create()
        at.deletions.delete(at.person, thread_id)
        with pytest.raises(ConflictError, match="deleted"):
            standing.of(at.person, thread_id)
        at.home.vault.lock()
        with pytest.raises(SealedError):
            standing.of(at.person, thread_id)


def admits(call):
    try:
        call()
    except (ForbiddenError, NotFoundError):
        return False
    return True


def waiting(at):
    thread_id, held = at.running()
    return thread_id, at.wait(held, question())["waiting"][0]["waiting_id"]


class TestQuestions:
    def test_one_is_found_whatever_became_of_it(self, at, standing):
        thread_id, waiting_id = waiting(at)
        assert standing.question(at.person, thread_id, waiting_id)["state"] == "open"
        at.reply(thread_id, waiting_id, reply=False)

        found = standing.question(at.person, thread_id, waiting_id)

        assert (found["state"], found["reply"], found["answered_by"]) == ("answered", False, at.person.actor)
        assert found["schema"] == {"type": "boolean"}
        assert at.snapshot(thread_id)["waiting"] == []

    def test_one_that_was_taken_back_has_no_answer(self, at, standing):
        thread_id, waiting_id = waiting(at)
        at.control(thread_id, "stop")

        found = standing.question(at.person, thread_id, waiting_id)

        assert found["state"] == "cancelled"
        assert "reply" not in found

    def test_one_of_another_thread_is_none(self, at, standing):
        _, waiting_id = waiting(at)

        with pytest.raises(NotFoundError):
            standing.question(at.person, at.create(), waiting_id)


def test_what_wants_something_is_counted_up_to_a_bound(at, standing):
    for _ in range(3):
        at.fail(at.running()[1])
    waiting(at)
    gone = at.create()
    at.deletions.delete(at.person, gone)
    here = [at.person.home_workspace]

    assert standing.counts(here, most=1_000) == {"needs_attention": 3, "waiting": 1, "running": 0}
    assert standing.counts(here, most=1)["needs_attention"] == 2
    assert standing.counts([10**6], most=10) == {"needs_attention": 0, "waiting": 0, "running": 0}
    assert standing.counts([], most=10) == {"needs_attention": 0, "waiting": 0, "running": 0}
