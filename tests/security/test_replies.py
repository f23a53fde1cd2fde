"""What a reply may be called, and that nothing shows the inside of the program (X02, X05 to X08, Y05)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import app as package
from app import create_app
from app.pages.problems import PAGE_BLUEPRINTS
from continuity.errors import MalformedError
from continuity.services.callers import Role
from observations.events import parse_event
from tests.observing import LEAST
from tests.patience import PATIENCE_S
from tests.servers import ROOT, environment, start, stop
from tests.web.pages import get
from tests.web.told import ACTIVITY, Observer

FOLDER = Path(package.__file__).parent
DISPOSITION = re.compile(r'attachment; filename="[A-Za-z0-9._-]{1,255}"')
TYPES = {
    "text/html; charset=utf-8", "application/json; charset=utf-8", "text/csv; charset=utf-8",
    "application/x-ndjson; charset=utf-8", "application/octet-stream", "text/plain; charset=utf-8",
    "text/plain; version=0.0.4; charset=utf-8",
}  # fmt: skip
STATIC = re.compile(r"(?:text/css|text/javascript|image/svg\+xml|image/png)(?:; charset=utf-8)?")


@pytest.fixture
def filled(site, scenes):
    """Work of every kind, and an administrator who may see all of it."""
    scene = scenes.mail("a-key")
    scene.lose().report("confirmed_succeeded", effect_id="<b>", result={"<script>": "<img>"})
    Observer(site).story("flow-1")
    site.person("ada", Role.ADMINISTRATOR)
    return site, scene.workflow_id


def addresses(site, workflow_id):
    """Return an address of every rule that answers GET."""
    values = {"workflow_id": workflow_id, "filename": "app.css", "observed_id": "flow-1"}
    for rule in site.app.url_map.iter_rules():
        if "GET" in rule.methods:
            yield (
                rule.endpoint,
                re.sub(r"<(?:[^:>]+:)?([^>]+)>", lambda found: values.get(found[1], workflow_id), rule.rule),
            )


def test_every_reply_is_of_the_type_of_what_it_holds(filled):
    site, workflow_id = filled
    browser = site.signed_in("ada")

    replies = [(endpoint, get(browser, address)) for endpoint, address in addresses(site, workflow_id)]

    assert sum(reply.status_code == 200 for _, reply in replies) > 12
    for endpoint, reply in replies:
        # Read to the end, so that a served file is closed.
        assert reply.data is not None
        reply.close()
        kind = reply.headers["Content-Type"] if reply.status_code != 304 else "text/css"
        assert kind in TYPES or STATIC.fullmatch(kind), (endpoint, kind)
        is_page = endpoint.partition(".")[0] in PAGE_BLUEPRINTS
        if kind.startswith("text/html"):
            assert is_page, endpoint
        elif reply.status_code == 200 and not endpoint.endswith("static"):
            assert "<script" not in reply.text or kind.startswith(("application/json", "application/x-ndjson"))
        if "attachment" in reply.headers.get("Content-Disposition", ""):
            assert DISPOSITION.fullmatch(reply.headers["Content-Disposition"]), endpoint
            # A file is never a document of this site.
            assert not kind.startswith("text/html"), endpoint
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert "sandbox" in reply.headers["Content-Security-Policy"] or is_page


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(workflow_id=st.text(max_size=40) | st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True))
def test_no_id_that_a_host_may_choose_can_end_a_header(workflow_id):
    try:
        event = parse_event({"format": "atmem.continuity.v1", **LEAST, "workflow_id": workflow_id})
    except MalformedError:
        return
    # The name of a file is this id and words of ours.
    assert DISPOSITION.fullmatch(f'attachment; filename="atmem-{event.workflow_id}.csv"')


def test_a_file_that_is_downloaded_has_the_name_of_its_id_alone(filled):
    site, _ = filled
    browser = site.signed_in("ada")
    names = [
        get(browser, f"{ACTIVITY}/flow-1/attempts.{kind}").headers["Content-Disposition"] for kind in ("csv", "json")
    ]

    assert names == [f'attachment; filename="atmem-flow-1.{kind}"' for kind in ("csv", "json")]


def test_every_header_of_a_file_is_written_in_one_way():
    """Beside the pattern: a header made of data in another way would not be looked at above."""
    written = [
        (path.name, line.strip())
        for path in FOLDER.rglob("*.py")
        for line in path.read_text().splitlines()
        if "Content-Disposition" in line
    ]

    assert written
    way = re.compile(r'= f\'attachment; filename="\{(?:taken\.)?(?:file)?name\}(?:\.\{ending\})?"\'')
    for name, line in written:
        assert way.search(line), (name, line)


def test_no_python_of_the_server_makes_html_of_text():
    banned = {"Markup", "render_template_string", "from_string", "escape_silent"}
    for path in FOLDER.rglob("*.py"):
        names = {
            getattr(node, "id", None) or getattr(node, "attr", None)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Name | ast.Attribute)
        }
        assert not names & banned, path.name


# --- The inside (X08, Y05)

DEBUGGING = {"FLASK_DEBUG": "1", "FLASK_ENV": "development", "WERKZEUG_DEBUG_PIN": "off", "WERKZEUG_RUN_MAIN": "true"}


def test_no_variable_turns_debugging_on(site, monkeypatch):
    for name, value in DEBUGGING.items():
        monkeypatch.setenv(name, value)
    application = create_app(wiring=site.wiring)

    assert application.debug is False
    assert application.testing is False
    assert application.config["PROPAGATE_EXCEPTIONS"] is False
    assert not application.config.get("TRAP_HTTP_EXCEPTIONS")


def test_flasks_own_server_is_refused(fresh_instance):
    done = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "app", "run", "--debug", "--port", "0"], cwd=ROOT, check=False,
        env=environment(fresh_instance.folder, DEBUGGING | {"WERKZEUG_RUN_MAIN": ""}), capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip

    assert done.returncode == 1
    assert "atmem serve" in done.stderr
    assert "Debugger" not in done.stdout + done.stderr


def test_a_served_instance_has_no_console_no_metrics_and_no_listing_for_nobody(fresh_instance):
    server = start(fresh_instance, extra=DEBUGGING)
    try:
        for address in ("/console", "/?__debugger__=yes&cmd=resource&f=debugger.js", "/metrics", "/debug", "/docs",
                        "/.env", "/.git/config", "/static/", "/static/../config.py", "/server-status"):  # fmt: skip
            with server.connect() as connection:
                request = f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                connection.sendall(request.encode())
                reply = b""
                while chunk := connection.recv(65_536):
                    reply += chunk
            status = int(reply.split(b" ", 2)[1])
            assert status in {302, 303, 400, 401, 403, 404}, (address, status)
            for word in (b"Werkzeug", b"Traceback", b"waitress", b"Python", b"SQLAlchemy", str(ROOT).encode()):
                assert word not in reply, (address, word)
    finally:
        stop(server)


def test_liveness_says_one_word(site):
    assert site.browser().send("GET", "/healthz").json == {"status": "ok"}
    assert set(site.browser().send("GET", "/readyz").json) <= {"status", "code"}
