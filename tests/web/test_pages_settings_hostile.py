"""Whatever stands in a name is text on every screen of Settings: the same elements, the same attributes (X01, X03).

Names have rules, and what is written past them by hand is shown as text all the same.
"""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from app.auth.accounts import LOCAL
from app.auth.schema import credentials, users
from app.pages.display import visible
from continuity.services.callers import Role
from continuity.store import schema
from tests.web.pages import get, post
from tests.web.test_pages_resume_work_hostile import CORPUS, SEEN, Shape, tame

FORMS = {
    "/settings/people/new": ("username", "workspaces"),
    "/settings/credentials/new": ("principal_id", "workflow_id", "workspace", "scope", "agents", "days"),
}
SEARCHES = {
    "/settings/people": ("q", "after"),
    "/settings/sessions": ("q", "after"),
    "/settings/credentials": ("issuer", "workspace", "principal"),
}
MORE = {
    "/settings/people/new": {"role": "operator"},
    "/settings/credentials/new": {"kind": "evidence_collector", "newest": "none"},
}


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


def rename(site, text, *, before, workspace=None):
    """Write a text over every name that Settings shows: of a person, a workspace, an observer's scope."""
    spaces = schema.workspaces

    def work(connection):
        connection.execute(sa.update(users).where(users.c.username == before).values(username=text[:64]))
        connection.execute(sa.update(spaces).where(spaces.c.name == (workspace or before)).values(name=text[:64]))
        connection.execute(sa.update(credentials).where(credentials.c.scope.is_not(None)).values(scope=text[:128]))

    site.wiring.store.write(work)


def fill(site, browser):
    site.wiring.auth.accounts.create("sub", role=Role.OPERATOR, workspace_names=["north"], by=LOCAL)
    browser.post(
        "/v1/evidence/grants",
        {"principal_id": "watch", "role": "continuity_observer", "observation_scope": "somewhere"},
    )
    browser.post("/v1/evidence/grants", {"principal_id": "op", "role": "evidence_collector", "workspace_id": "north"})
    user_id = site.wiring.auth.people.named("sub").user_id
    from app.auth.credential_list import CredentialQuestion  # noqa: PLC0415

    found = site.wiring.auth.credential_list.page(CredentialQuestion()).credentials
    return [
        "/settings/people", f"/settings/people/{user_id}", "/settings/people/new", "/settings/sessions",
        "/settings/credentials", "/settings/credentials/new", "/settings/vault",
        *(f"/settings/credentials/{each.credential_id}" for each in found),
    ]  # fmt: skip


@pytest.mark.parametrize("what", [name for name in CORPUS if name != "NUL"])
def test_a_hostile_name_makes_no_element_and_no_attribute(site, ada, what):
    text = CORPUS[what]
    pages = fill(site, ada)
    rename(site, tame(text), before="sub", workspace="north")
    plain = {path: get(ada, path) for path in pages}
    rename(site, text, before=tame(text[:64]))

    for path in pages:
        wild = get(ada, path)
        assert wild.status_code == plain[path].status_code == 200, path
        # In any order: a list is sorted by names.
        assert Counter(Shape(wild.text).elements) == Counter(Shape(plain[path].text).elements), path
        if what in SEEN and path == "/settings/people":
            hidden, _ = SEEN[what]
            assert visible(hidden) in wild.text


@pytest.mark.parametrize("what", [name for name in CORPUS if name not in {"NUL", "long"}])
@pytest.mark.parametrize("path", FORMS)
def test_a_hostile_field_comes_back_as_text(ada, what, path):
    names = FORMS[path]
    plain = post(ada, path, {**MORE[path], **dict.fromkeys(names, "x y/z")})
    reply = post(ada, path, {**MORE[path], **dict.fromkeys(names, CORPUS[what])})

    assert reply.status_code == plain.status_code == 422
    unlike = Counter(Shape(reply.text).elements) - Counter(Shape(plain.text).elements)
    # Another field may be the one with the problem; nothing else may be there.
    assert all(tag in {"input", "p", "svg", "path"} and not _runs(names) for tag, names in unlike), unlike
    assert "<script>alert" not in reply.text


@pytest.mark.parametrize("what", [name for name in CORPUS if name not in {"NUL", "ANSI", "separators", "long"}])
@pytest.mark.parametrize("path", SEARCHES)
def test_a_hostile_search_comes_back_as_text(ada, what, path):
    for name in SEARCHES[path]:
        plain = get(ada, f"{path}?{name}={'z' * 20}")
        reply = get(ada, f"{path}?{name}={quote(CORPUS[what][:60])}")

        assert reply.status_code == 200, name
        unlike = Counter(Shape(reply.text).elements) - Counter(Shape(plain.text).elements)
        # A name to go on behind may leave more or fewer of the lines that there are.
        assert not unlike or name == "after"
        assert "<script>alert" not in reply.text


def _runs(attributes):
    return any(name.startswith(("on", "hx-")) for name in attributes)
