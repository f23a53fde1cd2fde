"""Evidence: what agents recorded of what they did. Found, read as a transcript, taken away, destroyed.

Every view of exact content is written to the audit log before it is shown. Lists show what stands beside content and
no content. Who sees what is the product's own decision; here stands which role has which page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flask import Blueprint, Response, render_template, url_for

from app import errors, htmx
from app.auth.admission import admits, admitted
from app.auth.identity import auth, signed_in, visit
from app.body import read_form
from app.extensions import wiring
from app.pages import evidence_view as views
from app.pages import shell
from app.pages.forms import PASSWORD
from app.pages.notes import WORDS, leave_note
from app.pages.problems import HTML_TYPE
from app.pages.reauthentication import Unproved, proved
from app.query import read_query
from continuity.errors import (
    ConflictError,
    ContinuityError,
    DecryptionError,
    IntegrityError,
    MalformedError,
    VaultError,
)
from continuity.evidence import ListRuns, SearchEvidence
from continuity.services.callers import Role

blueprint = Blueprint("evidence_pages", __name__)

READERS: Final = (Role.OPERATOR, Role.INVESTIGATOR, Role.ADMINISTRATOR)
ADMINISTRATORS: Final = (Role.ADMINISTRATOR,)
PAGE_SIZE: Final = 25
RECORDS_SIZE: Final = 50
PART_SIZE: Final = 100
_FILTERS: Final = ("q", "run", "producer", "kind", "workspace", "from", "to")
_SEALED_TYPE: Final = "application/octet-stream"
_LINES_TYPE: Final = "application/x-ndjson; charset=utf-8"
_SEQ_DIGITS: Final = 9
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_LOCAL: Final = "http://127.0.0.1:8768"
_FIRST_STEPS: Final = """\
export ATMEM_EVIDENCE_TOKEN="$(atmem continuity credential \\
  --principal my-agent --token-only{option})"
printf 'Authorization: Bearer %s' "$ATMEM_EVIDENCE_TOKEN" | curl -sS -H @- \\
  {url}/v1/evidence -H 'Content-Type: application/json' \\
  -d '{{"run_id":"first-run","producer":"my-agent","epoch":1,
  "event_id":"1","kind":"text","content":"Hello.","time":'"$(date +%s)"'}}'"""

WORDS["evidence_moved"] = "That place in the list is no longer kept. These are the newest."
WORDS["evidence_deleted"] = (
    "The run is destroyed: what it held cannot be read again, and its name cannot be used again."
)


@blueprint.get("/evidence")
@admits(people=READERS)
def index() -> Response:
    given = read_query("workspace", "cursor")
    asked = ListRuns(limit=PAGE_SIZE, cursor=given.get("cursor"), workspace=given.get("workspace"))
    try:
        found = wiring().services.evidence_search.runs_page(admitted(), asked)
    except MalformedError:
        return _moved("evidence_pages.index", given)
    runs = views.run_list(found, given, workspaces=_workspaces(), names=_names(found["runs"]))
    return _page("index", list=runs, first_steps=_first_steps())


@blueprint.get("/evidence/records")
@admits(people=READERS)
def records() -> Response:
    """Find records of all runs by what stands beside their content, and by whole words of it."""
    given = read_query(*_FILTERS, "cursor")
    problem, found = "", {"records": [], "next_cursor": None}
    try:
        asked = SearchEvidence.from_query(views.query(given, limit=RECORDS_SIZE))
        found = wiring().services.evidence_search.page(admitted(), asked)
    except MalformedError as error:
        if "cursor" in given:
            return _moved("evidence_pages.records", given)
        problem = error.message
    shown = views.record_list(found, given, workspaces=_workspaces())
    return _page("records", _UNPROCESSABLE if problem else 200, list=shown, problem=problem)


@blueprint.get("/evidence/<evidence:evidence_id>")
@admits(people=READERS)
def show(evidence_id: str) -> Response:
    """Show a run in its order. The look is in the audit log before anything of it is on its way."""
    after = _after(read_query("after"))
    reading = wiring().services.evidence_reading
    try:
        found = reading.run(admitted(), evidence_id, after=after, limit=PART_SIZE)
    except (DecryptionError, IntegrityError) as error:
        return _unreadable(evidence_id, error)
    except ConflictError as error:
        return _gone(evidence_id, error)
    run = views.transcript(found, after=after, names=_names([found]), has_costs=_observed(found))
    return _page("run", run=run)


