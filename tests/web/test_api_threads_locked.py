"""Thread workers while the vault is locked: told to come again, so that the run in hand is not given up."""

from __future__ import annotations

import pytest

from app.vault_life import LOCAL
from tests.vaults import PASSPHRASE
from tests.web.matrix import World
from tests.web.site import site_on
from tests.web.thread_rows import AGENT, QUESTION, SECRET, THREADS, thread

ENTRY = {"kind": "progress", "data": "half"}


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("locked-threads") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


@pytest.fixture
def lock(world):
    life = world.site.wiring.vault_life
    yield lambda: life.lock(LOCAL, PASSPHRASE)
    life.unlock(LOCAL, PASSPHRASE)


def post(world, path, body):
    token = world._tokens["thread worker"]
    return world.site.browser().send("POST", path, body, headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("heartbeat", {}),
        ("append", {"request_id": "a", "records": [ENTRY]}),
        ("wait", {"request_id": "w", "requests": [QUESTION]}),
        ("settle", {"request_id": "s", "output": 1}),
        ("fail", {"request_id": "f", "reason": "failed", "message": "No."}),
    ],
)
def test_a_locked_vault_is_no_lost_run_to_its_worker(world, lock, verb, more):
    _, known = thread(world, "claimed")
    path, body = f"{THREADS}/runs/{known['run_id']}/{verb}", {"generation": 1, "secret": SECRET, **more}
    lock()

    reply = post(world, path, body)

    assert (reply.status_code, reply.json["error"]["code"]) == (423, "vault_locked")
    unknown = post(world, path.replace(known["run_id"], "rn_" + "0" * 32), body)
    assert (unknown.status_code, unknown.json["error"]) == (reply.status_code, reply.json["error"])
    world.site.wiring.vault_life.unlock(LOCAL, PASSPHRASE)
    assert post(world, path, body).status_code == 200


def test_a_locked_vault_does_not_say_that_a_credential_names_no_agent(world, lock):
    lock()

    reply = post(world, f"{THREADS}/agents", {"agents": [{"name": AGENT}]})

    assert (reply.status_code, reply.json["error"]["code"]) == (423, "vault_locked")
