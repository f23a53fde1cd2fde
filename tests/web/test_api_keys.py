"""The vault's keys over HTTP: where they stand, lock, unlock, rotate (wire.md; V11, V14)."""

from __future__ import annotations

import logging

import pytest

from continuity.services.callers import Role
from continuity.store import schema
from tests.web.matrix import WORKFLOWS
from tests.web.site import site_on
from tests.web.test_api_contract import validator

SETTINGS = "/v1/evidence/settings"
PASSPHRASE = "seven lanterns above the harbour"
OTHER = "eight lanterns above the harbour"
LOCK = {"confirmation": "lock", "passphrase": PASSPHRASE}
ROTATE = {"confirmation": "rotate"}
OLD_S = 11 * 60
MINUTE_S = 61


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


@pytest.fixture
def contract(site):
    return site.browser().send("GET", "/openapi.json").json


def code(reply):
    return reply.json["error"]["code"]


def actions(site):
    return [action for _, action, *_ in audited(site)]


def audited(site):
    columns = list(schema.audit.c.keys())
    return [
        tuple(row[columns.index(name)] for name in ("seq", "action", "actor", "result"))
        for row in site.rows(schema.audit)
    ]


def signed_in(site):
    """Return how the log names whoever signed in last."""
    return [actor for _, action, actor, _ in audited(site) if action == "user.sign_in"][-1]


def test_a_lock_stops_sealed_work_and_an_unlock_lets_it_go_on(site, ada, contract):
    check = validator(contract, "VaultSettings", closed=True)
    before = ada.send("GET", SETTINGS)
    check.validate(before.json)
    assert (before.json["locked"], before.json["locked_since"], before.json["key_source"]) == (False, None, "file")
    assert before.json["passphrase_needed"] == {"lock": True, "unlock": True, "rotate": False}

    locked = ada.post(f"{SETTINGS}/lock", LOCK)

    check.validate(locked.json)
    assert (locked.status_code, locked.json["locked"]) == (200, True)
    assert locked.json["locked_since"] == pytest.approx(site.clock.now_us() / 1e6)
    assert ada.send("GET", WORKFLOWS).status_code == 423
    assert ada.send("GET", SETTINGS).json == locked.json

    opened = ada.post(f"{SETTINGS}/unlock", {"passphrase": PASSPHRASE})

    check.validate(opened.json)
    assert (opened.status_code, opened.json["locked"]) == (200, False)
    assert ada.send("GET", WORKFLOWS).status_code == 200
    me = signed_in(site)
    assert [row[1:] for row in audited(site)][-2:] == [
        ("vault.lock", me, "done"), ("vault.unlock", me, "done"),
    ]  # fmt: skip


def test_a_rotation_is_begun_once_and_its_progress_is_shown(site, ada, contract):
    key_id = ada.send("GET", SETTINGS).json["key_id"]

    begun = ada.post(f"{SETTINGS}/rotate", ROTATE)
    again = ada.post(f"{SETTINGS}/rotate", ROTATE)

    check = validator(contract, "VaultSettings", closed=True)
    check.validate(begun.json)
    assert begun.json["rotation"]["old_key_id"] == key_id
    assert again.json["rotation"]["new_key_id"] == begun.json["rotation"]["new_key_id"]
    assert again.json["rotation"]["finished"] is None
    site.wiring.vault_life.run(lambda _progress: None)
    done = ada.send("GET", SETTINGS).json
    check.validate(done)
    assert (done["rotation"]["state"], done["key_id"]) == ("done", begun.json["rotation"]["new_key_id"])
    assert actions(site)[-2:] == ["vault.rotation_started", "vault.rotated"]


@pytest.mark.parametrize(
    ("control", "body", "problem"),
    [
        ("lock", {"passphrase": PASSPHRASE}, "confirmation"),
        ("lock", {**LOCK, "confirmation": "rotate"}, "confirmation"),
        ("lock", {"confirmation": "lock"}, "passphrase"),
        ("lock", {**LOCK, "passphrase": "short"}, "12"),
        ("lock", {**LOCK, "passphrase": 123456789012}, "passphrase"),
        ("lock", {**LOCK, "again": PASSPHRASE}, "again"),
        ("rotate", {}, "confirmation"),
        ("rotate", {"confirmation": "lock"}, "confirmation"),
        ("unlock", {"passphrase": []}, "passphrase"),
    ],
)
def test_a_request_that_is_not_in_form_changes_nothing(site, ada, control, body, problem):
    before = site.everything()

    reply = ada.post(f"{SETTINGS}/{control}", body)

    assert (reply.status_code, code(reply)) == (400, "malformed")
    assert problem in reply.json["error"]["message"]
    assert not [
        name for name in {"continuity_vault", "continuity_rotations", "continuity_audit"} & before.keys()
        if before[name] != site.everything()[name]
    ]  # fmt: skip


