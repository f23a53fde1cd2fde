"""The SDK's front door: a host's client, its tools, and what it may catch.

Example::

    client = ContinuityClient(atmem_url, worker_token)
    tools = {"upload": Tool(execute=upload, query=find_upload)}
    result = client.run_operation(workflow_id, "upload", tools)

The server decides whether the effect is performed, asked for, reused or stopped; see
`continuity.running` for the rules that the host's side keeps. Programs with an event loop take
`AsyncContinuityClient` from here; it is loaded when it is asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlencode

from continuity import limits
from continuity.callbacks import (
    AsyncCallback,
    AsyncCallbacks,
    AsyncTool,
    Callback,
    Callbacks,
    NotDispatched,
    Refused,
    Tool,
)
from continuity.delivery import RESEND_FOR_S, Patience, deliver
from continuity.errors import KeyNotFoundError, NotReachedError, TransportError
from continuity.running import OperationRun, Seams, ToolUnavailableError, begin_new, identifier, new_id
from continuity.stops import OutcomeNotRecorded, RecoveryBlocked
from continuity.transport import VIEW_BYTES, Adapter, Transport, elapsed_s
from continuity.worlds import Direct, finished
from observations.client import AtFlowsObserver, ContinuityObserver, Observer, Reporting, Watched, record_charge

if TYPE_CHECKING:
    from continuity.async_client import AsyncContinuityClient, alanggraph_node, arecord_charge

__all__ = [
    "AsyncCallback",
    "AsyncCallbacks",
    "AsyncContinuityClient",
    "AsyncTool",
    "AtFlowsObserver",
    "Callback",
    "Callbacks",
    "ContinuityClient",
    "ContinuityObserver",
    "NotDispatched",
    "OutcomeNotRecorded",
    "RecoveryBlocked",
    "Refused",
    "Tool",
    "ToolUnavailableError",
    "alanggraph_node",
    "arecord_charge",
    "langgraph_node",
    "record_charge",
]

_OF_LOOPS: Final = frozenset({"AsyncContinuityClient", "alanggraph_node", "arecord_charge"})
_ROOT: Final = "/v1/continuity"
_PAGE: Final = "/resume-work"
_DIRECT: Final = Direct()
_LOST_GRANT: Final = (
    f"An attempt may have been granted; nothing of it was called here. Run again: at most {limits.LEASE_S} s later "
    "its lease is over, and the server says what is safe."
)


def __getattr__(name: str) -> Any:
    if name in _OF_LOOPS:
        return getattr(import_module("continuity.async_client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ContinuityClient(Watched):
    """A host's connection to one server with one credential. Threads may share it.

    Every method raises the error that the server names (`continuity.errors`), or `TransportError` when
    the server was not reached or its answer was lost. Nothing is sent twice but outcomes.

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
        sleep: Callable[[float], None] = time.sleep,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """Check address and token; nothing is sent yet.

        Args:
            url: ``https://…``, or ``http://`` to a loopback address.
            token: An operator, worker or coordinator credential.
            observer: Told what is attempted; it decides nothing.
            ca_file: Authorities to trust instead of the built-in ones.
            adapter: Carries requests in another way than over sockets.
            clock: Seconds that never go back and count suspension.
            sleep: Waits that many seconds.
            trace: Told each point that a run passes, see `continuity.running.Seams`.

        Raises:
            MalformedError: The address or the token is not what it must be.
        """
        self._transport = Transport(url, token, ca_file=ca_file, adapter=adapter)
        self.url = self._transport.url
        self._reporting = Reporting(observer)
        self._seams = Seams(clock=clock, wall=time.time, sleep=sleep, trace=trace or _unheard)

    def __repr__(self) -> str:
        return f"ContinuityClient({self.url!r})"

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes its connections."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections. The client stays usable."""
        self._transport.close()

    def page(self, workflow_id: str) -> str:
        """Return the address of the page where people see a workflow and decide about it."""
        return f"{self.url}{_PAGE}/{identifier('workflow_id', workflow_id)}"

    # --- The paths of wire.md, one request each ---

    def create_workflow(
        self,
        workflow_key: str,
        operations: Iterable[Mapping[str, Any]],
        *,
        activate: bool = False,
        begin: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Create a workflow, or find the one of this key and definition.

        Args:
            workflow_key: 1 to 128 of ``A-Z a-z 0-9 _ -``; unique for ever in its workspace and namespace.
            operations: 1 to 200 definitions, in their order: ``name``, ``tool``, and as needed
                ``arguments``, ``capability``, ``timeout_seconds``, ``retention_seconds``,
                ``absence_final_after_seconds``.
            activate: Start it enabled; acts at creation only.
            begin: ``name``, ``run_id`` and ``attempt_id`` of a first begin in the same transaction.

        Returns:
            The workflow's view; with `begin` also the begin reply as its member ``begin``.

        Raises:
            ConflictError: ``definition_conflict``: the key has another definition; ``workflow_deleted``:
                the key was deleted; or a limit. Nothing has been created; `workflow_id` names what is there.
        """
        body: dict[str, Any] = {"workflow_key": workflow_key, "operations": [dict(item) for item in operations]}
        if activate:
            body["activate"] = True
        if begin is not None:
            body["begin"] = dict(begin)
        with nullcontext() if begin is None else _grant_may_be_lost():
            return self._transport.call("POST", _ROOT, body, most_bytes=VIEW_BYTES)

    def find_workflow(self, workflow_key: str, operations: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the view of the workflow of this key and definition, None when the key is new; create nothing.

        Raises `ConflictError` as `create_workflow`.
        """
        body = {"workflow_key": workflow_key, "operations": [dict(item) for item in operations], "only_known": True}
        try:
            return self._transport.call("POST", _ROOT, body, most_bytes=VIEW_BYTES)
        except KeyNotFoundError:
            return None

    def get_workflow(self, workflow_id: str, *, reply_timeout_s: float | None = None) -> dict[str, Any]:
        """Return the workflow's view with its history, within `reply_timeout_s` seconds if given."""
        path = _path(workflow_id)
        return self._transport.call("GET", path, most_bytes=VIEW_BYTES, reply_timeout_s=reply_timeout_s)

    def list_workflows(self, **filters: str | int) -> dict[str, Any]:
        """Return one page of summaries, newest first, and ``next_cursor``.

        Args:
            **filters: Any of ``limit`` (1 to 200), ``cursor``, ``state``, ``workspace``, ``key``, ``q``.
        """
        query = f"?{urlencode(filters)}" if filters else ""
        return self._transport.call("GET", _ROOT + query, most_bytes=VIEW_BYTES)

    def configure(self, workflow_id: str, *, enabled: bool) -> dict[str, Any]:
        """Enable recovery or pause new attempts, where the credential may; return the view."""
        return self._transport.call(
            "POST", _path(workflow_id, "configure"), {"enabled": enabled}, most_bytes=VIEW_BYTES
        )

    def abandon(self, workflow_id: str, name: str, *, reason: str) -> dict[str, Any]:
        """Stop one operation for good, where the credential may; return the view.

        Raises:
            ConflictError: ``lease_live``: an attempt is under way. Nothing has changed.
        """
        body = {"name": name, "reason": reason}
        return self._transport.call("POST", _path(workflow_id, "abandon"), body, most_bytes=VIEW_BYTES)

    def begin(self, workflow_id: str, name: str, *, run_id: str, attempt_id: str) -> dict[str, Any]:
        """Ask for the right to attempt an operation, once. `run_operation` does this for you.

        Args:
            workflow_id: The workflow.
            name: The operation.
            run_id: The run's identifier, chosen by the host.
            attempt_id: A new identifier for each call.

        Returns:
            The reply of operations.md: ``action``, ``reason`` and what the action brings.

        Raises:
            NotReachedError: Nothing was sent.
            TransportError: Whether an attempt was granted is unknown. Never send the same begin again.
        """
        body = {"name": name, "run_id": run_id, "attempt_id": attempt_id}
        with _grant_may_be_lost():
            return self._transport.call("POST", _path(workflow_id, "begin"), body)

    def send_outcome(
        self, workflow_id: str, name: str, *, run_id: str, attempt_id: str, lease_token: str, receipt: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Send a receipt, once; `outcome` sends it again where that helps."""
        body = {
            "name": name, "run_id": run_id, "attempt_id": attempt_id, "lease_token": lease_token, "receipt": receipt,
        }  # fmt: skip
        return self._transport.call("POST", _path(workflow_id, "outcome"), body)

    def outcome(
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
        """Send a receipt, and the same again while the server is locked, busy or not reached.

        Args:
            workflow_id: The workflow.
            name: The operation.
            run_id: As at begin.
            attempt_id: As at begin.
            lease_token: From the begin reply.
            receipt: JSON object of at most 64 KiB.
            resend_for_s: No try starts later than this many seconds after the first.

        Returns:
            ``{accepted, status, revision, reason?, replayed?}``.

        Raises:
            ContinuityError: What the last try met; the receipt is not known to be recorded.
        """
        return deliver(
            lambda: self.send_outcome(
                workflow_id, name, run_id=run_id, attempt_id=attempt_id, lease_token=lease_token, receipt=receipt
            ),
            Patience(self._seams.clock, self._seams.sleep, resend_for_s),
        )

    def renew(self, workflow_id: str, name: str, *, run_id: str, attempt_id: str, lease_token: str) -> dict[str, Any]:
        """Keep a live lease for another 120 s, at most ten times; return ``{lease_until, revision}``.

        Raises:
            ConflictError: ``lease_expired``, ``stale_lease``, ``renewal_limit_reached`` or
                ``workflow_paused``. The lease is as it was.
        """
        body = {"name": name, "run_id": run_id, "attempt_id": attempt_id, "lease_token": lease_token}
        return self._transport.call("POST", _path(workflow_id, "renew"), body)

    # --- Governed runs ---

    def run_operation(
        self, workflow_id: str, name: str, tools: Mapping[str, Callbacks], *, run_id: str | None = None
    ) -> Any:
        """Bring one operation to its result, if that is safe.

        Args:
            workflow_id: The workflow.
            name: The operation.
            tools: The host's tools by the name that the definition calls them.
            run_id: The run's identifier; a new one when left out.

        Returns:
            The ``result`` of the receipt: saved earlier, found by a query, or of the effect just performed.

        Raises:
            RecoveryBlocked: Stopped safely; its code says why, its page is where a person decides.
            OutcomeNotRecorded: A callback has ended and its receipt, in ``.receipt``, is not recorded.
            NotReachedError: The server was not reached. Nothing was sent.
            TransportError: begin was not answered. No callback was called; an attempt may have been granted.
            ContinuityError: The server refused begin. Nothing has happened.
        """
        return finished(self._run(workflow_id, name, tools, run_id=run_id or new_id("run")).result())

    def run_new_operation(
        self,
        workflow_key: str,
        operation: Mapping[str, Any],
        tools: Mapping[str, Callbacks],
        *,
        run_id: str | None = None,
    ) -> Any:
        """Create a workflow of one operation, enabled, and bring it to its result; for coordinators.

        Creation and the first begin are one request. A workflow that exists is begun as by
        `run_operation`; it is never enabled again.

        Args:
            workflow_key: See `create_workflow`.
            operation: Its one definition.
            tools: See `run_operation`.
            run_id: See `run_operation`.

        Returns:
            See `run_operation`.

        Raises:
            ContinuityError: As `create_workflow` and `run_operation`.
        """
        name, run_id = str(operation.get("name")), run_id or new_id("run")
        made = begin_new(self, workflow_key, operation, run_id=run_id, world=_DIRECT, seams=self._seams)
        workflow_id, begun = finished(made)
        return finished(self._run(workflow_id, name, tools, run_id=run_id).result(begun))

    def _run(self, workflow_id: str, name: str, tools: Mapping[str, Callbacks], *, run_id: str) -> OperationRun:
        return OperationRun(
            self, workflow_id, name,
            tools=tools, run_id=run_id, reporting=self._reporting, world=_DIRECT, seams=self._seams,
        )  # fmt: skip


def langgraph_node(
    client: ContinuityClient, workflow_id: str, name: str, tools: Mapping[str, Callbacks], *, result_key: str
) -> Callable[[Any], dict[str, Any]]:
    """Make a node function for a graph that keeps its own scheduler and checkpoints. Imports no LangGraph.

    Args:
        client: The client.
        workflow_id: The workflow.
        name: The operation.
        tools: See `ContinuityClient.run_operation`.
        result_key: The key of the graph's state that takes the result.

    Returns:
        A function of the state that returns ``{result_key: result}``. It raises what `run_operation`
        raises, so that the graph stops where it is; run the graph again and the node asks again.
    """

    def node(_state: Any) -> dict[str, Any]:
        return {result_key: client.run_operation(workflow_id, name, tools)}

    node.__name__ = node.__qualname__ = name
    return node


@contextmanager
def _grant_may_be_lost() -> Iterator[None]:
    """Say of a lost reply to begin what it may have taken along."""
    try:
        yield
    except NotReachedError:
        raise
    except TransportError as error:
        raise type(error)(f"{error.message} {_LOST_GRANT}") from error


def _path(workflow_id: str, *rest: str) -> str:
    return "/".join((_ROOT, identifier("workflow_id", workflow_id), *rest))


def _unheard(_point: str) -> None:
    """Nobody listens to the points of a run."""
