"""The client for programs with an event loop: the same requests, the same runs, nothing blocked.

Example::

    async with AsyncContinuityClient(atmem_url, worker_token) as client:
        tools = {"upload": AsyncTool(execute=upload, query=find_upload)}
        result = await client.run_operation(workflow_id, "upload", tools)

Rules:

* Requests are those of `ContinuityClient`, each in a thread; a run is that of `continuity.running`, line
  for line. What is safe is decided there and at the server, never here.
* Callbacks may be coroutine functions, which run in the task that runs the operation, or ordinary
  functions, which run in threads of their own: a slow tool never keeps a receipt from being delivered.
* A cancelled task tells before it ends; `continuity.eventloop` says how.

Source: docs/adr/0012.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

from continuity.callbacks import AsyncCallbacks
from continuity.client import ContinuityClient
from continuity.delivery import RESEND_FOR_S, Patience, deliver
from continuity.eventloop import EventLoop
from continuity.running import OperationRun, Seams, begin_new, new_id
from continuity.transport import Adapter, elapsed_s
from observations.client import Observer, Reporting, Watched, record_charge


class AsyncContinuityClient(Watched):
    """`ContinuityClient` for event loops. Tasks, threads and loops may share it.

    Every method does and raises what the one of the same name does. A request whose task is cancelled
    may have taken effect, as one whose reply was lost; `run_operation` and `outcome` do better.

    Attributes:
        url: Address of the server.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        observer: Observer | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        adapter: Adapter | None = None,
        clock: Callable[[], float] = elapsed_s,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """Check address and token; nothing is sent yet.

        Args:
            url: As for `ContinuityClient`, and so are `token`, `observer`, `ca_file` and `adapter`.
            token: See `url`.
            observer: See `url`.
            ca_file: See `url`.
            adapter: See `url`.
            clock: Seconds that never go back and count suspension.
            pause: Waits that many seconds or until the event is set.
            trace: Told each point that a run passes, from whatever thread; see `continuity.running.Seams`.

        Raises:
            MalformedError: The address or the token is not what it must be.
        """
        self._client = ContinuityClient(url, token, ca_file=ca_file, adapter=adapter)
        self.url = self._client.url
        self._reporting = Reporting(observer)
        self._world = EventLoop(pause)
        self._seams = Seams(clock=clock, wall=time.time, sleep=time.sleep, trace=trace or _unheard)

    def __repr__(self) -> str:
        return f"AsyncContinuityClient({self.url!r})"

    async def __aenter__(self) -> Self:
        """Return itself; leaving the block closes its connections and threads."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections and let idle threads end. The client stays usable."""
        self._world.close()
        self._client.close()

    def page(self, workflow_id: str) -> str:
        """Return the address of the page where people see a workflow and decide about it."""
        return self._client.page(workflow_id)

    # --- The paths of wire.md, one request each ---

    async def create_workflow(
        self,
        workflow_key: str,
        operations: Iterable[Mapping[str, Any]],
        *,
        activate: bool = False,
        begin: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """See `ContinuityClient.create_workflow`."""
        return await self._world.ask(
            self._client.create_workflow, workflow_key, operations, activate=activate, begin=begin
        )

    async def find_workflow(self, workflow_key: str, operations: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
        """See `ContinuityClient.find_workflow`."""
        return await self._world.ask(self._client.find_workflow, workflow_key, operations)

    async def get_workflow(self, workflow_id: str, *, reply_timeout_s: float | None = None) -> dict[str, Any]:
        """See `ContinuityClient.get_workflow`."""
        return await self._world.ask(self._client.get_workflow, workflow_id, reply_timeout_s=reply_timeout_s)

    async def list_workflows(self, **filters: str | int) -> dict[str, Any]:
        """See `ContinuityClient.list_workflows`."""
        return await self._world.ask(self._client.list_workflows, **filters)

    async def configure(self, workflow_id: str, *, enabled: bool) -> dict[str, Any]:
        """See `ContinuityClient.configure`."""
        return await self._world.ask(self._client.configure, workflow_id, enabled=enabled)

    async def abandon(self, workflow_id: str, name: str, *, reason: str) -> dict[str, Any]:
        """See `ContinuityClient.abandon`."""
        return await self._world.ask(self._client.abandon, workflow_id, name, reason=reason)

    async def begin(self, workflow_id: str, name: str, *, run_id: str, attempt_id: str) -> dict[str, Any]:
        """See `ContinuityClient.begin`."""
        return await self._world.ask(self._client.begin, workflow_id, name, run_id=run_id, attempt_id=attempt_id)

    async def send_outcome(
        self, workflow_id: str, name: str, *, run_id: str, attempt_id: str, lease_token: str, receipt: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `ContinuityClient.send_outcome`."""
        return await self._world.ask(
            self._client.send_outcome, workflow_id, name,
            run_id=run_id, attempt_id=attempt_id, lease_token=lease_token, receipt=receipt,
        )  # fmt: skip

    async def outcome(
        self,
        workflow_id: str,
        name: str,
        *,
        run_id: str,
        attempt_id: str,
        lease_token: str,
        receipt: Mapping[str, Any],
        resend_for_s: float = RESEND_FOR_S,
    ) -> dict[str, Any]:
        """See `ContinuityClient.outcome`; cancelled, it ends the try that is under way and one more at most."""
        send = partial(
            self._client.send_outcome, workflow_id, name,
            run_id=run_id, attempt_id=attempt_id, lease_token=lease_token, receipt=receipt,
        )  # fmt: skip
        patience = Patience(self._seams.clock, self._seams.sleep, resend_for_s)
        reply, interrupt = await self._world.deliver(partial(deliver, send), patience)
        if interrupt is not None:
            raise interrupt
        return reply

    async def renew(
        self, workflow_id: str, name: str, *, run_id: str, attempt_id: str, lease_token: str
    ) -> dict[str, Any]:
        """See `ContinuityClient.renew`."""
        return await self._world.ask(
            self._client.renew, workflow_id, name, run_id=run_id, attempt_id=attempt_id, lease_token=lease_token
        )

    # --- Governed runs ---

    async def run_operation(
        self, workflow_id: str, name: str, tools: Mapping[str, AsyncCallbacks], *, run_id: str | None = None
    ) -> Any:
        """See `ContinuityClient.run_operation`; the head of this module says what a cancellation does.

        Raises:
            CancelledError: The task was cancelled. What was granted has been reported, or the error's
                ``__cause__`` says what kept it from being recorded.
            ContinuityError: As there.
        """
        return await self._run(workflow_id, name, tools, run_id=run_id or new_id("run")).result()

    async def run_new_operation(
        self,
        workflow_key: str,
        operation: Mapping[str, Any],
        tools: Mapping[str, AsyncCallbacks],
        *,
        run_id: str | None = None,
    ) -> Any:
        """See `ContinuityClient.run_new_operation`, and `run_operation` for a cancellation."""
        name, run_id = str(operation.get("name")), run_id or new_id("run")
        workflow_id, begun = await begin_new(
            self._client, workflow_key, operation, run_id=run_id, world=self._world, seams=self._seams
        )
        return await self._run(workflow_id, name, tools, run_id=run_id).result(begun)

    def _run(self, workflow_id: str, name: str, tools: Mapping[str, AsyncCallbacks], *, run_id: str) -> OperationRun:
        return OperationRun(
            self._client, workflow_id, name,
            tools=tools, run_id=run_id, reporting=self._reporting, world=self._world, seams=self._seams,
        )  # fmt: skip


def alanggraph_node(
    client: AsyncContinuityClient,
    workflow_id: str,
    name: str,
    tools: Mapping[str, AsyncCallbacks],
    *,
    result_key: str,
) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """Make an async node function; in every other way that of `continuity.client.langgraph_node`.

    Args:
        client: The client.
        workflow_id: The workflow.
        name: The operation.
        tools: See `AsyncContinuityClient.run_operation`.
        result_key: The key of the graph's state that takes the result.

    Returns:
        A coroutine function of the state that returns ``{result_key: result}`` and raises what
        `run_operation` raises.
    """

    async def node(_state: Any) -> dict[str, Any]:
        return {result_key: await client.run_operation(workflow_id, name, tools)}

    node.__name__ = node.__qualname__ = name
    return node


async def arecord_charge(charge_id: str, charge_source: str, **optional: Any) -> bool:
    """Report what a provider charged without holding up the loop; see `observations.client.record_charge`."""
    return await asyncio.to_thread(record_charge, charge_id=charge_id, charge_source=charge_source, **optional)


def _unheard(_point: str) -> None:
    """Nobody listens to the points of a run."""
