"""Ids in paths: whatever is not spelled like one is no address here, and nothing is looked up for it."""

from __future__ import annotations

from typing import Final

from werkzeug.routing import BaseConverter

WORKFLOW_ID: Final = "wf_[0-9a-f]{32}"
EVIDENCE_ID: Final = "er_[0-9a-f]{32}"


class WorkflowConverter(BaseConverter):
    """``<workflow:workflow_id>`` in a rule."""

    regex = WORKFLOW_ID


class EvidenceConverter(BaseConverter):
    """``<evidence:evidence_id>`` in a rule."""

    regex = EVIDENCE_ID
