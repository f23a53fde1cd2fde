"""What a thread worker asks of a server, one method a path, each safe to send again.

Every write but a heartbeat carries a ``request_id`` and proves the claim by generation and secret; the same write again
gets the receipt of the first time. `continuity.threads.holding` keeps a claim alive with these.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from continuity.async_client import AsyncContinuityClient
from continuity.client import ContinuityClient
from continuity.decisions.threads import bounds
from continuity.delivery import Patience, deliver
from continuity.errors import ConflictError, NotFoundError
from continuity.running import new_id
from continuity.thread_requests import AgentDeclaration
from continuity.transport import Adapter, Transport, elapsed_s

_ROOT: Final = "/v1/threads"
_SECRET_BYTES: Final = 32
_WORKS_MOST: Final = 1_000
RUN_ID: ContextVar[str | None] = ContextVar("atmem_run_id", default=None)
"""Id of the run that this context works for; None outside of a worker."""
_LOST: Final = frozenset({"claim_lost", "thread_deleted"})


class ClaimLostError(Exception):
    """The claim is over: somebody else may go on with the run. Nothing more may be written or done for it."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run in hand.

    Attributes:
        run: What the server has handed out with it, as `continuity.services` says it.
        secret: What proves the claim.
        claimed_s: When it was asked for, by the worker's clock.
    """

    run: Mapping[str, Any] = field(repr=False)
    secret: str = field(repr=False)
    claimed_s: float

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return str(self.run["run_id"])

    @property
    def thread_id(self) -> str:
        """Id of its thread, and LangGraph's thread id."""
        return str(self.run["thread_id"])


class _NotingClient(ContinuityClient):
    """A coordinator's client that remembers which workflow each key got, so that a transcript leads to it.

    Its attempts are of the thread's run, so that the work's page leads to the thread.
    """

    works: OrderedDict[str, str]

    def create_workflow(self, workflow_key: str, *args: Any, **options: Any) -> dict[str, Any]:
        view = super().create_workflow(workflow_key, *args, **options)
        self.works[workflow_key] = view["workflow_id"]
        while len(self.works) > _WORKS_MOST:
            self.works.popitem(last=False)
        return view

    def run_operation(self, *args: Any, run_id: str | None = None, **options: Any) -> Any:
        return super().run_operation(*args, run_id=run_id or RUN_ID.get(), **options)

    def run_new_operation(self, *args: Any, run_id: str | None = None, **options: Any) -> Any:
        return super().run_new_operation(*args, run_id=run_id or RUN_ID.get(), **options)


class _AsyncNotingClient(AsyncContinuityClient):
    """The same for event loops: its requests are those of another client."""

    def __init__(self, asking: ContinuityClient, **options: Any) -> None:
        super().__init__(asking.url, **options)
        self._client = asking

    async def run_operation(self, *args: Any, run_id: str | None = None, **options: Any) -> Any:
        return await super().run_operation(*args, run_id=run_id or RUN_ID.get(), **options)

    async def run_new_operation(self, *args: Any, run_id: str | None = None, **options: Any) -> Any:
        return await super().run_new_operation(*args, run_id=run_id or RUN_ID.get(), **options)


