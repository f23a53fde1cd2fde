"""What serves for a while only does not stay, and text of any length takes time in proportion (R05, R07, G07)."""

from __future__ import annotations

import re
import time

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from app import logs
from app.auth import schema as accounts
from continuity.errors import ContinuityError
from continuity.services.callers import Role
from tests.web.pages import get
from tests.web.site import LOGIN
from tests.web.told import ACTIVITY, Observer

YEAR_S = 365 * 86_400


def count(site, table):
    return site.wiring.store.read(lambda c: c.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


PASSING = [table for table in accounts.metadata.sorted_tables if table.name in
           {"auth_sessions", "auth_throttle", "auth_challenges"}]  # fmt: skip


def test_sessions_and_tries_of_a_year_ago_are_gone(site, scenes):
    site.person("ada", Role.ADMINISTRATOR)
    for number in range(12):
        site.signed_in("ada")
        site.browser().post(LOGIN, {"username": f"nobody-{number}", "password": "what ever it may be"})
        site.clock.advance(61)
    before = {table.name: count(site, table) for table in PASSING}
    assert before["auth_sessions"] >= 5
    assert before["auth_throttle"] >= 12

    site.clock.advance(YEAR_S)
    site.wiring.auth.tidy()

    assert {table.name: count(site, table) for table in PASSING} == dict.fromkeys(before, 0)


def test_pages_and_polls_leave_nothing_behind(site, scenes):
    site.person("ada", Role.ADMINISTRATOR)
    for number in range(4):
        scenes.mail(f"key-{number}")
        Observer(site).story(f"flow-{number}", f"at-{number}")
    browser = site.signed_in("ada")
    everything = {name: len(rows) for name, rows in site.everything().items()}

    for _ in range(10):
        cursor = browser.send("GET", "/v1/continuity?limit=1").json["next_cursor"]
        browser.send("GET", f"/v1/continuity?limit=1&cursor={cursor}")
        get(browser, f"{ACTIVITY}?days=30")
        get(browser, "/resume-work")

    assert {name: len(rows) for name, rows in site.everything().items()} == everything


def test_where_one_observed_run_moved_is_forgotten(site):
    observer = Observer(site)
    for number in range(30):
        observer.tell("flow", f"at-{number}", time=site.clock.now_us() // 1_000_000 - number)
        site.clock.advance(120)
    site.clock.advance(YEAR_S)
    observer.tell("flow", "at-last", time=site.clock.now_us() // 1_000_000 - YEAR_S - 10**6)

    from observations import schema as observed  # noqa: PLC0415

    assert count(site, observed.moves) <= 2


# --- Text of any length takes time in proportion (R05)

HOSTILE = st.sampled_from(["a", "-", "_", "%", "\\", "(", " ", "0", "\u0301", "aA", "%_", "..", "atm_o_", "[["])


@settings(max_examples=8, deadline=None)
@given(unit=HOSTILE, tail=st.text(max_size=3))
def test_the_expressions_of_the_product_are_linear(unit, tail):
    text = unit * (200_000 // len(unit)) + tail
    for path, pattern in EXPRESSIONS:
        began = time.thread_time()
        pattern.match(text)
        pattern.fullmatch(text)
        assert time.thread_time() - began < 2, (path, pattern.pattern)


def _expressions():
    import importlib  # noqa: PLC0415
    import pkgutil  # noqa: PLC0415

    import app  # noqa: PLC0415
    import continuity  # noqa: PLC0415
    import observations  # noqa: PLC0415

    for package in (app, continuity, observations):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "__main__" in found.name or "langgraph" in found.name or "middleware" in found.name:
                continue
            try:
                module = importlib.import_module(found.name)
            except ImportError:
                continue
            for value in vars(module).values():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    yield found.name, value


EXPRESSIONS = list({pattern.pattern: (path, pattern) for path, pattern in _expressions()}.values())


def test_the_expressions_were_found():
    assert len(EXPRESSIONS) > 20


@pytest.mark.parametrize("q", ["%", "_", "%%", "flow%", "fl_w", "\\", "flow\\%"])
def test_signs_of_a_pattern_are_searched_for_as_they_are(site, q):
    Observer(site).story("flow-1")
    site.person("inv", Role.INVESTIGATOR)

    page = get(site.signed_in("inv"), f"{ACTIVITY}?q={q.replace('%', '%25')}")

    assert page.status_code in {200, 422}
    assert "flow-1" not in page.text.replace("flow-1%", "")


# --- The log (G07)


@settings(max_examples=150, deadline=None)
@given(value=st.text(max_size=60) | st.text(alphabet='\r\n\x1b\u202e\u2028\0{}",:', min_size=1, max_size=40))
def test_no_value_makes_a_second_line_or_speaks_to_a_terminal(value):
    made = logs.line("sample", {"name": value, "user": value * 200}, level="info", time_us=0)

    assert made.endswith("\n")
    assert made.count("\n") == 1
    assert made.isascii()
    assert made[:-1].isprintable()
    assert len(made) < 10_000


def test_a_name_of_ten_thousand_characters_is_cut_in_the_log_and_refused_at_the_door(site):
    reply = site.browser().post(LOGIN, {"username": "n" * 10_000, "password": "what ever it may be"})

    assert reply.status_code in {400, 401}
    assert len(logs.escape("n" * 10_000)) == logs.VALUE_CHARS + 1


def test_a_database_that_is_not_there_is_told_without_its_password(fresh_instance, monkeypatch):
    from app import wiring  # noqa: PLC0415
    from app.config import load_settings  # noqa: PLC0415

    made = load_settings({
        "ATMEM_INSTANCE": str(fresh_instance.folder),
        "ATMEM_DATABASE_URL": "postgresql://atmem:hunter2-of-the-database@127.0.0.1:9/atmem",
    })  # fmt: skip

    with pytest.raises(ContinuityError) as refused:
        wiring.build(made)

    told = f"{refused.value!r} {refused.value.__cause__!r} {refused.value.__context__!r} {made!r}"
    assert "hunter2" not in told
    assert "127.0.0.1" in str(refused.value)
