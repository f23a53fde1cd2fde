"""Signing in over HTTP, the cookie, and what a session may do (security.md A05 to A09, A12, S02 to S09)."""

from __future__ import annotations

import pytest
from flask.sessions import SecureCookieSessionInterface
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.auth.accounts import LOCAL
from app.auth.admission import STATIC, admission_of
from app.auth.schema import sessions
from continuity.services.callers import Role
from tests.web.pages import address_of
from tests.web.site import COOKIE, LOGIN

NEW = "five green doors open slowly"
CHANGE = "/api/auth/change-password"
AGAIN = "/api/auth/reauthenticate"
LOGOUT = "/api/auth/logout"
LIST = "/v1/continuity"


def set_cookie(response) -> list[str]:
    """Return the one Set-Cookie of a reply as its parts."""
    (header,) = response.headers.getlist("Set-Cookie")
    return [part.strip() for part in header.split(";")]


class TestLogin:
    def test_the_reply_is_the_contracts(self, site):
        password = site.person("ada", Role.ADMINISTRATOR)

        reply = site.browser().sign_in("ada", password)

        assert reply.status_code == 200
        assert set(reply.json) == {"authenticated", "csrf_token", "expires_at", "account"}
        assert reply.json["authenticated"] is True
        assert reply.json["account"] == {
            "username": "ada", "role": "administrator", "password_change_required": False,
        }  # fmt: skip
        assert reply.json["expires_at"] == site.clock.wall_us // 1_000_000 + 12 * 3_600
        assert reply.headers["Cache-Control"] == "no-store"

    def test_it_opens_what_is_closed_without(self, site):
        password, browser = site.person("ada"), site.browser()
        assert browser.send("GET", LIST).status_code == 401

        browser.sign_in("ada", password)

        assert browser.send("GET", LIST).status_code == 200

    @pytest.mark.parametrize("password", ["wrong", "", "x" * 12, "x" * 128])
    @pytest.mark.parametrize("username", ["ada", "nobody", "ada ", "ADA", "", "é", "x" * 256])
    def test_whatever_is_wrong_has_one_answer(self, site, username, password):
        site.person("ada")

        reply = site.browser().sign_in(username, password)

        assert reply.status_code == 401
        assert reply.json["error"] == {"code": "unauthenticated", "message": "Username or password is wrong."}
        assert "Set-Cookie" not in reply.headers

    @pytest.mark.parametrize(
        "body",
        [
            {}, {"username": "ada"}, {"password": "x"}, {"username": 1, "password": "x"},
            {"username": "ada", "password": None}, {"username": "ada", "password": ["x"]},
            {"username": "ada", "password": "x", "role": "administrator"}, {"username": "x" * 257, "password": "x"},
            {"username": "ada", "password": "x" * 129}, {"username": "ada", "password": "a\0b"}, [], "ada",
        ],
    )  # fmt: skip
    def test_a_malformed_request_is_told_so(self, site, body):
        assert site.browser().post(LOGIN, body).status_code == 400

    def test_a_lone_surrogate_is_malformed(self, site):
        body = b'{"username": "ada", "password": "\\ud800"}'

        reply = site.app.test_client().post(LOGIN, data=body, content_type="application/json")

        assert reply.status_code == 400

    @pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""])
    def test_nothing_but_json_is_taken(self, site, kind):
        password = site.person("ada")
        body = f'{{"username": "ada", "password": "{password}"}}'

        reply = site.app.test_client().post(LOGIN, data=body, content_type=kind)

        assert reply.status_code == 415

    def test_five_megabytes_of_password_are_not_read(self, site):
        assert site.browser().sign_in("ada", "x" * 5_000_000).status_code == 413

    def test_the_sixth_attempt_in_a_minute_is_told_when_to_come_back(self, site):
        password, browser = site.person("ada"), site.browser()

        answers = [browser.sign_in("ada", "wrong").status_code for _ in range(6)]
        refused = browser.sign_in("ada", password)

        assert answers == [401] * 5 + [429]
        assert refused.status_code == 429
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        site.clock.advance(60)
        assert browser.sign_in("ada", password).status_code == 200

    def test_a_throttled_name_answers_alike_whether_it_exists_or_not(self, site):
        site.person("ada")
        bodies = []
        for username in ("ada", "nobody"):
            for _ in range(5):
                site.browser().sign_in(username, "wrong")
            reply = site.browser().sign_in(username, "wrong")
            bodies.append((reply.status_code, reply.json["error"], reply.headers["Retry-After"]))

        assert bodies[0] == bodies[1]

    def test_a_forwarded_address_nobody_vouches_for_changes_nothing(self, site):
        site.person("ada")
        answers = [
            site.browser()
            .post(LOGIN, {"username": "ada", "password": "wrong"}, headers={"X-Forwarded-For": f"192.0.2.{n}"})
            .status_code
            for n in range(6)
        ]

        assert answers[-1] == 429