class WorkerClient:
    """A connection with a thread worker's credential. Threads may share it."""

    def __init__(
        self, url: str, token: str, *, coordinator_token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None, adapter: Adapter | None = None,
        clock: Callable[[], float] = elapsed_s, sleep: Callable[[float], None] = time.sleep,
        trace: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        """Check address and tokens; nothing is sent yet.

        Args:
            url: As for `ThreadClient`, and so are `ca_file`, `adapter`, `clock` and `sleep`.
            token: A thread worker's credential, which names the agents.
            coordinator_token: A coordinator's credential; agents with governed tools need it.
            ca_file: See `url`.
            adapter: See `url`.
            clock: See `url`.
            sleep: See `url`.
            trace: Told each point that a run passes, from whatever thread.

        Raises:
            MalformedError: The address or a token is not what it must be.
        """
        self._transport = Transport(url, token, ca_file=ca_file, adapter=adapter)
        self.url = self._transport.url
        self.clock = clock
        self.trace = trace or _unheard
        self._sleep = sleep
        self._works: OrderedDict[str, str] = OrderedDict()
        self._coordinator: dict[str, Any] | None = None
        if coordinator_token is not None:
            self._coordinator = {"token": coordinator_token, "ca_file": ca_file, "adapter": adapter}

    def __repr__(self) -> str:
        return f"WorkerClient({self.url!r})"

    def coordinator(self) -> ContinuityClient:
        """Return a client for governed work; whoever asks closes it.

        Raises:
            ValueError: There is no coordinator's credential.
        """
        if self._coordinator is None:
            raise ValueError("Governed tools need coordinator_token: atmem continuity credential --coordinator …")
        made = _NotingClient(self.url, clock=self.clock, sleep=self._sleep, trace=self.trace, **self._coordinator)
        made.works = self._works
        return made

    def work_of(self, workflow_key: str) -> str | None:
        """Return the id of the workflow of a governed call that was begun here; None where none was."""
        return self._works.get(workflow_key)

    def acoordinator(self) -> AsyncContinuityClient:
        """Return the same for event loops."""
        if self._coordinator is None:
            raise ValueError("Governed tools need coordinator_token: atmem continuity credential --coordinator …")
        return _AsyncNotingClient(self.coordinator(), clock=self.clock, trace=self.trace, **self._coordinator)

    def close(self) -> None:
        """Close the idle connections."""
        self._transport.close()

    def declare(self, agents: Iterable[AgentDeclaration]) -> None:
        """Say which agents are run here, and what clients may do and see of them."""
        self._transport.call("POST", f"{_ROOT}/agents", {"agents": [agent.to_json() for agent in agents]})

    def claim(self, agents: Iterable[str]) -> Claimed | None:
        """Claim the run that has waited longest; None when none waits.

        Raises:
            ContinuityError: The server was not reached, or refuses. A claim that was granted and not heard of runs out
                by itself, and its run is then shown as interrupted.
        """
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        body = {"request_id": new_id("clm"), "secret": secret, "agents": list(agents)}
        claimed_s = self.clock()
        reply = deliver(
            lambda: self._transport.call("POST", f"{_ROOT}/claims", body), self._patience(bounds.HEARTBEAT_S)
        )
        return None if reply["run"] is None else Claimed(reply["run"], secret, claimed_s)

    def heartbeat(self, claimed: Claimed, *, steers_read: int) -> dict[str, Any]:
        """Keep the claim; return what there is to know: ``stop`` and ``steers``.

        Raises:
            ClaimLostError: It is over.
            ContinuityError: What went wrong, for another try.
        """
        return self._call(claimed, "heartbeat", _proof(claimed, steers_read))

    def write(
        self, claimed: Claimed, action: str, body: Mapping[str, Any], *, steers_read: int, patience_s: float
    ) -> dict[str, Any]:
        """Append, wait, settle or fail, sent again until it is answered or the claim is over.

        Args:
            claimed: The claim.
            action: The last part of the path.
            body: What is written.
            steers_read: Number of the last steer that was read.
            patience_s: How long the claim lives yet.

        Returns:
            The receipt.

        Raises:
            ClaimLostError: It is over. Nothing was written, or it was written before the claim was lost.
            ContinuityError: The write was refused; nothing was written.
        """
        sent = {**body, **_proof(claimed, steers_read), "request_id": new_id("wrk")}
        return deliver(lambda: self._call(claimed, action, sent), self._patience(patience_s))

    def _call(self, claimed: Claimed, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._transport.call("POST", f"{_ROOT}/runs/{claimed.run_id}/{action}", body)
        except (ConflictError, NotFoundError) as error:
            if isinstance(error, NotFoundError) or error.code in _LOST:
                raise ClaimLostError(error.message) from error
            raise

    def _patience(self, resend_for_s: float) -> Patience:
        return Patience(self.clock, self._sleep, resend_for_s)


def _proof(claimed: Claimed, steers_read: int) -> dict[str, Any]:
    return {"generation": claimed.run["generation"], "secret": claimed.secret, "steers_read": steers_read}


def _unheard(_point: str) -> None:
    """Nobody listens."""
