"""Running agents: claim a run, drive its graph, tell its journal, end it. One run at a time.

Example::

    client = WorkerClient(atmem_url, worker_token, coordinator_token=coordinator_token)
    ThreadWorker(client, [order_support]).run()

A worker may be killed at any moment. Its claim runs out, its run is shown as interrupted, and a person or the owner
resumes it: the next worker goes on from the checkpoint, and effects are asked for before they are done again.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final, Self

from continuity.errors import (
    ContinuityError,
    ForbiddenError,
    MalformedError,
    UnauthenticatedError,
)
from continuity.threads.agents import Agent
from continuity.threads.claims import RUN_ID, Claimed, ClaimLostError, WorkerClient
from continuity.threads.holding import Holding
from continuity.threads.places import Waiting, numbered, waiting_in
from continuity.threads.segments import MODES, End, Segment
from continuity.threads.words import RUN

IDLE_S: Final = 1.0
"""How long to wait where no run waits."""
LONGEST_WAIT_S: Final = 15.0
FINAL: Final = (UnauthenticatedError, ForbiddenError, MalformedError)
Report = Callable[[str], None]


class ThreadWorker:
    """Runs agents until it is stopped. Use it as a context, or call `run`."""

    def __init__(
        self, client: WorkerClient, agents: Sequence[Agent], *, report: Report | None = None,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:  # fmt: skip
        """Keep what is run; nothing is opened or sent yet.

        Args:
            client: With the credentials.
            agents: Each of a name of its own.
            report: Told in one text what went wrong; content of threads may be in it.
            pause: Waits that many seconds or until the event is set.

        Raises:
            ValueError: No agent, two of one name, or governed tools without a coordinator's credential.
        """
        self._agents = {agent.name: agent for agent in agents}
        if not self._agents or len(self._agents) != len(agents):
            raise ValueError("A worker runs one agent at least, each of a name of its own.")
        self._client = client
        self._report = report or _unheard
        self._pause = pause
        self._stopped = threading.Event()
        self._owned = ExitStack()
        self._graphs: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Open what the agents own, and declare them.

        Raises:
            ContinuityError: The server was not reached, or refuses.
            ValueError: See `define_agent`.
        """
        with ExitStack() as opening:
            needed = any(agent.needs_coordinator for agent in self._agents.values())
            coordinator = opening.enter_context(self._client.coordinator()) if needed else None
            for agent in self._agents.values():
                self._graphs[agent.name] = opening.enter_context(agent.opened(coordinator))
            self._client.declare(agent.declaration() for agent in self._agents.values())
            self._owned = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._graphs.clear()
        self._owned.close()

    def stop(self) -> None:
        """Claim nothing more; the run in hand goes on to its end. From whatever thread, or a signal."""
        self._stopped.set()

    def run(self, *, ready: Callable[[], object] = bool) -> None:
        """Run until `stop`.

        Args:
            ready: Called once the agents are declared: threads may be created from then on.

        Raises:
            ContinuityError: The credential is not, or not any more, one for these agents.
            ValueError: See `define_agent`.
        """
        with self:
            ready()
            failures = 0
            while not self._stopped.is_set():
                try:
                    is_idle = not self.run_one()
                    failures = 0
                except FINAL:
                    raise
                except ContinuityError as error:
                    self._report(error.message)
                    failures, is_idle = failures + 1, True
                if is_idle:
                    longest_s = min(IDLE_S * 2 ** min(failures, 10), LONGEST_WAIT_S)
                    spread_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
                    self._pause(self._stopped, spread_s)

    def run_one(self) -> bool:
        """Claim one run and bring it to its end; return False where none waits. Only inside the context.

        Raises:
            ContinuityError: No run was claimed.
        """
        trace = self._client.trace
        trace("claim.before")
        claimed = self._client.claim(self._agents)
        if claimed is None:
            return False
        trace("claim.after")
        self._work(claimed)
        return True

    def _work(self, claimed: Claimed) -> None:
        agent = self._agents[claimed.run["agent"]]
        holding = Holding(self._client, claimed)
        holding.start()
        try:
            segment = Segment(agent, self._graphs[agent.name], holding, self._client)
            end = self._driven(segment)
            if end is not None:
                segment.end(end)
        except ClaimLostError as error:
            self._report(f"{claimed.run_id}: {error}")
        except ContinuityError as error:
            # It stays claimed until the claim runs out, and is then shown as interrupted.
            self._report(f"{claimed.run_id}: {error.message}")
        finally:
            holding.close()

    def _driven(self, segment: Segment) -> End | None:
        """Drive the graph; return how the run ends, None where nothing may be said."""
        token, named = RUN.set(segment), RUN_ID.set(segment.claimed.run_id)
        try:
            return self._drive(segment)
        except Exception as error:  # noqa: BLE001 - whatever a graph raises ends its run and not the worker
            self._report(f"{segment.claimed.run_id}: {''.join(traceback.format_exception(error))}")
            return segment.broken(error)
        finally:
            RUN_ID.reset(named)
            RUN.reset(token)

    def _drive(self, segment: Segment) -> End:
        graph, config = segment.graph, segment.config
        state, found = _stored(segment)
        if not segment.holding.is_stopping:
            given = segment.given(state, found)
            events = graph.stream(given, config, stream_mode=MODES, subgraphs=True, durability="sync")
            with closing(events):
                for event in events:
                    if not segment.heard(*event):
                        break
        return segment.came_to(*_stored(segment))


def _stored(segment: Segment) -> tuple[Any, list[tuple[Waiting, int]]]:
    """Return what is stored of a thread, and its questions with their ordinals."""
    state = segment.graph.get_state(segment.config, subgraphs=True)
    saver = segment.graph.checkpointer
    return state, numbered((waiting, saver.get_tuple(waiting.config)) for waiting in waiting_in(state))


def _unheard(_text: str) -> None:
    """Nobody listens."""
