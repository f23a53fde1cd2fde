"""The contract as OpenAPI 3.1, made from the url map, the marks of the views and the models beside this file.

A route that `ROUTES` does not describe makes `document` fail, and so does a description without a route: the
document is what the server does, or there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flask import Flask
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from werkzeug.routing import Rule

from app.api import answers, schemas
from app.api.routes import ROUTES, Route
from app.api.threads import JOURNAL_PARAMETERS, SUBJECT, SUBJECT_HEADER
from app.api.threads import LIST_PARAMETERS as THREADS_PARAMETERS
from app.api.threads import blueprint as threads_blueprint
from app.auth.admission import Admission, admission_of
from app.headers import API_PATHS
from app.paths import EVIDENCE_ID, THREAD_ID, THREAD_RUN_ID, WAITING_ID, WORKFLOW_ID
from app.streaming import LONG_POLL_S
from continuity import limits
from continuity.decisions.phases import Phase
from continuity.decisions.threads.bounds import JOURNAL_PAGE
from continuity.decisions.threads.states import ThreadState
from continuity.evidence import PAGE_PARAMETERS, RUNS_PARAMETERS, SEARCH_PARAMETERS
from continuity.services.callers import CallerKind
from continuity.thread_requests import SCOPES
from continuity.wire import IDENTIFIER, LIST_PARAMETERS

OPENAPI: Final = "3.1.0"
CONTRACT_VERSION: Final = "1.0.0"
"""Of what this document describes; the first number changes when a client could break. It is not the product's."""

_TITLE: Final = "AtMem Continuity"
_ABOUT: Final = (
    "Governed operations for agents: what may have happened is never silently done twice. In a request, null in an "
    "optional member means absent and a member that is not named here is refused; in a reply, members may be added. "
    "The version is that of this contract and not of the product: its first number changes when a client could break."
)
_REQUEST: Final = "#/components/schemas/"
_LOCKED_ERRORS: Final = ("423",)


ERRORS: Final[Mapping[str, str]] = {
    "400": "The request cannot be read, or a field is not what it must be. The message names it.",
    "401": "No credential, or one that is unknown, expired or revoked.",
    "403": "This kind of credential, this role or this session may not do that.",
    "404": "There is no such object within the caller's scope. Another's object answers the same.",
    "405": "This address does not take this method.",
    "409": "The state of things forbids it; the code says why. Nothing has happened.",
    "411": "The request needs a Content-Length.",
    "413": "The body is too large. It was not read.",
    "415": "The body must be application/json, not encoded.",
    "423": "The vault is locked: ask again after an administrator has unlocked it.",
    "429": "Too many requests: wait as Retry-After says.",
    "500": "Something is wrong on the server, or stored data contradict themselves. Nothing was done.",
    "503": "Storage cannot answer: whether the request took effect is unknown, wait as Retry-After says.",
}
"""Every status of an error reply; all of them have the one body."""