@blueprint.get("/evidence/<evidence:evidence_id>/manifest")
@admits(people=READERS)
def manifest(evidence_id: str) -> Response:
    read_query()
    try:
        found = wiring().services.evidence_reading.manifest(admitted(), evidence_id)
    except (DecryptionError, IntegrityError) as error:
        return _unreadable(evidence_id, error)
    except ConflictError as error:
        return _gone(evidence_id, error)
    return _page("manifest", manifest=views.manifest(found))


@blueprint.get("/evidence/<evidence:evidence_id>/export")
@admits(people=READERS)
def export(evidence_id: str) -> Response:
    read_query()
    return _export_page(evidence_id)


@blueprint.post("/evidence/<evidence:evidence_id>/export/encrypted")
@admits(people=READERS)
def export_encrypted(evidence_id: str) -> Response:
    return _encrypted(evidence_id)


@blueprint.post("/evidence/<evidence:evidence_id>/export/plaintext")
@admits(people=ADMINISTRATORS)
def export_plaintext(evidence_id: str) -> Response:
    return _plaintext(evidence_id)


@blueprint.get("/evidence/workflows/<workflow:workflow_id>/export")
@admits(people=READERS)
def export_workflow(workflow_id: str) -> Response:
    read_query()
    return _export_page(workflow_id)


@blueprint.post("/evidence/workflows/<workflow:workflow_id>/export/encrypted")
@admits(people=READERS)
def export_workflow_encrypted(workflow_id: str) -> Response:
    return _encrypted(workflow_id)


@blueprint.post("/evidence/workflows/<workflow:workflow_id>/export/plaintext")
@admits(people=ADMINISTRATORS)
def export_workflow_plaintext(workflow_id: str) -> Response:
    return _plaintext(workflow_id)


@blueprint.get("/evidence/<evidence:evidence_id>/delete")
@admits(people=ADMINISTRATORS)
def delete(evidence_id: str) -> Response:
    read_query()
    return _delete_page(evidence_id)


@blueprint.post("/evidence/<evidence:evidence_id>/delete")
@admits(people=ADMINISTRATORS)
def delete_run(evidence_id: str) -> Response:
    """Destroy a run, once its id was written again and the password was given."""
    given = _fields("confirmation")
    if given["confirmation"].strip() != evidence_id:
        return _delete_page(evidence_id, {"confirmation": "Write the run's id as it stands here."}, given=given)
    caller = proved(admitted(), given[PASSWORD])
    if isinstance(caller, Unproved):
        return _delete_page(evidence_id, {PASSWORD: caller.problem}, given=given, unproved=caller)
    try:
        wiring().services.evidence_deletions.delete(caller, evidence_id)
    except ConflictError as error:
        if error.code != "evidence_deleted":
            raise
    answer = htmx.see_other(url_for("evidence_pages.index"))
    leave_note(answer, "evidence_deleted")
    return answer


# ---- taking away


def _encrypted(object_id: str) -> Response:
    given = _fields("passphrase", "again")
    if given["passphrase"] != given["again"]:
        return _export_page(object_id, {"again": "This is not the same passphrase."})
    caller = proved(admitted(), given[PASSWORD])
    if isinstance(caller, Unproved):
        return _export_page(object_id, {PASSWORD: caller.problem}, unproved=caller)
    try:
        taken = wiring().services.exporting.encrypted(caller, object_id, given["passphrase"])
    except MalformedError as error:
        return _export_page(object_id, {"passphrase": error.message})
    return _file(taken, _SEALED_TYPE)


def _plaintext(object_id: str) -> Response:
    given = _fields("confirmation")
    if given["confirmation"] != "yes":
        return _export_page(object_id, {"confirmation": "Tick this first."})
    caller = proved(admitted(), given[PASSWORD])
    if isinstance(caller, Unproved):
        return _export_page(object_id, {"clear_password": caller.problem}, unproved=caller)
    return _file(wiring().services.exporting.plaintext(caller, object_id), _LINES_TYPE)


