"""Evidence: recording what agents say they did, finding and reading it, letting it out, deleting what is finished."""

from __future__ import annotations

from typing import Final

from flask import Blueprint, Response

from app.auth.admission import admits, admitted
from app.body import DEFINITION_BODY_BYTES, SMALL_BODY_BYTES, read_json
from app.extensions import wiring
from app.query import read_query
from app.replies import json_response
from continuity.evidence import (
    PAGE_PARAMETERS,
    RUNS_PARAMETERS,
    SEARCH_PARAMETERS,
    WORKFLOW_ID,
    EncryptedExport,
    ListRuns,
    ManifestRequest,
    PlaintextExport,
    Reconstruct,
    RecordEvidence,
    Retention,
    RunPage,
    SearchEvidence,
)
from continuity.services.callers import CallerKind, Role
from continuity.wire import DeleteRequest

blueprint = Blueprint("evidence", __name__)

SEALED_TYPE: Final = "application/octet-stream"
LINES_TYPE: Final = "application/x-ndjson; charset=utf-8"
_readers = admits(CallerKind.OPERATOR, people=(Role.OPERATOR, Role.INVESTIGATOR, Role.ADMINISTRATOR))
_deleters = admits(CallerKind.OPERATOR, people=(Role.OPERATOR, Role.ADMINISTRATOR), fresh=True)


@blueprint.post("/v1/evidence")
@admits(CallerKind.OPERATOR)
def record() -> Response:
    """Record one thing that an agent says it did; an exact repeat is answered as the first time."""
    asked = RecordEvidence.from_json(read_json(limit_bytes=DEFINITION_BODY_BYTES))
    return json_response(wiring().services.evidence.record(admitted(), asked))


@blueprint.get("/v1/evidence")
@_readers
def index() -> Response:
    """List records, newest received first, without content."""
    asked = SearchEvidence.from_query(read_query(*SEARCH_PARAMETERS))
    return json_response(wiring().services.evidence_search.page(admitted(), asked))


@blueprint.post("/v1/evidence/search")
@_readers
def search() -> Response:
    """List records by a body; the same as the list by a query."""
    asked = SearchEvidence.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.evidence_search.page(admitted(), asked))


@blueprint.get("/v1/evidence/runs")
@_readers
def runs() -> Response:
    """List runs, newest first."""
    asked = ListRuns.from_query(read_query(*RUNS_PARAMETERS))
    return json_response(wiring().services.evidence_search.runs_page(admitted(), asked))


@blueprint.get("/v1/evidence/<evidence:evidence_id>")
@_readers
def show(evidence_id: str) -> Response:
    """Show a run in its order, a page at a time, with content."""
    asked = RunPage.from_query(read_query(*PAGE_PARAMETERS))
    reading = wiring().services.evidence_reading
    return json_response(reading.run(admitted(), evidence_id, after=asked.after, limit=asked.limit))


@blueprint.post("/v1/evidence/reconstruct")
@_readers
def reconstruct() -> Response:
    """Show a run by its own name in its order; the same as by its evidence_id."""
    asked = Reconstruct.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    reading = wiring().services.evidence_reading
    return json_response(reading.run(admitted(), asked.run_id, after=asked.after, limit=asked.limit))


@blueprint.get("/v1/evidence/<evidence:evidence_id>/manifest")
@_readers
def manifest(evidence_id: str) -> Response:
    """Show what would be needed to run it again, without content."""
    read_query()
    return json_response(wiring().services.evidence_reading.manifest(admitted(), evidence_id))


@blueprint.post("/v1/evidence/replay-manifest")
@_readers
def replay_manifest() -> Response:
    """Show the manifest of a run by its own name."""
    asked = ManifestRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.evidence_reading.manifest(admitted(), asked.run_id))


@blueprint.post("/v1/evidence/export/encrypted")
@admits(CallerKind.OPERATOR, people=(Role.OPERATOR, Role.INVESTIGATOR, Role.ADMINISTRATOR), fresh=True)
def export_encrypted() -> Response:
    """Take a run or workflow away in a file that only the passphrase opens."""
    asked = EncryptedExport.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    taken = wiring().services.exporting.encrypted(admitted(), asked.run_id, asked.passphrase)
    return _file(taken.filename, taken.body, content_type=SEALED_TYPE)


@blueprint.post("/v1/evidence/export/plaintext")
@admits(people=(Role.ADMINISTRATOR,), fresh=True)
def export_plaintext() -> Response:
    """Take a run or workflow away as lines of JSON that anybody can read."""
    asked = PlaintextExport.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    taken = wiring().services.exporting.plaintext(admitted(), asked.run_id)
    return _file(taken.filename, taken.body, content_type=LINES_TYPE)


@blueprint.post("/v1/evidence/delete")
@_deleters
def delete() -> Response:
    """Destroy a finished workflow, or a run of evidence (administrators); its name can never be used again."""
    asked = DeleteRequest.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    services = wiring().services
    if WORKFLOW_ID.fullmatch(asked.run_id):
        return json_response({"deleted": services.deletions.delete(admitted(), asked.run_id)})
    return json_response({"deleted": services.evidence_deletions.delete(admitted(), asked.run_id)})


@blueprint.post("/v1/evidence/retention")
@_deleters
def retain() -> Response:
    """Look at one batch of what is old, and delete it if that is asked."""
    asked = Retention.from_json(read_json(limit_bytes=SMALL_BODY_BYTES))
    return json_response(wiring().services.retaining.batch(admitted(), asked))


def _file(filename: str, body: bytes, *, content_type: str) -> Response:
    response = Response(body, content_type=content_type)
    # Made of an id of the server: nothing of it needs quoting.
    response.headers["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response