_QUERY: Final[Mapping[str, Mapping[str, Any]]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": limits.PAGE_MAX, "default": limits.PAGE_DEFAULT},
    "cursor": {"type": "string", "description": "`next_cursor` of the page before, of the same question."},
    "state": {"type": "string", "enum": [phase.value for phase in Phase], "description": "Only this phase."},
    "workspace": {"type": "string", "pattern": f"^{IDENTIFIER.pattern}$"},
    "key": {"type": "string", "pattern": f"^{IDENTIFIER.pattern}$", "description": "Exactly this workflow_key."},
    "q": {
        "type": "string",
        "maxLength": 200,
        "description": "A workflow_id, or whole words of key and operation names; of evidence, whole words of its "
        "content. Parts of words are not found.",
    },
    "run": {"type": "string", "pattern": f"^{IDENTIFIER.pattern}$", "description": "A run_id or evidence_id."},
    "producer": {"type": "string", "pattern": f"^{IDENTIFIER.pattern}$"},
    "kind": {"type": "string", "pattern": f"^{IDENTIFIER.pattern}$"},
    "since": {"type": "number", "minimum": 0, "description": "Received at or after, Unix seconds."},
    "until": {"type": "number", "minimum": 0, "description": "Received before, Unix seconds."},
    "after": {"type": "integer", "minimum": 0, "description": "`next_after` of the page before."},
}
_QUERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "operators.index": LIST_PARAMETERS,
    "evidence.index": SEARCH_PARAMETERS,
    "evidence.runs": RUNS_PARAMETERS,
    "evidence.show": PAGE_PARAMETERS,
    "threads_api.index": THREADS_PARAMETERS,
    "threads_api.journal": JOURNAL_PARAMETERS,
    "threads_api.history": ("cursor",),
}
"""By endpoint, what its query may hold."""
_OWN_QUERY: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "threads_api.index": {
        "state": {"type": "string", "enum": [state.value for state in ThreadState]},
        "scope": {"type": "string", "enum": list(SCOPES), "default": "own"},
    },
    "threads_api.journal": {
        "after": {"type": "string", "description": "A position, `<epoch>-<seq>`; `Last-Event-ID` goes before it."},
        "limit": {"type": "integer", "minimum": 1, "maximum": JOURNAL_PAGE, "default": JOURNAL_PAGE},
        "wait": {
            "type": "integer", "minimum": 0, "maximum": LONG_POLL_S, "default": 0,
            "description": "Seconds to wait for records where there are none; it may be answered sooner.",
        },
    },
    "threads_api.history": {
        "cursor": {"type": "string", "description": "`history_cursor` of a snapshot, or of the page before."},
    },
}  # fmt: skip
"""What a name means at one endpoint alone."""
_SUBJECT: Final[Mapping[str, Any]] = {
    "name": SUBJECT_HEADER, "in": "header", "schema": {"type": "string", "pattern": f"^{SUBJECT.pattern}$"},
    "description": "For whom an application acts, as it knows them. Only applications send it, and all of them must.",
}  # fmt: skip
_IN_PATH: Final[Mapping[str, str]] = {
    "workflow_id": WORKFLOW_ID, "evidence_id": EVIDENCE_ID, "thread_id": THREAD_ID, "thread_run_id": THREAD_RUN_ID,
    "waiting_id": WAITING_ID, "asked_id": IDENTIFIER.pattern,
}  # fmt: skip


def document(app: Flask) -> dict[str, Any]:
    """Return the OpenAPI document of `app`; LookupError when a route and its description do not match."""
    rules = list(documented(app))
    missing = ROUTES.keys() ^ {rule.endpoint for rule in rules}
    if missing:
        raise LookupError(f"Routes and their descriptions differ: {', '.join(sorted(missing))}")
    paths: dict[str, dict[str, Any]] = {}
    for rule in rules:
        paths.setdefault(path_of(rule), {})[method_of(rule).lower()] = _operation(app, rule)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": _TITLE, "version": CONTRACT_VERSION, "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": _components(),
    }  # fmt: skip


def documented(app: Flask) -> Iterator[Rule]:
    """Return the rules of the JSON API in their order: pages and front-end files are none."""
    return (rule for rule in app.url_map.iter_rules() if API_PATHS.match(rule.rule))


def path_of(rule: Rule) -> str:
    """Return the path of a rule as OpenAPI writes it."""
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)


def method_of(rule: Rule) -> str:
    """Return the one method that a rule takes, HEAD aside."""
    (method,) = (rule.methods or set()) - {"HEAD", "OPTIONS"}
    return method


def _operation(app: Flask, rule: Rule) -> dict[str, Any]:
    route = ROUTES[rule.endpoint]
    admission = admission_of(app, rule.endpoint) or Admission()
    about = (app.view_functions[rule.endpoint].__doc__ or "").strip()
    operation: dict[str, Any] = {
        "operationId": rule.endpoint,
        "summary": about.partition("\n")[0] or rule.endpoint.partition(".")[2].replace("_", " ").capitalize() + ".",
        "security": _security(rule.endpoint, admission),
        "x-admits": sorted(admission.kinds - {CallerKind.PERSON}) + sorted(admission.roles),
        "responses": _responses(rule, route, admission),
    }
    parameters = _parameters(rule)
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _REQUEST + _name(route.request)}}},
        }
    return operation