def _export_page(
    object_id: str, problems: Mapping[str, str] | None = None, *, unproved: Unproved | None = None
) -> Response:
    is_workflow = object_id.startswith("wf_")
    answer = _page(
        "export", _status(problems, unproved), object_id=object_id, is_workflow=is_workflow, problems=problems or {},
        may_clear=admitted().role is Role.ADMINISTRATOR, prover=_prover(),
    )  # fmt: skip
    return _waiting(answer, unproved)


def _delete_page(
    evidence_id: str, problems: Mapping[str, str] | None = None, *, given: Mapping[str, str] | None = None,
    unproved: Unproved | None = None,
) -> Response:  # fmt: skip
    answer = _page(
        "delete", _status(problems, unproved), evidence_id=evidence_id, problems=problems or {},
        confirmation=(given or {}).get("confirmation", ""), prover=_prover(),
    )  # fmt: skip
    return _waiting(answer, unproved)


def _status(problems: Mapping[str, str] | None, unproved: Unproved | None) -> int:
    return unproved.status if unproved is not None else _UNPROCESSABLE if problems else 200


def _waiting(answer: Response, unproved: Unproved | None) -> Response:
    if unproved is not None and unproved.retry_after_s is not None:
        answer.headers["Retry-After"] = str(unproved.retry_after_s)
    return answer


def _prover() -> str:
    """Return whose password a form asks for; empty where it was given within ten minutes."""
    return "" if admitted().is_fresh else signed_in().username


def _file(taken: Any, content_type: str) -> Response:
    answer = Response(taken.body, content_type=content_type)
    # Made of an id of the server: nothing of it needs quoting.
    answer.headers["Content-Disposition"] = f'attachment; filename="{taken.filename}"'
    return answer


# ---- what the pages share


def _unreadable(evidence_id: str, error: ContinuityError) -> Response:
    """Say of a run that it does not open, as a page of its own; the error is logged and put on record as any other."""
    answer = errors.render(error)
    answer.set_data(render_template(
        "pages/evidence/unreadable.html", evidence_id=evidence_id, request_id=visit().request_id
    ))  # fmt: skip
    answer.content_type = HTML_TYPE
    return answer


def _gone(evidence_id: str, error: ConflictError) -> Response:
    if error.code != "evidence_deleted":
        raise error
    return _page("gone", _CONFLICT, evidence_id=evidence_id)


def _page(name: str, status: int = 200, **context: Any) -> Response:
    return Response(render_template(f"pages/evidence/{name}.html", **context), status, content_type=HTML_TYPE)


def _fields(*names: str) -> dict[str, str]:
    """Return the fields of a form, those that are missing empty."""
    given = read_form()
    if not given.keys() <= {*names, PASSWORD, "csrf_token"}:
        raise MalformedError("The form has a field that this page does not know.")
    return {name: given.get(name, "") for name in (*names, PASSWORD)}


def _moved(endpoint: str, given: Mapping[str, str]) -> Response:
    if "cursor" not in given:
        raise MalformedError("The list cannot be asked so.")
    answer = htmx.see_other(url_for(endpoint, **{name: value for name, value in given.items() if name != "cursor"}))
    leave_note(answer, "evidence_moved")
    return answer


def _after(given: Mapping[str, str]) -> int:
    text = given.get("after", "0")
    if not (text.isascii() and text.isdigit()) or len(text) > _SEQ_DIGITS:
        raise MalformedError("after must be the number of a record.")
    return int(text)


def _workspaces() -> list[str]:
    return sorted(auth().names.workspaces(admitted().workspaces).values())


def _names(found: list[dict[str, Any]]) -> dict[str, str]:
    """Return names of who recorded; what cannot be opened keeps its id."""
    actors = {str(each["creator_id"]) for each in found if each.get("creator_id")}
    try:
        return auth().names.of(actors)
    except VaultError:
        return {}


def _observed(found: Mapping[str, Any]) -> bool:
    """Say whether the person may see what its workflows cost."""
    return bool(found["workflows"]) and shell.may_open("activity.show")


def _first_steps() -> str:
    url = auth().url
    return _FIRST_STEPS.format(option="" if url == _LOCAL else f" --url {url}", url=url)
