"""`ThreadClient` for programs with an event loop: the same requests, each in a thread; nothing is blocked."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Self

from continuity.eventloop import EventLoop
from continuity.threads.client import RESEND_FOR_S, Agents, ThreadClient
from continuity.threads.following import Following, Update
from continuity.transport import Adapter, elapsed_s


class AsyncThreadClient:
    """`ThreadClient` for event loops. Tasks may share it.

    Every method does and raises what the one of the same name does. A write whose task is cancelled may have been
    taken: `receipt` tells.

    Attributes:
        url: Address of the server.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        subject: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        adapter: Adapter | None = None,
        resend_for_s: float = RESEND_FOR_S,
        clock: Callable[[], float] = elapsed_s,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        """Check address and token; nothing is sent yet. The arguments are those of `ThreadClient`."""
        self._client = ThreadClient(
            url, token, subject=subject, ca_file=ca_file, adapter=adapter, resend_for_s=resend_for_s, clock=clock,
            sleep=time.sleep, pause=pause,
        )  # fmt: skip
        self.url = self._client.url
        self._world = EventLoop(pause)

    def __repr__(self) -> str:
        return f"AsyncThreadClient({self.url!r})"

    async def __aenter__(self) -> Self:
        """Return itself; leaving the block closes its connections and threads."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections and let idle threads end. The client stays usable."""
        self._world.close()
        self._client.close()

    async def agents(self) -> Agents:
        """See `ThreadClient.agents`."""
        return await self._world.ask(self._client.agents)

    async def list(self, **filters: str | int) -> dict[str, Any]:
        """See `ThreadClient.list`."""
        return await self._world.ask(self._client.list, **filters)

    async def snapshot(self, thread_id: str) -> dict[str, Any]:
        """See `ThreadClient.snapshot`."""
        return await self._world.ask(self._client.snapshot, thread_id)

    async def journal(self, thread_id: str, after: str, *, limit: int = 200, wait_s: int = 0) -> dict[str, Any]:
        """See `ThreadClient.journal`."""
        return await self._world.ask(self._client.journal, thread_id, after, limit=limit, wait_s=wait_s)

    async def history(self, thread_id: str, cursor: str) -> dict[str, Any]:
        """See `ThreadClient.history`."""
        return await self._world.ask(self._client.history, thread_id, cursor)

    async def receipt(self, thread_id: str, request_id: str) -> dict[str, Any]:
        """See `ThreadClient.receipt`."""
        return await self._world.ask(self._client.receipt, thread_id, request_id)

    async def wait(self, thread_id: str, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """See `ThreadClient.wait`."""
        return await self._world.ask(self._client.wait, thread_id, timeout_s=timeout_s)

    async def follow(self, thread_id: str) -> AsyncIterator[Update]:
        """Follow a thread as `ThreadClient.follow` does. Close the iterator, or leave its task, to end it."""
        following = self._client.follow(thread_id)
        try:
            while (update := await self._world.ask(_next, following)) is not None:
                yield update
        finally:
            # A thread may wait in it yet: it ends with the next word of the stream, and closes it then.
            following.stop()

    async def create(self, name: str, agent: str, *, request_id: str | None = None) -> dict[str, Any]:
        """See `ThreadClient.create`."""
        return await self._world.ask(self._client.create, name, agent, request_id=request_id)

    async def message(
        self, thread_id: str, content: str | Mapping[str, Any], *, request_id: str | None = None
    ) -> dict[str, Any]:
        """See `ThreadClient.message`."""
        return await self._world.ask(self._client.message, thread_id, content, request_id=request_id)

    async def steer(
        self, thread_id: str, content: str | Mapping[str, Any], *, request_id: str | None = None
    ) -> dict[str, Any]:
        """See `ThreadClient.steer`."""
        return await self._world.ask(self._client.steer, thread_id, content, request_id=request_id)

    async def follow_up(
        self, thread_id: str, content: str | Mapping[str, Any], *, request_id: str | None = None
    ) -> dict[str, Any]:
        """See `ThreadClient.follow_up`."""
        return await self._world.ask(self._client.follow_up, thread_id, content, request_id=request_id)

    async def stop(
        self, thread_id: str, *, revision: int | None = None, request_id: str | None = None
    ) -> dict[str, Any]:
        """See `ThreadClient.stop`."""
        return await self._world.ask(self._client.stop, thread_id, revision=revision, request_id=request_id)

    async def resume(
        self, thread_id: str, *, revision: int | None = None, request_id: str | None = None
    ) -> dict[str, Any]:
        """See `ThreadClient.resume`."""
        return await self._world.ask(self._client.resume, thread_id, revision=revision, request_id=request_id)

    async def reply(
        self, thread_id: str, waiting_id: str, reply: Any, *, revision: int, request_id: str | None = None
    ) -> dict[str, Any]:
        """See `ThreadClient.reply`."""
        return await self._world.ask(
            self._client.reply, thread_id, waiting_id, reply, revision=revision, request_id=request_id
        )

    async def delete(self, thread_id: str) -> dict[str, Any]:
        """See `ThreadClient.delete`."""
        return await self._world.ask(self._client.delete, thread_id)


def _next(following: Following) -> Update | None:
    """Return what comes next, None at the end: no StopIteration may leave a future."""
    return next(following, None)
