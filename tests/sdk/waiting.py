"""The async client with the face of the other one, so that one test can be run with each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

from continuity.client import AsyncContinuityClient, AsyncTool, ContinuityClient


class Waiting:
    """Runs each method in a loop of its own, with the callbacks as they are."""

    def __init__(self, url: str, token: str, *, sleep: Callable[[float], None], **options: Any) -> None:
        self.client = AsyncContinuityClient(url, token, pause=lambda _event, seconds: sleep(seconds), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run(self.client.aclose())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            return await method(*self._adapted(arguments), **options)

        return lambda *arguments, **options: asyncio.run(call(*arguments, **options))

    def _adapted(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return arguments


class WaitingInLoop(Waiting):
    """As above, and every callback of a tool is a coroutine function."""

    def _adapted(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        *others, last = arguments or (None,)
        if not (isinstance(last, Mapping) and all(hasattr(tool, "execute") for tool in last.values())):
            return arguments
        return (*others, {name: AsyncTool(_awaited(tool.execute), _awaited(tool.query)) for name, tool in last.items()})


def _awaited(callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if callback is None:
        return None

    async def awaited(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return callback(*arguments)

    return awaited


CLIENTS = [ContinuityClient, Waiting, WaitingInLoop]
