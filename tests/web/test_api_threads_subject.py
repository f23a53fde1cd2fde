"""For whom an application acts: said once or twice, but always the one, and by nobody else."""

from __future__ import annotations

import pytest

from tests.web.matrix import NOTHING, world_on
from tests.web.thread_rows import AGENT, SUBJECT, THREADS, thread


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with world_on(tmp_path_factory.mktemp("subjects") / "instance") as made:
        yield made


def sent(world, name, method, path, body=None, *, header=None):
    """Send as an asker of the matrix, with this subject in the header and no other."""
    asker = world.ask_as(name, NOTHING)
    headers = {key: value for key, value in asker.headers.items() if key != "Atmem-Subject"}
    if header is not None:
        headers["Atmem-Subject"] = header
    return asker.browser.send(method, path, body, headers=headers)


def created(world, *, header=None, **body):
    asked = {"request_id": world.new_name("rq"), "name": world.new_name("named"), "agent": AGENT, **body}
    return sent(world, "application", "POST", THREADS, asked, header=header)


@pytest.mark.parametrize("path", ["", "/journal?after=1-0"])
def test_an_application_that_names_no_subject_is_told_so(world, path):
    thread_id, _ = thread(world)

    reply = sent(world, "application", "GET", f"{THREADS}/{thread_id}{path}")

    assert reply.status_code == 400
    assert "subject" in reply.json["error"]["message"]


def test_a_creation_names_its_subject_in_the_body_in_the_header_or_in_both(world):
    assert created(world, subject=SUBJECT).status_code == 200
    assert created(world, header=SUBJECT).status_code == 200
    assert created(world, header=SUBJECT, subject=SUBJECT).status_code == 200


@pytest.mark.parametrize("subject", ["bob", "", "a b", "x" * 129, 7, True, ["ann"], {"name": "ann"}])
@pytest.mark.parametrize("header", [None, SUBJECT])
def test_two_subjects_and_what_is_none_are_refused(world, subject, header):
    reply = created(world, header=header, subject=subject)

    is_one = subject == "bob" and header is None
    assert reply.status_code == (200 if is_one else 400), reply.text
    assert is_one or "subject" in reply.json["error"]["message"]


@pytest.mark.parametrize("name", ["person: operator", "person: administrator"])
def test_a_person_acts_for_nobody_else(world, name):
    thread_id, _ = thread(world)

    reply = sent(world, name, "GET", f"{THREADS}/{thread_id}", header=SUBJECT)

    assert reply.status_code == 400
    assert "subject" in reply.json["error"]["message"]
