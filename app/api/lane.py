"""The lane of those who work: create, begin, outcome and renew of whoever brings a credential, past Flask's machinery.

For one view Flask makes some thirty objects (request, contexts, adapter, session, response) that a begin has no use
for, and between two requests of a worker they have left the processor's caches: a third of what a begin costs beside
its statements. Here the same steps are taken on the WSGI request: who asks, is he admitted, body, service, reply.

Rules:

* Nothing is decided here. Who is admitted is read from the mark of the view; what is done, from `workers.VERBS` and
  `coordinators.created`.
* What is not exactly a POST to one of the four paths with an ``Authorization`` header is Flask's.
* What fails is Flask's as well: it renders the error as it would have rendered it for the view.
* A test sends the same requests both ways and compares the replies byte by byte.

Source: docs/adr/0011.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from flask import Flask

from app.api import coordinators, workers
from app.auth.admission import OPEN, Admission, admission_of
from app.extensions import wiring_of
from app.paths import WORKFLOW_ID
from app.replies import JSON_TYPE, REQUEST_ID_KEY, json_bytes

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from app.wiring import Wiring
    from continuity.services.callers import Caller

_CREATE: Final = "/v1/continuity"
_PATH: Final = re.compile(rf"/v1/continuity/({WORKFLOW_ID})/({'|'.join(workers.VERBS)})")


class Lane:
    """Stands in front of Flask and behind the edge."""

    def __init__(self, app: Flask, flask: WSGIApplication) -> None:
        self._app = app
        self._flask = flask
        self._admissions = {name: _mark(app, f"{workers.blueprint.name}.{name}") for name in workers.VERBS}
        self._may_create = _mark(app, f"{coordinators.blueprint.name}.create")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST" or "HTTP_AUTHORIZATION" not in environ:
            return self._flask(environ, start_response)
        path = environ["PATH_INFO"]
        matched = None if path == _CREATE else _PATH.fullmatch(path)
        if matched is None and path != _CREATE:
            return self._flask(environ, start_response)
        try:
            value = self._create(environ) if matched is None else self._work(environ, matched[1], matched[2])
            body = json_bytes(value)
        except Exception as error:  # noqa: BLE001 - whatever it is, the application's handlers know what to say
            return self._refuse(environ, start_response, error)
        start_response("200 OK", [("Content-Type", JSON_TYPE), ("Content-Length", str(len(body)))])
        return [body]

    def _create(self, environ: WSGIEnvironment) -> dict[str, Any]:
        wiring, caller = self._admitted(environ, self._may_create)
        return coordinators.created(wiring, caller, environ)

    def _work(self, environ: WSGIEnvironment, workflow_id: str, name: str) -> dict[str, Any]:
        wiring, caller = self._admitted(environ, self._admissions[name])
        return workers.VERBS[name](wiring, caller, workflow_id, environ)

    def _admitted(self, environ: WSGIEnvironment, admission: Admission) -> tuple[Wiring, Caller]:
        wiring = wiring_of(self._app)
        caller = wiring.auth.principals.bearer(environ["HTTP_AUTHORIZATION"], request_id=environ[REQUEST_ID_KEY])
        admission.require(caller)
        return wiring, caller

    def _refuse(self, environ: WSGIEnvironment, start_response: StartResponse, error: Exception) -> Iterable[bytes]:
        with self._app.request_context(environ):
            response = self._app.make_response(self._app.handle_user_exception(error))
            return self._app.process_response(response)(environ, start_response)


def _mark(app: Flask, endpoint: str) -> Admission:
    admission = admission_of(app, endpoint)
    if admission is None or admission is OPEN:
        raise RuntimeError(f"{endpoint} admits nobody by a mark of its own.")
    return admission