def _security(endpoint: str, admission: Admission) -> list[dict[str, list[str]]]:
    """Say which proofs are accepted: a bearer token, or a session with its CSRF token."""
    wanted: list[dict[str, list[str]]] = []
    if admission.kinds:
        wanted.append({"bearer": []})
    if admission.roles or (endpoint.startswith("session.") and endpoint != "session.login"):
        wanted.append({"session": [], "csrf": []})
    return wanted


def _parameters(rule: Rule) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{_IN_PATH[name]}$"}}
        for name in sorted(rule.arguments)
    ]
    asked = _QUERIES.get(rule.endpoint, ())
    known = {**_QUERY, **_OWN_QUERY.get(rule.endpoint, {})}
    parameters += [{"name": name, "in": "query", "schema": known[name]} for name in asked]
    if rule.endpoint.startswith(f"{threads_blueprint.name}."):
        parameters.append(_SUBJECT)
    return parameters


def _responses(rule: Rule, route: Route, admission: Admission) -> dict[str, Any]:
    schema = {"type": "object"} if route.reply is None else {"$ref": _REQUEST + _name(route.reply)}
    made = {"application/json": {"schema": schema}} if route.file is None else {route.file: {}}
    responses: dict[str, Any] = {
        "200": {"description": "Done.", "content": made},
    }
    for status in _statuses(rule, route, admission):
        responses[status] = {"$ref": f"#/components/responses/{status}"}
    if route.conflicts:
        responses["409"] = _error(f"{ERRORS['409']} One of {', '.join(route.conflicts)}.")
    if rule.endpoint == "health.ready":
        # The one error that is not in the format of errors: for whoever watches, not for clients.
        responses["503"] = {
            "description": "Not ready.", "content": {"application/json": {"schema": schema}},
        }  # fmt: skip
    return responses


def _statuses(rule: Rule, route: Route, admission: Admission) -> list[str]:
    statuses = {"400", "405", "429", "500", *route.statuses}
    if not admission.is_open:
        statuses |= {"401", "403", "503"}
    if rule.arguments:
        statuses.add("404")
    if route.request is not None:
        statuses |= {"411", "413", "415", "503"}
    if route.needs_vault:
        statuses.update(_LOCKED_ERRORS)
    return sorted(statuses)


def _components() -> dict[str, Any]:
    requests = _models(schemas.Request, (route.request for route in ROUTES.values()))
    replies = _models(answers.Reply, (route.reply for route in ROUTES.values()), answers.Error)
    return {
        "schemas": dict(sorted({**requests, **replies}.items())),
        "responses": {status: _error(about) for status, about in ERRORS.items()},
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "atm_<letter>_<43 characters>_<checksum>"},
            "session": {
                "type": "apiKey",
                "in": "cookie",
                "name": "atmem_session",
                "description": "Set by POST /api/auth/login; over HTTPS its name is __Host-atmem_session.",
            },
            "csrf": {
                "type": "apiKey",
                "in": "header",
                "name": "X-CSRF-Token",
                "description": "The csrf_token of the reply that began the session, with every call that writes.",
            },
        },
    }


def _models(base: type[BaseModel], *wanted: Any) -> dict[str, Any]:
    """Return the schemas of the models and of all that they hold, by the names that `_name` gives them."""
    models: dict[type[BaseModel], None] = {}
    for item in wanted:
        for model in [item] if isinstance(item, type) else item:
            if model is not None:
                models[model] = None
    generator = answers.AbsentNotNull if base is answers.Reply else None
    options = {} if generator is None else {"schema_generator": generator}
    _, top = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REQUEST + "{model}", **options
    )
    definitions: dict[str, Any] = top["$defs"]
    return definitions


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _error(about: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": {"$ref": _REQUEST + "Error"}}}}
