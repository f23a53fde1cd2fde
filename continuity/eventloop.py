"""The world of an event loop: what blocks runs in threads, and a cancelled task tells before it ends.

Rules:

* A request that asks for a grant is awaited to its end: what it grants is given back as ``not_dispatched``.
* A coroutine callback gets the cancellation itself and its attempt ends ``unknown``, unless it says better:
  a receipt, or `NotDispatched`.
* An ordinary callback cannot be cancelled: it gets `INTERRUPTED_FOR_S` to return its receipt, and after
  that its attempt ends ``unknown``. One that still waits for a thread is never called.
* A receipt that is under way is sent to the end of its try, and once more if that fails.
* Then the cancellation goes on. Where the receipt could not be recorded it is caused by an
  `OutcomeNotRecorded` that holds it.
* Requests and callbacks have threads of their own: a slow tool never keeps a receipt from being delivered.

Source: docs/adr/0012.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError as CancelledInsideError
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

from continuity.delivery import Patience
from continuity.running import INTERRUPTED_FOR_S
from continuity.transport import POOL_CONNECTIONS
from continuity.worlds import Ended, NotCalledError

T = TypeVar("T")
P = ParamSpec("P")

REQUESTS_MOST: Final = POOL_CONNECTIONS
"""Requests of one client at the same time: each has a connection of its own, kept alive."""
CALLBACKS_MOST: Final = 64
"""Ordinary callbacks of one client at the same time; one that waits too long is reported and not called."""


@dataclass(slots=True)
class _Pool:
    """Threads that are started when needed; those of a parent process are not a child's."""

    most: int
    name: str
    executor: ThreadPoolExecutor | None = None
    process: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, function: Callable[[], Any]) -> Future[Ended]:
        """Run `function` in a thread, with the context of the caller; the future itself never fails."""
        context = copy_context()
        with self.lock:
            if self.executor is None or self.process != os.getpid():
                self.executor = ThreadPoolExecutor(self.most, thread_name_prefix=self.name)
                self.process = os.getpid()
            return self.executor.submit(Ended.of, partial(context.run, function))

    def close(self) -> None:
        with self.lock:
            executor, self.executor = self.executor, None
        if executor is not None and self.process == os.getpid():
            executor.shutdown(wait=False)


class EventLoop:
    """A `continuity.worlds.World` in which the event loop goes on meanwhile. Loops may share it."""

    can_await: ClassVar[bool] = True

    def __init__(self, pause: Callable[[threading.Event, float], object]) -> None:
        """Keep `pause`, which waits that many seconds or until the event is set; no thread is started yet."""
        self._pause = pause
        self._requests = _Pool(REQUESTS_MOST, "continuity-request")
        self._callbacks = _Pool(CALLBACKS_MOST, "continuity-callback")

    def close(self) -> None:
        """Let idle threads end; the next call starts new ones."""
        self._requests.close()
        self._callbacks.close()

    async def ask(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """See `World.ask`."""
        future = self._requests.submit(partial(function, *args, **kwargs))
        value: T = (await asyncio.wrap_future(future)).result()
        return value

    async def settle(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[T, BaseException | None]:
        """See `World.settle`."""
        return await self._settled(partial(function, *args, **kwargs), hurry=bool)

    async def deliver(self, send: Callable[[Patience], T], patience: Patience) -> tuple[T, BaseException | None]:
        """See `World.deliver`."""
        hurried = threading.Event()
        patience = replace(patience, sleep=partial(self._pause, hurried), is_hurried=hurried.is_set)
        return await self._settled(partial(send, patience), hurry=hurried.set)

    async def call(self, check: Callable[[], None], callback: Callable[..., Any], /, *args: Any) -> Ended:
        """See `World.call`."""
        if _is_coroutine_function(callback):
            check()
            return await _awaited(callback(*args))

        def call() -> Any:
            check()
            return callback(*args)

        future = self._callbacks.submit(call)
        interrupt = await _wait_for(future, hurry=future.cancel, most_s=INTERRUPTED_FOR_S)
        if future.cancelled():
            return Ended(error=NotCalledError("The run was cancelled before its turn."), interrupt=interrupt)
        if not future.done():
            return Ended(error=interrupt, interrupt=interrupt)
        ended = replace(future.result(), interrupt=interrupt)
        if not inspect.isawaitable(ended.value):
            return ended
        # An ordinary function that made a coroutine, as a lambda around one does.
        if interrupt is not None:
            _discard(ended.value)
            return replace(ended, error=interrupt)
        return await _awaited(ended.value)

    async def _settled(self, function: Callable[[], T], *, hurry: Callable[[], object]) -> tuple[T, Any]:
        future = self._requests.submit(function)
        interrupt = await _wait_for(future, hurry=hurry)
        ended = future.result()
        if interrupt is not None and ended.error is not None:
            raise interrupt from ended.error
        return ended.result(), interrupt


async def _wait_for(
    future: Future[Ended], *, hurry: Callable[[], object], most_s: float | None = None
) -> BaseException | None:
    """Wait for the end of what runs in a thread, through every cancellation; return the first one, None for none.

    Args:
        future: What runs; its end is awaited and not its value.
        hurry: Called once, at the first cancellation.
        most_s: Seconds to wait from then on; None for as long as it takes.
    """
    loop = asyncio.get_running_loop()
    waiting = asyncio.wrap_future(future)
    interrupt: BaseException | None = None
    ends_at_s: float | None = None
    while not waiting.done() and (ends_at_s is None or loop.time() < ends_at_s):
        try:
            await asyncio.wait((waiting,), timeout=None if ends_at_s is None else ends_at_s - loop.time())
        except asyncio.CancelledError as error:
            if interrupt is None:
                interrupt = error
                ends_at_s = None if most_s is None else loop.time() + most_s
                hurry()
    return interrupt


async def _awaited(value: Awaitable[Any]) -> Ended:
    """Await what a callback does in this task, and tell its own cancellations from those of the task."""
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task else 0
    try:
        ended = Ended(await value)
    except asyncio.CancelledError as error:
        if task and task.cancelling() > cancelled_before:
            return Ended(error=error, interrupt=error)
        # Nobody wants the run to end: something that the callback waited for was cancelled.
        return Ended(error=CancelledInsideError(*error.args))
    except BaseException as error:  # noqa: BLE001 - raised again by the run
        ended = Ended(error=error)
    if task and task.cancelling() > cancelled_before:
        return replace(ended, interrupt=asyncio.CancelledError())
    return ended


def _is_coroutine_function(callback: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__)


def _discard(value: Awaitable[Any]) -> None:
    """Drop a coroutine that will not be awaited, without the warning that it was forgotten."""
    if inspect.iscoroutine(value):
        value.close()
