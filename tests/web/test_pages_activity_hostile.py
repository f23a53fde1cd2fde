"""Whatever observers write is text on every page and in every file (X01, X03, X04)."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from urllib.parse import quote

import pytest

from app.pages.display import visible
from continuity.errors import MalformedError
from continuity.services.callers import Role
from tests.web.pages import get
from tests.web.test_pages_resume_work_hostile import CORPUS, SEEN, Shape, tame
from tests.web.told import ACTIVITY, Observer

FORMULAS = ("=1+1", "+1", "-1", "@x", " =1", "\uff1d1")


@pytest.fixture
def inv(site):
    site.person("inv", Role.INVESTIGATOR)
    return site.signed_in("inv")


def tell(site, scope, text):
    """Put a text wherever an observer can put one; say whether the rules of events let it in."""
    try:
        Observer(site, scope).charge(
            text[:256], 1_000_000, workflow_id=f"flow-{scope}", attempt_id=f"at-{scope}", charge_source=text[:128],
            price_source=text[:256], model=text[:128],
        )  # fmt: skip
    except MalformedError:
        return False
    return True


@pytest.mark.parametrize("what", CORPUS)
def test_hostile_text_makes_no_element_and_no_attribute(site, inv, what):
    text = CORPUS[what]
    assert tell(site, "tame", tame(text))
    if not tell(site, "wild", text):
        assert re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", text) or not text.isprintable()
        return

    for path in (f"{ACTIVITY}?scope=", f"{ACTIVITY}/flow-"):
        wild, plain = get(inv, f"{path}wild"), get(inv, f"{path}tame")
        assert wild.status_code == plain.status_code == 200
        # In any order: which of the scopes is chosen differs.
        # What hides characters is written out, and nobody is offered a copy of it.
        unlike = Counter(Shape(wild.text).elements) - Counter(Shape(plain.text).elements)
        assert not unlike or (what in SEEN and set(unlike) <= {("code", ("class",))})
        if what in SEEN:
            hidden, _ = SEEN[what]
            assert hidden not in wild.text
            assert visible(hidden) in wild.text


@pytest.mark.parametrize("what", [name for name in CORPUS if name not in {"long", "NUL", "ANSI", "separators"}])
def test_a_hostile_search_comes_back_as_text(site, inv, what):
    Observer(site).tell()
    plain = Shape(get(inv, f"{ACTIVITY}?q=xyz").text).elements

    page = get(inv, f"{ACTIVITY}?q={quote(CORPUS[what])}")

    assert page.status_code == 200
    assert Shape(page.text).elements == plain


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_a_file_is_a_formula(site, inv, formula):
    assert tell(site, "wild", formula)
    Observer(site).tell("-1", "-2")

    for path in ("workflows.csv", "flow-wild/attempts.csv", "-1/attempts.csv"):
        reply = get(inv, f"{ACTIVITY}/{path}")
        assert reply.status_code == 200
        for row in csv.reader(io.StringIO(reply.data.decode(), newline="")):
            assert not [value for value in row if re.match(r"[\s\"]*[=+\-@\uff1d]", value)]
    assert f"'{formula}" in get(inv, f"{ACTIVITY}/flow-wild/attempts.csv").data.decode()
