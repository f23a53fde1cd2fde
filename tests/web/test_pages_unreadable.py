"""One workflow that does not open takes nothing else away, and says which master key its data key names."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from continuity.store import schema
from tests.web.pages import HTMX, get
from tests.web.reading import LIST, keys_in, text_of
from tests.web.scenes import Stage


@pytest.fixture
def stage(site):
    return Stage(site)


@pytest.fixture
def op(stage):
    stage.site.person("op")
    return stage.site.signed_in("op")


def damage(site, workflow_id, **values):
    table = schema.partitions if "wrapped_key" in values else schema.workflows
    named = table.c.partition_id if table is schema.partitions else table.c.workflow_id
    site.wiring.store.write(lambda c: c.execute(sa.update(table).where(named == workflow_id).values(**values)).rowcount)


@pytest.fixture(params=["data key", "head", "no data key"])
def damaged(request, stage):
    """The id of a workflow that does not open, and the word for its key."""
    stage.prepare(key="before")
    workflow_id = stage.prepare(key="hurt").workflow_id
    stage.prepare(key="after")
    values = {"data key": {"wrapped_key": bytes(65)}, "head": {"sealed_head": bytes(60)}}
    damage(stage.site, workflow_id, **values.get(request.param, {"wrapped_key": None}))
    return workflow_id


def test_the_list_shows_it_as_unreadable_with_its_key_and_all_others_as_ever(op, damaged):
    reply = get(op, LIST)

    assert reply.status_code == 200
    assert keys_in(reply) == ["after", "Unreadable (key 1)", "before"]
    assert "Cannot be read; stopped Not known" in text_of(reply)
    assert "0 of 0" not in text_of(reply)


def test_its_page_says_what_is_wrong_with_which_key_and_what_to_do(op, damaged):
    reply = get(op, f"{LIST}/{damaged}")

    said = text_of(reply)
    assert reply.status_code == 500
    assert "This work cannot be read" in said
    assert "names master key 1" in said
    assert "atmem vault check" in said
    assert damaged in said


def test_an_open_page_of_it_gets_a_notice(op, damaged):
    reply = get(op, f"{LIST}/{damaged}/live", **HTMX)

    assert (reply.status_code, reply.headers["HX-Retarget"]) == (500, "#trouble")


def test_what_is_not_the_readers_to_know_stays_unknown(stage, damaged):
    stage.site.person("bo", at=("other",))

    assert get(stage.site.signed_in("bo"), f"{LIST}/{damaged}").status_code == 404
