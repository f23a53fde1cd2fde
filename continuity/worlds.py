"""How a run reaches the world, by its client and its tools: at once, or without holding up an event loop.

Rules:

* A run (`continuity.running`) is written once, as coroutines that wait for nothing but a `World`.
  `Direct` does everything at once in the caller's thread, so that such a run ends at its first step;
  `continuity.async_client` has the world that waits.
* What must not be lost is not given up when a run is interrupted: the reply to begin may hold a lease
  token, and an outcome that is under way has a receipt in hand. The interrupt is returned beside the
  value, and goes on its way when the attempt has been reported.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, ParamSpec, Protocol, Self, TypeVar

from continuity.delivery import Patience
from continuity.errors import ContinuityError

T = TypeVar("T")
P = ParamSpec("P")


class Calls(Protocol):
    """What a run asks of its client; each call blocks until it is answered."""

    def create_workflow(
        self, workflow_key: str, operations: list[Mapping[str, Any]], *, activate: bool, begin: Mapping[str, str]
    ) -> dict[str, Any]:
        """Create a workflow and begin its operation, once."""

    def begin(self, workflow_id: str, name: str, *, run_id: str, attempt_id: str) -> dict[str, Any]:
        """Ask for an attempt, once."""

    def send_outcome(
        self, workflow_id: str, name: str, *, run_id: str, attempt_id: str, lease_token: str, receipt: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Send a receipt, once."""

    def get_workflow(self, workflow_id: str, *, reply_timeout_s: float | None = None) -> dict[str, Any]:
        """Read the workflow's view, within so many seconds if given."""

    def page(self, workflow_id: str) -> str:
        """Say where people see the workflow."""


class NotCalledError(ContinuityError):
    """A callback was not called and will not be."""

    code = "not_called"


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a call.

    Attributes:
        value: What was returned.
        error: What was raised, None for nothing.
        interrupt: What wanted to end the run meanwhile, None for nothing.
    """

    value: Any = field(default=None, repr=False)
    error: BaseException | None = None
    interrupt: BaseException | None = None

    @classmethod
    def of(cls, function: Callable[[], Any]) -> Self:
        """Call `function` and keep what came of it, whatever it is."""
        try:
            return cls(value=function())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asks for the result
            return cls(error=error)

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class World(Protocol):
    """What a run waits for. An interrupt is what ends a task from outside, such as a cancellation.

    Attributes:
        can_await: Whether callbacks may be coroutine functions.
    """

    can_await: ClassVar[bool]

    async def ask(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something of which nothing is lost when an interrupt comes first."""

    async def settle(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[T, BaseException | None]:
        """Do something to its end; return its value and the interrupt that came meanwhile.

        If `function` raises after an interrupt came, the interrupt is raised from what it raised.
        """

    async def deliver(self, send: Callable[[Patience], T], patience: Patience) -> tuple[T, BaseException | None]:
        """As `settle`, with a patience that an interrupt shortens to one more try."""

    async def call(self, check: Callable[[], None], callback: Callable[..., Any], /, *args: Any) -> Ended:
        """Call `check` and, right after it, a callback; say what came of them.

        The error is a `NotCalledError` where the callback was not called: `check` raised it, or an
        interrupt came first. It may be raised as well as kept, and so may what the callback raised.
        """


class Direct:
    """The world of a caller who waits: everything happens at once, and whatever interrupts it is raised."""

    can_await: ClassVar[bool] = False

    async def ask(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """See `World.ask`."""
        return function(*args, **kwargs)

    async def settle(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> tuple[T, None]:
        """See `World.settle`."""
        return function(*args, **kwargs), None

    async def deliver(self, send: Callable[[Patience], T], patience: Patience) -> tuple[T, None]:
        """See `World.deliver`."""
        return send(patience), None

    async def call(self, check: Callable[[], None], callback: Callable[..., Any], /, *args: Any) -> Ended:
        """See `World.call`."""
        check()
        return Ended(callback(*args))


def finished(run: Coroutine[Any, Any, T]) -> T:
    """Return what a run in the `Direct` world returns, or raise what it raises.

    Raises:
        RuntimeError: The run waited for something, which it cannot in that world.
    """
    try:
        run.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    run.close()
    raise RuntimeError("A run that must not wait has waited.")