class TestTemporaryPassword:
    @pytest.fixture
    def browser(self, site):
        made = site.wiring.auth.accounts.create("ada", role=Role.ADMINISTRATOR, workspace_names=[], by=LOCAL)
        site.temporary = made.password
        browser = site.browser()
        reply = browser.sign_in("ada", made.password)
        assert reply.json["account"]["password_change_required"] is True
        return browser

    def test_its_session_reaches_only_its_own_end(self, site, browser):
        refused = []
        for rule in site.app.url_map.iter_rules():
            path = address_of(rule)
            is_open = admission_of(site.app, rule.endpoint).is_open
            if rule.endpoint == STATIC or (is_open and path != AGAIN):
                continue
            for method in rule.methods - {"HEAD", "OPTIONS"}:
                reply = browser.send(method, path, {})
                refused.append(path)
                if reply.json is None:
                    assert (reply.status_code, reply.headers["Location"]) == (303, "/password"), path
                else:
                    assert reply.status_code == 403, path
                    assert reply.json["error"]["code"] == "password_change_required"

        assert len(refused) > 8

    def test_changing_it_opens_the_rest(self, site, browser):
        changed = browser.post(CHANGE, {"current_password": site.temporary, "new_password": NEW})

        assert changed.json["account"]["password_change_required"] is False
        assert browser.send("GET", LIST).status_code == 200
        assert site.browser().sign_in("ada", site.temporary).status_code == 401

    def test_signing_out_is_possible(self, browser):
        assert browser.post(LOGOUT).status_code == 200

    @pytest.mark.parametrize("new", ["short", "password1234", "ada's continuity", "x" * 129])
    def test_a_bad_new_password_is_told_what_is_wrong(self, site, browser, new):
        reply = browser.post(CHANGE, {"current_password": site.temporary, "new_password": new})

        assert reply.status_code == 400
        assert reply.json["error"]["message"].startswith("new_password")
        assert new not in reply.text


class TestCookie:
    def test_over_https_no_other_host_and_no_plain_connection_can_set_it(self, https_site):
        password = https_site.person("ada")

        parts = set_cookie(https_site.browser().sign_in("ada", password))

        assert parts[0].startswith("__Host-atmem_session=")
        assert set(parts[1:]) == {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"}

    def test_on_this_machine_it_has_another_name(self, site):
        parts = set_cookie(site.browser().sign_in("ada", site.person("ada")))

        assert parts[0].startswith("atmem_session=")
        assert set(parts[1:]) == {"HttpOnly", "Path=/", "SameSite=Lax"}

    def test_the_plain_name_is_not_read_over_https(self, https_site):
        https_site.person("ada")
        browser = https_site.signed_in("ada")
        value = browser.cookie("__Host-atmem_session")
        stranger = https_site.browser()
        stranger.set_cookie(value)

        assert stranger.send("GET", LIST).status_code == 401
        assert browser.send("GET", LIST).status_code == 200

    def test_the_database_does_not_hold_it(self, site):
        site.person("ada")
        value = site.signed_in("ada").cookie()

        assert value not in repr(site.everything())

    @pytest.mark.parametrize(
        "header",
        [
            "{name}=", "{name}=x", "{name}={value}x", "{name}={value}; {name}={value}", "{name}=x; {name}={value}",
            "{name}={other}", '{name}="{value}\\"', "{name}=%00", "{name}=é", "; ; =; ==", "{name}",
            "{name}=" + "A" * 9_000,
        ],
    )  # fmt: skip
    def test_a_damaged_one_is_nobody(self, site, header):
        site.person("ada")
        value = site.signed_in("ada").cookie()
        sent = header.format(name=COOKIE, value=value, other="A" * 43)

        assert site.app.test_client(use_cookies=False).get(LIST, headers={"Cookie": sent}).status_code == 401

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=200))
    def test_no_cookie_header_is_an_error_of_ours(self, site, text):
        sent = f"{COOKIE}={text}; remember_token={text}; session={text}; {text}"

        assert site.app.test_client(use_cookies=False).get(LIST, headers={"Cookie": sent}).status_code == 401

    @pytest.mark.parametrize("value", ["x", "1|é", "usr_0|" + "0" * 128, "|"])
    def test_flask_logins_own_cookie_neither_signs_in_nor_gets_in_the_way(self, site, value):
        site.person("ada")
        browser = site.signed_in("ada")
        browser.set_cookie(value, "remember_token")

        assert browser.send("GET", LIST).status_code == 200
        stranger = site.browser()
        stranger.set_cookie(value, "remember_token")
        assert stranger.send("GET", LIST).status_code == 401

    def test_whoever_has_the_signing_key_cannot_make_a_session(self, site):
        site.person("ada")
        user_id = site.wiring.auth.accounts.all()[0].user_id
        signer = SecureCookieSessionInterface().get_signing_serializer(site.app)
        forged = signer.dumps({"_user_id": user_id, "_fresh": True})
        stranger = site.browser()
        stranger.set_cookie(forged, "session")

        assert stranger.send("GET", LIST).status_code == 401


