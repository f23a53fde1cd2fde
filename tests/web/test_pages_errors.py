"""What a page says when it cannot do what was asked (W11, X08)."""

from __future__ import annotations

import pytest

from app.auth.admission import public
from app.pages.problems import PROBLEMS
from app.replies import json_response
from continuity import errors
from continuity.services.callers import Role
from tests.web.pages import HTMX, get
from tests.web.site import site_on

SECRET = "sentinel-2f6c1d"
RAISED = {
    "malformed": (errors.MalformedError(SECRET), 400),
    "forbidden": (errors.ForbiddenError(SECRET), 403),
    "missing": (errors.NotFoundError(SECRET), 404),
    "stale": (errors.ConflictError(SECRET, code="revision_conflict"), 409),
    "large": (errors.TooLargeError(SECRET), 413),
    "locked": (errors.SealedError(SECRET), 423),
    "throttled": (errors.ThrottledError(SECRET, retry_after_s=7), 429),
    "damaged": (errors.DecryptionError(), 500),
    "defect": (ZeroDivisionError(SECRET), 500),
    "unavailable": (errors.UnavailableError(SECRET, retry_after_s=3), 503),
}


@pytest.fixture
def broken(fresh_instance):
    """A site with a page for each way to fail."""
    with site_on(fresh_instance.folder) as site:

        @public
        def fail(why):
            secret_local = SECRET
            raise RAISED[why][0] if secret_local else AssertionError

        site.app.add_url_rule("/fail/<why>", "account.fail", fail)
        site.person("ada", Role.OPERATOR)
        yield site


@pytest.mark.parametrize("why", RAISED)
@pytest.mark.parametrize("is_signed_in", [True, False])
def test_an_error_is_a_page_that_tells_no_secret(broken, capfd, why, is_signed_in):
    browser = broken.signed_in("ada") if is_signed_in else broken.browser()
    status = RAISED[why][1]

    reply = get(browser, f"/fail/{why}")

    assert reply.status_code == status
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert PROBLEMS[status].title in reply.text
    assert reply.headers["X-Request-Id"] in reply.text
    assert SECRET not in reply.text
    assert "Traceback" not in reply.text
    output = capfd.readouterr()
    assert SECRET not in output.out + output.err
    has_frame = 'aria-label="Pages"' in reply.text
    assert has_frame == (is_signed_in and status < 500)


@pytest.mark.parametrize("why", RAISED)
def test_inside_a_page_the_same_error_is_a_notice_beside_what_stays(broken, why):
    reply = get(broken.signed_in("ada"), f"/fail/{why}", **HTMX)

    assert reply.status_code == RAISED[why][1]
    assert reply.headers["HX-Retarget"] == "#trouble"
    assert reply.headers["HX-Reswap"] == "innerHTML"
    assert "<html" not in reply.text
    assert PROBLEMS[RAISED[why][1]].title in reply.text
    assert SECRET not in reply.text


@pytest.mark.parametrize("headers", [{"HX-Boosted": "true"}, {"HX-History-Restore-Request": "true"}], ids=str)
def test_a_whole_page_is_answered_with_a_whole_page(broken, headers):
    reply = get(broken.signed_in("ada"), "/fail/missing", **HTMX, **headers)

    assert "<html" in reply.text


def test_a_wait_is_named(broken):
    assert get(broken.browser(), "/fail/throttled").headers["Retry-After"] == "7"
    assert get(broken.browser(), "/fail/unavailable").headers["Retry-After"] == "3"


def test_where_nothing_is_a_browser_gets_a_page_and_a_program_the_one_format(site):
    browser = site.browser()

    assert "<title>There is nothing here" in get(browser, "/nowhere").text
    assert browser.send("GET", "/nowhere").json["error"]["code"] == "not_found"
    assert get(browser, "/v1/nowhere").json["error"]["code"] == "not_found"


def test_a_page_that_cannot_find_out_who_asks_says_so_and_not_who(broken, monkeypatch):
    """The store is gone: the page about it needs nothing from the store."""
    browser = broken.signed_in("ada")

    def gone(*_args):
        raise errors.UnavailableError("gone", retry_after_s=1)

    monkeypatch.setattr(broken.wiring.store, "autocommit", gone)

    for path in ("/account", "/", "/fail/missing", "/nowhere"):
        assert get(browser, path).status_code in {404, 503}, path
    assert get(browser, "/account").status_code == 503


def test_the_api_keeps_its_own_errors(broken):
    assert broken.browser().send("GET", "/v1/continuity").json["error"]["code"] == "unauthenticated"
    assert json_response({}).content_type == "application/json; charset=utf-8"
