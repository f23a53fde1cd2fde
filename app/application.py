"""Puts the Flask application together: blueprints, errors, the edge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from flask import Flask, Request, request
from flask.sessions import NullSession, SessionInterface
from werkzeug.datastructures import ImmutableDict

from app import denials, errors, extensions, health, instance, logs, pages
from app.api import (
    capture,
    coordinators,
    evidence,
    grants,
    keys,
    observers,
    openapi,
    operators,
    session,
    thread_workers,
    threads,
    workers,
)
from app.api.lane import Lane
from app.audits import KEEP_S
from app.auth import admission, identity
from app.body import DEFINITION_BODY_BYTES
from app.config import Settings, SettingsError, load_settings
from app.headers import Edge
from app.overview import CLOCK_NOTE
from app.paths import CONVERTERS, LazyRule
from app.replies import StrictJSONProvider, request_id
from app.vendored import check_vendored
from app.wiring import Overrides, SystemClock, Wiring, built
from continuity.errors import (
    ContinuityError,
    DecryptionError,
    ForbiddenError,
    IntegrityError,
    ThrottledError,
    UnauthenticatedError,
)
from continuity.vault import KeyProvider

BLUEPRINTS = (
    health.blueprint,
    openapi.blueprint,
    session.blueprint,
    grants.blueprint,
    coordinators.blueprint,
    workers.blueprint,
    observers.blueprint,
    operators.blueprint,
    evidence.blueprint,
    capture.blueprint,
    keys.blueprint,
    threads.blueprint,
    thread_workers.blueprint,
)
"""Every blueprint; each names its whole paths, so that this list has no prefixes."""


_CLOCK_NOTE_S = 5.0
_COMES_FIRST = frozenset({
    "reauthentication_required", "password_change_required", "second_factor_required",
    "second_factor_enrolment_required",
})  # fmt: skip
"""Codes of what people are asked to do first, which refuses them nothing."""


class _NoSessions(SessionInterface):
    """Flask's signed session, empty and never written: who is signed in says a row (`app.auth`), not a cookie."""

    def open_session(self, app: Flask, request: Request) -> NullSession:  # noqa: ARG002 - Flask calls it so
        return self.make_null_session(app)


class Application(Flask):
    """Flask with the one JSON writer of this product, and without a session of its own."""

    json_provider_class = StrictJSONProvider
    session_interface = _NoSessions()
    url_rule_class = LazyRule
    # A method that no view takes is answered 405, OPTIONS too: there is no cross-origin use to negotiate. Here and
    # not in the configuration, which comes too late for the view of static files.
    default_config = ImmutableDict({**Flask.default_config, "PROVIDE_AUTOMATIC_OPTIONS": False})


def make(settings: Settings | None, wiring: Wiring | None) -> Flask:
    """Make the application; see `app.create_app`."""
    if wiring is not None:
        settings = wiring.settings
    elif settings is None:
        settings = _settings_or_exit()
    check_vendored()
    app = Application("app")
    app.config.update(
        # Whatever FLASK_DEBUG says: a refusal would tell more, and a bad form would be a defect.
        DEBUG=False,
        MAX_CONTENT_LENGTH=DEFINITION_BODY_BYTES,
        MAX_FORM_MEMORY_SIZE=DEFINITION_BODY_BYTES,
        MAX_FORM_PARTS=100,
        PROPAGATE_EXCEPTIONS=False,
        SECRET_KEY=None if wiring is None else wiring.secret_key,
    )
    # A redirect that tidies an address would be built from what the client sent.
    app.url_map.merge_slashes = False
    app.url_map.redirect_defaults = False
    extensions.install(app, settings, wiring)
    errors.install(app)
    if wiring is not None:
        app.extensions[errors.NOTED] = partial(_note, wiring)
    identity.install(app, lambda: extensions.wiring().auth)
    admission.install(app)
    app.url_map.converters.update(CONVERTERS)
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    pages.install(app)
    clock = SystemClock() if wiring is None else wiring.clock
    count = None if wiring is None else wiring.metrics.requested
    app.wsgi_app = Edge(Lane(app, app.wsgi_app), settings, clock, count=count)  # type: ignore[method-assign]
    return app


@contextmanager
def served(settings: Settings, *, keys: KeyProvider, overrides: Overrides) -> Iterator[Flask]:
    """Make everything that one serving process needs, and give all of it back at the end."""
    with built(settings, keys=keys, overrides=overrides) as wiring:
        wiring.housekeeping.add("clock_step", partial(_note_clock_step, wiring), interval_s=_CLOCK_NOTE_S)
        wiring.housekeeping.add("anchor", wiring.audits.anchors.keep, interval_s=KEEP_S)
        wiring.housekeeping.add("denials", wiring.audits.denials.write, interval_s=denials.WRITE_S)
        wiring.audits.checks.look_at_end()
        wiring.audits.checks.begin_at_start()
        wiring.housekeeping.start()
        wiring.vault_life.follower.start()
        try:
            yield make(settings, wiring)
        finally:
            wiring.vault_life.follower.stop()
            wiring.housekeeping.stop()
            _end_log(wiring)


def _end_log(wiring: Wiring) -> None:
    """Write what was refused last, and bring the anchor up to the end of serving.

    What keeps them from that must not keep the server from ending.
    """
    for name, work in (("denials", wiring.audits.denials.write), ("anchor", wiring.audits.anchors.keep)):
        try:
            work()
        except ContinuityError as error:
            logs.failure(error, task=name)


def _note(wiring: Wiring, error: ContinuityError) -> None:
    """Remember for the audit log who was refused, and what contradicts itself."""
    where = request.endpoint or ""
    if isinstance(error, ThrottledError):
        what = denials.THROTTLED
    elif isinstance(error, IntegrityError | DecryptionError):
        what = denials.INTEGRITY
        where = next((str(value) for value in (request.view_args or {}).values()), where)
    elif isinstance(error, ForbiddenError):
        what = "" if error.code in _COMES_FIRST else denials.REFUSED
    else:
        # Nobody at all is not refused: they are asked to sign in.
        is_wrong = isinstance(error, UnauthenticatedError) and "HTTP_AUTHORIZATION" in request.environ
        what = denials.REFUSED if is_wrong else ""
    if what:
        denial = denials.Denial(what, admission.actor_or_nobody(), where, error.code)
        wiring.audits.denials.note(denial, request_id=request_id(), address=request.remote_addr or "")


def _note_clock_step(wiring: Wiring) -> None:
    """Leave a note when the clock of decisions stepped forward, so that `atmem status` can tell."""
    stepped_us = wiring.services.watch.stepped_us
    if stepped_us is not None and instance.read_note(wiring.settings, CLOCK_NOTE).get("stepped_us") != stepped_us:
        instance.leave_note(wiring.settings, CLOCK_NOTE, {"stepped_us": stepped_us})


def _settings_or_exit() -> Settings:
    try:
        return load_settings(os.environ)
    except SettingsError as error:
        raise SystemExit(f"Error: {error}") from None