class TestSession:
    def test_its_id_is_new_at_every_proof_of_the_password(self, site):
        password = site.person("ada")
        browser = site.browser()
        seen = []
        for step in (
            lambda: browser.sign_in("ada", password),
            lambda: browser.sign_in("ada", password),
            lambda: browser.post(AGAIN, {"password": password}),
            lambda: browser.post(CHANGE, {"current_password": password, "new_password": NEW}),
        ):
            assert step().status_code == 200
            seen.append((browser.cookie(), browser.csrf))

        assert len({cookie for cookie, _ in seen}) == 4
        assert len({csrf for _, csrf in seen}) == 4
        for cookie, _ in seen[:-1]:
            old = site.browser()
            old.set_cookie(cookie)
            assert old.send("GET", LIST).status_code == 401
        assert browser.send("GET", LIST).status_code == 200

    def test_an_id_set_before_signing_in_is_not_adopted(self, site):
        password, browser = site.person("ada"), site.browser()
        browser.set_cookie("A" * 43)

        browser.sign_in("ada", password)

        assert browser.cookie() != "A" * 43

    def test_a_new_password_ends_the_other_browsers(self, site):
        password = site.person("ada")
        here, elsewhere = site.signed_in("ada"), site.signed_in("ada")

        here.post(CHANGE, {"current_password": password, "new_password": NEW})

        assert here.send("GET", LIST).status_code == 200
        assert elsewhere.send("GET", LIST).status_code == 401

    def test_a_wrong_current_password_changes_nothing(self, site):
        password = site.person("ada")
        browser = site.signed_in("ada")

        reply = browser.post(CHANGE, {"current_password": "wrong", "new_password": NEW})

        assert reply.status_code == 401
        assert browser.send("GET", LIST).status_code == 200
        assert site.browser().sign_in("ada", password).status_code == 200

    def test_guessing_the_password_of_an_open_session_is_throttled(self, site):
        site.person("ada")
        browser = site.signed_in("ada")

        answers = [browser.post(AGAIN, {"password": "wrong"}).status_code for _ in range(6)]

        assert answers == [401] * 5 + [429]

    @pytest.mark.parametrize("path", [CHANGE, AGAIN])
    def test_unknown_fields_are_refused(self, site, path):
        password = site.person("ada")
        body = {"password": password, "current_password": password, "new_password": NEW, "role": "administrator"}

        assert site.signed_in("ada").post(path, body).status_code == 400

    def test_it_ends_when_its_person_is_changed(self, site):
        site.person("ada")
        browser = site.signed_in("ada")

        site.wiring.auth.accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL)

        assert browser.send("GET", LIST).status_code == 401

    def test_it_ends_unused_after_half_an_hour(self, site):
        site.person("ada")
        browser = site.signed_in("ada")

        site.clock.advance(29 * 60)
        assert browser.send("GET", LIST).status_code == 200
        site.clock.advance(30 * 60)
        assert browser.send("GET", LIST).status_code == 401

    def test_polls_do_not_keep_it_alive(self, site):
        from app.auth.identity import poll  # noqa: PLC0415

        site.person("ada")
        browser = site.signed_in("ada")
        poll(site.app.view_functions["operators.index"])
        try:
            for _ in range(29):
                site.clock.advance(60)
                assert browser.send("GET", LIST).status_code == 200
            site.clock.advance(60)
            assert browser.send("GET", LIST).status_code == 401
        finally:
            del site.app.view_functions["operators.index"].is_poll


class TestLogout:
    def test_the_row_is_gone_and_the_cookie_is_worth_nothing(self, site):
        site.person("ada")
        browser = site.signed_in("ada")
        value, csrf = browser.cookie(), browser.csrf

        reply = browser.post(LOGOUT)

        assert reply.status_code == 200
        assert reply.headers["Clear-Site-Data"] == '"cache", "storage"'
        assert browser.cookie() is None
        assert site.rows(sessions) == []
        replay = site.browser()
        replay.set_cookie(value)
        replay.csrf = csrf
        assert replay.send("GET", LIST).status_code == 401
        assert replay.post(LOGOUT).status_code == 401

    @pytest.mark.parametrize("path", [LOGOUT, LOGIN, CHANGE, AGAIN])
    def test_none_of_these_can_be_read(self, site, path):
        site.person("ada")

        assert site.signed_in("ada").send("GET", path).status_code == 405

    def test_it_takes_an_empty_object(self, site):
        site.person("ada")

        assert site.signed_in("ada").post(LOGOUT, {"everywhere": True}).status_code == 400