@pytest.mark.parametrize(("control", "body"), [("lock", LOCK), ("rotate", ROTATE), ("unlock", {})])
def test_an_old_password_check_is_not_enough(site, ada, control, body):
    site.clock.advance(OLD_S)

    refused = ada.post(f"{SETTINGS}/{control}", body)

    assert (refused.status_code, code(refused)) == (403, "reauthentication_required")
    assert ada.send("GET", SETTINGS).json["locked"] is False
    assert ada.send("GET", SETTINGS).json["rotation"] is None
    assert ada.post("/api/auth/reauthenticate", {"password": site.passwords["ada"]}).status_code == 200
    assert ada.post(f"{SETTINGS}/{control}", body).status_code == 200


def test_nobody_else_unlocks_a_locked_vault(site, ada):
    site.person("bob", Role.OPERATOR)
    bob = site.signed_in("bob")
    assert ada.post(f"{SETTINGS}/lock", LOCK).status_code == 200

    refused = bob.post(f"{SETTINGS}/unlock", {"passphrase": PASSPHRASE})

    assert (refused.status_code, code(refused)) == (403, "forbidden")
    assert bob.send("GET", SETTINGS).status_code == 403
    assert ada.send("GET", SETTINGS).json["locked"] is True


def test_a_wrong_passphrase_is_refused_recorded_and_throttled(site, ada):
    ada.post(f"{SETTINGS}/lock", LOCK)

    tries = [ada.post(f"{SETTINGS}/unlock", {"passphrase": OTHER}) for _ in range(6)]
    waiting = ada.post(f"{SETTINGS}/unlock", {"passphrase": PASSPHRASE})

    assert [(reply.status_code, code(reply)) for reply in tries[:5]] == [(403, "wrong_passphrase")] * 5
    assert [(reply.status_code, code(reply)) for reply in (tries[5], waiting)] == [(429, "throttled")] * 2
    assert audited(site)[-1][1:] == ("vault.unlock", signed_in(site), "wrong_passphrase")
    site.clock.advance(MINUTE_S)
    assert ada.post(f"{SETTINGS}/unlock", {"passphrase": PASSPHRASE}).json["locked"] is False


def test_a_locked_vault_that_is_locked_again_says_whether_the_passphrase_opens_it(site, ada):
    ada.post(f"{SETTINGS}/lock", LOCK)

    assert ada.post(f"{SETTINGS}/lock", LOCK).json["locked"] is True
    other = ada.post(f"{SETTINGS}/lock", {**LOCK, "passphrase": OTHER})

    assert (other.status_code, code(other)) == (403, "wrong_passphrase")
    assert ada.post(f"{SETTINGS}/unlock", {"passphrase": PASSPHRASE}).json["locked"] is False


def test_no_passphrase_stands_in_a_reply_a_log_or_the_database(fresh_instance, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    with site_on(fresh_instance.folder) as site:
        site.person("ada", Role.ADMINISTRATOR)
        ada = site.signed_in("ada")

        replies = [
            ada.post(f"{SETTINGS}/lock", {**LOCK, "confirmation": PASSPHRASE}),
            ada.post(f"{SETTINGS}/lock", LOCK),
            ada.post(f"{SETTINGS}/lock", {**LOCK, "passphrase": OTHER}),
            ada.post(f"{SETTINGS}/unlock", {"passphrase": OTHER}),
            ada.post(f"{SETTINGS}/rotate", {**ROTATE, "passphrase": OTHER}),
            ada.post(f"{SETTINGS}/unlock", {"passphrase": PASSPHRASE}),
            ada.post(f"{SETTINGS}/rotate", {**ROTATE, "passphrase": OTHER}),
        ]

    assert [reply.status_code for reply in replies] == [400, 200, 403, 403, 423, 200, 200]
    told = [reply.text for reply in replies] + [caplog.text, *capfd.readouterr()]
    files = [path.read_bytes() for path in fresh_instance.folder.rglob("*") if path.is_file()]
    for secret in (PASSPHRASE, OTHER):
        assert not [text for text in told if secret in text]
        assert not [data for data in files if secret.encode() in data]
