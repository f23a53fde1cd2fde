"""`ThreadWorker` for event loops: graphs that are awaited, with the asynchronous savers. One run at a time.

What a run is given, what is told of it and how it ends is decided by `continuity.threads.segments`, line for line as in
the ordinary worker. A run that takes too long is cancelled where it waits.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Self

from continuity.errors import ContinuityError
from continuity.threads.agents import Agent
from continuity.threads.claims import RUN_ID, Claimed, ClaimLostError, WorkerClient
from continuity.threads.holding import Holding
from continuity.threads.places import Waiting, numbered, waiting_in
from continuity.threads.segments import MODES, End, Segment
from continuity.threads.words import RUN
from continuity.threads.worker import FINAL, IDLE_S, LONGEST_WAIT_S, Report


class AsyncThreadWorker:
    """Runs agents until it is stopped. Use it as a context, or await `run`."""

    def __init__(self, client: WorkerClient, agents: Sequence[Agent], *, report: Report | None = None) -> None:
        """Keep what is run; nothing is opened or sent yet. See `ThreadWorker` for the arguments."""
        self._agents = {agent.name: agent for agent in agents}
        if not self._agents or len(self._agents) != len(agents):
            raise ValueError("A worker runs one agent at least, each of a name of its own.")
        self._client = client
        self._report = report or _unheard
        self._stopped = asyncio.Event()
        self._owned = AsyncExitStack()
        self._graphs: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        """Open what the agents own, and declare them; raises as `ThreadWorker`."""
        async with AsyncExitStack() as opening:
            needed = any(agent.needs_coordinator for agent in self._agents.values())
            coordinator = await opening.enter_async_context(self._client.acoordinator()) if needed else None
            for agent in self._agents.values():
                self._graphs[agent.name] = await opening.enter_async_context(agent.aopened(coordinator))
            declared = [agent.declaration() for agent in self._agents.values()]
            await asyncio.to_thread(self._client.declare, declared)
            self._owned = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._graphs.clear()
        await self._owned.aclose()

    def stop(self) -> None:
        """Claim nothing more; the run in hand goes on to its end. From the loop."""
        self._stopped.set()

    async def run(self, *, ready: Callable[[], object] = bool) -> None:
        """Run until `stop`; takes and raises what `ThreadWorker.run` does."""
        async with self:
            ready()
            failures = 0
            while not self._stopped.is_set():
                try:
                    is_idle = not await self.run_one()
                    failures = 0
                except FINAL:
                    raise
                except ContinuityError as error:
                    self._report(error.message)
                    failures, is_idle = failures + 1, True
                if is_idle:
                    await self._rest(failures)

    async def run_one(self) -> bool:
        """Claim one run and bring it to its end; return False where none waits. Only inside the context.

        Raises:
            ContinuityError: No run was claimed.
        """
        trace = self._client.trace
        trace("claim.before")
        claimed = await asyncio.to_thread(self._client.claim, list(self._agents))
        if claimed is None:
            return False
        trace("claim.after")
        await self._work(claimed)
        return True

    async def _rest(self, failures: int) -> None:
        longest_s = min(IDLE_S * 2 ** min(failures, 10), LONGEST_WAIT_S)
        wait_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
        try:
            await asyncio.wait_for(self._stopped.wait(), wait_s)
        except TimeoutError:
            return

    async def _work(self, claimed: Claimed) -> None:
        agent = self._agents[claimed.run["agent"]]
        holding = Holding(self._client, claimed)
        holding.start()
        try:
            segment = Segment(agent, self._graphs[agent.name], holding, self._client)
            end = await self._driven(segment)
            if end is not None:
                await asyncio.to_thread(segment.end, end)
        except ClaimLostError as error:
            self._report(f"{claimed.run_id}: {error}")
        except ContinuityError as error:
            # It stays claimed until the claim runs out, and is then shown as interrupted.
            self._report(f"{claimed.run_id}: {error.message}")
        finally:
            await asyncio.shield(asyncio.to_thread(holding.close))

    async def _driven(self, segment: Segment) -> End | None:
        token, named = RUN.set(segment), RUN_ID.set(segment.claimed.run_id)
        try:
            async with asyncio.timeout(segment.agent.limits.timeout_seconds):
                return await self._drive(segment)
        except Exception as error:  # noqa: BLE001 - whatever a graph raises ends its run and not the worker
            self._report(f"{segment.claimed.run_id}: {''.join(traceback.format_exception(error))}")
            return segment.broken(error)
        finally:
            RUN_ID.reset(named)
            RUN.reset(token)

    async def _drive(self, segment: Segment) -> End:
        graph, config = segment.graph, segment.config
        state, found = await _stored(segment)
        if not segment.holding.is_stopping:
            given = await asyncio.to_thread(segment.given, state, found)
            events = graph.astream(given, config, stream_mode=MODES, subgraphs=True, durability="sync")
            async with aclosing(events):
                async for event in events:
                    # In a thread: where more is said than can be written, it waits.
                    if not await asyncio.to_thread(segment.heard, *event):
                        break
        return await asyncio.to_thread(segment.came_to, *await _stored(segment))


async def _stored(segment: Segment) -> tuple[Any, list[tuple[Waiting, int]]]:
    """Return what is stored of a thread, and its questions with their ordinals."""
    state = await segment.graph.aget_state(segment.config, subgraphs=True)
    saver = segment.graph.checkpointer
    found = [(each, await saver.aget_tuple(each.config)) for each in waiting_in(state)]
    return state, numbered(found)


def _unheard(_text: str) -> None:
    """Nobody listens."""
