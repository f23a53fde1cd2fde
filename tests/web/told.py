"""What observers tell in the tests of the pages of activity, taken in through the product's own ingest."""

from __future__ import annotations

import itertools
from typing import Any

from continuity.errors import ConflictError
from observations.events import FORMAT, parse_event
from tests.web.site import Site

ACTIVITY = "/activity"
_numbers = itertools.count()


class Observer:
    """Tells events into a scope, about today unless they say otherwise."""

    def __init__(self, site: Site, scope: str = "local") -> None:
        self.site = site
        self.scope = scope

    def tell(self, workflow_id: str = "flow-1", attempt_id: str = "at-1", event: str = "execute", **more: Any) -> None:
        told = {
            "format": FORMAT, "event_id": f"{self.scope}-{next(_numbers)}", "workflow_id": workflow_id,
            "operation_id": f"{workflow_id[:100]}-op", "run_id": "run-1", "attempt_id": attempt_id, "event": event,
            "time": self.site.clock.now_us() // 1_000_000, **more,
        }  # fmt: skip
        self.site.wiring.observations.ingest.accept(self.scope, parse_event(told))

    def charge(self, charge_id: str, cost: int | None = None, **more: Any) -> None:
        """Tell of a charge; without a cost it has no price."""
        priced = {} if cost is None else {"cost_microusd": cost, "price_source": "list-2026"}
        self.tell(**{"event": "usage", "charge_id": charge_id, "charge_source": "model-api", **priced, **more})

    def contradict(self, charge_id: str, cost: int, **more: Any) -> None:
        """Tell another amount of a charge, which is refused."""
        try:
            self.charge(charge_id, cost, **more)
        except ConflictError:
            return
        raise AssertionError("The other amount was taken.")

    def story(self, workflow_id: str = "flow-1", name: str = "at") -> None:
        """Tell of a lost attempt with an unpriced charge, and of its recovery with a priced one."""
        first, second = {"attempt_id": f"{name}-1"}, {"attempt_id": f"{name}-2", "recovery": True, "run_id": "run-2"}
        self.tell(workflow_id, **first)
        self.charge(f"{name}-c1", workflow_id=workflow_id, **first, input_tokens=1_200)
        self.tell(workflow_id, event="unknown", **first)
        self.tell(workflow_id, **second)
        self.charge(f"{name}-c2", 4_200, workflow_id=workflow_id, **second, input_tokens=900, output_tokens=80,
                    model="m-1")  # fmt: skip
        self.tell(workflow_id, event="completed", **second)
