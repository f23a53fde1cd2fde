"""Ids in paths: whatever is not spelled like one is no address here, and nothing is looked up for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from werkzeug.routing import BaseConverter, Rule

from continuity.wire import IDENTIFIER

WORKFLOW_ID: Final = "wf_[0-9a-f]{32}"
EVIDENCE_ID: Final = "er_[0-9a-f]{32}"
THREAD_ID: Final = "th_[0-9a-f]{32}"
THREAD_RUN_ID: Final = "rn_[0-9a-f]{32}"
WAITING_ID: Final = "wr_[0-9a-f]{32}"


class WorkflowConverter(BaseConverter):
    """``<workflow:workflow_id>`` in a rule."""

    regex = WORKFLOW_ID


class EvidenceConverter(BaseConverter):
    """``<evidence:evidence_id>`` in a rule."""

    regex = EVIDENCE_ID


class ThreadConverter(BaseConverter):
    """``<thread:thread_id>`` in a rule."""

    regex = THREAD_ID


class ThreadRunConverter(BaseConverter):
    """``<run:thread_run_id>`` in a rule."""

    regex = THREAD_RUN_ID


class WaitingConverter(BaseConverter):
    """``<waiting:waiting_id>`` in a rule."""

    regex = WAITING_ID


class IdentifierConverter(BaseConverter):
    """``<identifier:…>`` in a rule: a name that a client chose."""

    regex = IDENTIFIER.pattern


CONVERTERS: Final = {
    "workflow": WorkflowConverter,
    "evidence": EvidenceConverter,
    "thread": ThreadConverter,
    "run": ThreadRunConverter,
    "waiting": WaitingConverter,
    "identifier": IdentifierConverter,
}
"""By the name that rules call each."""


class LazyRule(Rule):
    """A rule whose addresses are first built when one is asked for: most rules are only ever matched.

    Werkzeug compiles two functions a rule for it, which took half of the time in which an application is made.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:  # noqa: FBT001, FBT002 - Werkzeug's own
        compiled: Callable[..., tuple[str, str]] | None = None

        def build(rule: LazyRule, /, **values: object) -> tuple[str, str]:
            nonlocal compiled
            if compiled is None:
                compiled = super(LazyRule, rule)._compile_builder(append_unknown)
            return compiled(rule, **values)

        return build
