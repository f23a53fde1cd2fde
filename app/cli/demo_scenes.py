"""One workflow in each phase, for the dashboard of the demo: made by an agent's calls, as an agent would make them.

Nothing is put into the database by hand. What the destinations did is told by receipts; there are none behind
them, and the keys begin with ``example-``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from continuity.client import ContinuityClient

RUN: Final = "run_example"
PHASES: Final = {"review", "paused", "ready", "running", "resumable", "decision", "done", "ended"}
"""All phases; there is at least one workflow in each."""
_PAYMENT: Final = {
    "amount_cents": 48_250,
    "currency": "EUR",
    "creditor": "Nordwind Office Supplies",
    "invoice": "NW-7731",
}
_MAIL: Final = {"to": "board@example.org", "subject": "Minutes of the November meeting", "attachment": "minutes.pdf"}


@dataclass(frozen=True, slots=True)
class _Scene:
    """One workflow that waits for its story."""

    client: ContinuityClient
    workflow_id: str
    name: str

    def begin(self, attempt_id: str = "attempt_1") -> dict[str, Any]:
        return self.client.begin(self.workflow_id, self.name, run_id=RUN, attempt_id=attempt_id)

    def report(self, grant: Mapping[str, Any], outcome: str, **members: Any) -> None:
        receipt = {"outcome": outcome, "operation_id": grant["operation_id"], **members}
        self.client.outcome(
            self.workflow_id, self.name, run_id=RUN, attempt_id=grant["attempt_id"],
            lease_token=grant["lease_token"], receipt=receipt,
        )  # fmt: skip


def set_up(client: ContinuityClient) -> int:
    """Make all of them with an operator's credential; returns how many."""
    scenes = (_review, _paused, _ready, _running, _resumable, _decision, _late, _done, _ended)
    for scene in scenes:
        scene(client)
    return len(scenes)


def _create(
    client: ContinuityClient, key: str, name: str, tool: str, *, arguments: Mapping[str, Any], **terms: Any
) -> _Scene:
    is_enabled = terms.pop("activate", True)
    operation = {"name": name, "tool": tool, "arguments": arguments, **terms}
    view = client.create_workflow(f"example-{key}", [operation], activate=is_enabled)
    return _Scene(client, view["workflow_id"], name)


def _review(client: ContinuityClient) -> None:
    arguments = {"channel": "status", "text": "Maintenance on Sunday, 02:00 to 03:00 UTC."}
    _create(client, "announce-maintenance", "announce", "post_message", arguments=arguments, activate=False)


def _paused(client: ContinuityClient) -> None:
    scene = _create(client, "rotate-dns-records", "update", "dns_update", arguments={"zone": "example.org", "ttl": 300})
    client.configure(scene.workflow_id, enabled=False)


def _ready(client: ContinuityClient) -> None:
    _create(client, "mail-newsletter-48", "send", "send_newsletter", arguments={"list": "readers", "issue": 48})


def _running(client: ContinuityClient) -> None:
    arguments = {"order": "2026-1190", "amount_cents": 3_900}
    terms = {"capability": ["idempotent", "query"], "retention_seconds": 86_400}
    _create(client, "refund-order-1190", "refund", "refund_payment", arguments=arguments, **terms).begin()


def _resumable(client: ContinuityClient) -> None:
    scene = _create(client, "upload-quarterly-report", "upload", "object_store_put", capability="query",
                    arguments={"bucket": "reports", "object": "2026-q3.pdf"})  # fmt: skip
    scene.report(scene.begin(), "unknown", detail="The connection was lost while the upload was under way.")


def _decision(client: ContinuityClient) -> None:
    scene = _create(client, "pay-supplier-7731", "pay", "bank_transfer", arguments=_PAYMENT, timeout_seconds=5)
    scene.report(scene.begin(), "unknown", detail="The bank did not answer within 5 seconds.")


def _late(client: ContinuityClient) -> None:
    scene = _create(client, "mail-minutes-to-board", "send", "send_mail", arguments=_MAIL, timeout_seconds=5)
    grant = scene.begin()
    scene.report(grant, "unknown", detail="The mail server closed the connection.")
    scene.report(grant, "confirmed_succeeded", effect_id="<20261130.1190@mail.example.org>", result={"accepted": 1})


def _done(client: ContinuityClient) -> None:
    scene = _create(
        client,
        "create-ticket-from-alert",
        "open",
        "ticket_create",
        arguments={"queue": "operations", "alert": "disk-87"},
    )
    scene.report(scene.begin(), "confirmed_succeeded", effect_id="OPS-4411", result={"ticket": "OPS-4411"})


def _ended(client: ContinuityClient) -> None:
    scene = _create(
        client, "book-meeting-room", "book", "calendar_book", arguments={"room": "Alder", "day": "2026-12-04"}
    )
    scene.report(scene.begin(), "confirmed_refused", reason="The room is taken that day.")
