"""What an agent is: how it is built, what it takes and gives, how far it may go, and what of it clients see.

Example::

    agent = define_agent(
        name="order_support", input=Question, output=Answer, model=model, instructions="Answer order questions.",
        tools=[lookup_order, GovernedTool(cancel, "Cancel an order.", approval=True)],
        checkpointer=lambda: SqliteSaver.from_conn_string("threads.db"),
        limits=Limits(max_steps=4, max_tool_calls=4, timeout_seconds=60),
        client=ClientPolicy(public=True, state=("todos",)), chat=Chat("message", "answer"),
        controls=("steer", "follow-up", "stop", "approve"),
    )

Resources that are passed in are borrowed and never closed. A function is a factory: it is called once by the worker
that runs the agent, and what it made is closed once, when that worker ends.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from pydantic import BaseModel, ValidationError

from continuity.async_client import AsyncContinuityClient
from continuity.client import ContinuityClient
from continuity.decisions.threads.states import Control
from continuity.integrations.checks import Untested, saver_kind
from continuity.thread_requests import AgentDeclaration
from continuity.threads.governed import GovernedTool
from continuity.threads.places import dangling_calls
from continuity.threads.telling import INPUT_MARK, as_json, messages_in
from continuity.threads.versions import admit_versions

Profile = Literal["agents", "graph"]
_FAULT_CHARS: Final = 500


class InputError(ValueError):
    """What was said is not what the agent takes."""


class OutputError(ValueError):
    """What the agent came to is not what it promises."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a conversation goes on one input.

    Attributes:
        max_steps: Model steps since the last input; steps of the graph, for a graph that was compiled elsewhere.
        max_tool_calls: Tool calls since the last input.
        timeout_seconds: Seconds that one run may take.
    """

    max_steps: int = 25
    max_tool_calls: int = 50
    timeout_seconds: float = 300.0

    def __post_init__(self) -> None:
        """Refuse limits that nothing can keep."""
        if min(self.max_steps, self.max_tool_calls + 1) < 1 or self.timeout_seconds <= 0:
            raise ValueError("max_steps must be at least 1, max_tool_calls at least 0, timeout_seconds above 0.")


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """Who may talk to an agent and what they see.

    Attributes:
        public: Any signed-in person and any application of the workspace. Never nobody.
        authorize: Who may otherwise: usernames, and principal_ids of applications.
        state: Keys of the state that clients see.
        tools: Tools whose arguments and results clients see; of the others they see name and outcome.
    """

    public: bool = False
    authorize: Sequence[str] = ()
    state: Sequence[str] = ()
    tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chat:
    """Which member of the input is what a person types, and which of the output is the answer."""

    input: str = "message"
    output: str = "answer"


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as a worker takes it; made by `define_agent`.

    Attributes:
        name: Identifier; threads name it.
        input: pydantic model of what it takes, None for any text.
        output: pydantic model of what it gives, None for text.
        limits: How far it may go.
        client: Who may talk to it and what they see.
        chat: Where text stands in input and output.
        controls: What clients may do while it runs.
        profile: ``agents``: the state has messages; ``graph``: the input is the state's first update.
        needs_coordinator: It has governed tools.
        libraries: What runs it; their versions are checked before anything is opened.
        untested: What the application has said about versions that no test has run on.
        resources: Model, checkpointer and store: each borrowed, a factory, or None.
        compile: Makes the graph of those and of a coordinator's client, None where there is none.
    """

    name: str
    input: type[BaseModel] | None
    output: type[BaseModel] | None
    limits: Limits
    client: ClientPolicy
    chat: Chat
    controls: frozenset[Control]
    profile: Profile
    needs_coordinator: bool
    libraries: Sequence[str]
    untested: Untested
    resources: Mapping[str, Any] = field(repr=False)
    compile: Callable[[Mapping[str, Any], Any], Any] = field(repr=False)

    def declaration(self) -> AgentDeclaration:
        """Return what the server is told of it."""
        return AgentDeclaration(
            self.name, self.controls, tuple(self.client.state), self.client.public, tuple(self.client.authorize)
        )

    @contextmanager
    def opened(self, client: ContinuityClient | None) -> Iterator[Any]:
        """Build the graph with its resources for as long as the block lasts.

        Args:
            client: For governed tools; None where there are none.

        Raises:
            ValueError: The checkpointer would not keep what it was told, or a library's version is not tested.
        """
        admit_versions(self.libraries, untested=self.untested)
        with ExitStack() as owned:
            made = {name: _made(given, owned) for name, given in self.resources.items()}
            graph = self.compile(made, client)
            check_saver(graph.checkpointer, is_async=False)
            yield graph

    @asynccontextmanager
    async def aopened(self, client: AsyncContinuityClient | None) -> AsyncIterator[Any]:
        """Do as `opened` for an event loop; factories may also make asynchronous contexts."""
        admit_versions(self.libraries, untested=self.untested)
        async with AsyncExitStack() as owned:
            made = {name: await _amade(given, owned) for name, given in self.resources.items()}
            graph = self.compile(made, client)
            check_saver(graph.checkpointer, is_async=True)
            yield graph

    # --- Both ends ---

    def first_state(self, content: Any, *, input_id: str, held: Mapping[str, Any]) -> dict[str, Any]:
        """Return the update of the state that a run begins with.

        Args:
            content: What a client said: text, or an object.
            input_id: Its id; the message has the same, so that it is there once however often it is given.
            held: The values of the state so far.

        Raises:
            InputError: It is not what the agent takes. The message names what is wrong, and no value.
        """
        given = self._checked_input(content)
        if self.profile == "graph":
            return given if isinstance(given, dict) else {self.chat.input: given}
        text = self._text(given)
        said = HumanMessage(text, id=input_id, additional_kwargs={INPUT_MARK: True})
        left = [
            ToolMessage(
                "It is not known what came of this call: the run was stopped.", tool_call_id=call["id"],
                name=call["name"], status="error", id=f"left-{input_id}-{number}",
            )
            for number, call in enumerate(dangling_calls(held.get("messages", ())))
        ]  # fmt: skip
        return {"messages": [*left, said]}

    def result(self, values: Mapping[str, Any]) -> Any:
        """Return what the run came to, as JSON.

        Raises:
            OutputError: It is not what the agent promises.
        """
        if self.output is None:
            return self._answer(values)
        structured = values.get("structured_response")
        try:
            if structured is not None:
                found = self.output.model_validate(structured, from_attributes=True)
            elif self.profile == "agents":
                found = self.output.model_validate({self.chat.output: self._answer(values)})
            else:
                names = self.output.model_fields.keys() & values.keys()
                found = self.output.model_validate({name: values[name] for name in names})
        except ValidationError as error:
            raise OutputError(f"The answer is not what this agent promises: {_fault(error)}") from error
        return found.model_dump(mode="json")

    def answer_text(self, values: Mapping[str, Any]) -> str | None:
        """Return the answer of a graph without messages, for the transcript; None where messages say it."""
        if messages_in(values):
            return None
        answer = values.get(self.chat.output)
        return None if answer is None else answer if isinstance(answer, str) else str(as_json(answer))

    def _answer(self, values: Mapping[str, Any]) -> Any:
        messages = messages_in(values)
        if not messages:
            return as_json(values.get(self.chat.output))
        last = next((message for message in reversed(messages) if message.type == "ai"), None)
        return "" if last is None else str(last.text)

    def _checked_input(self, content: Any) -> Any:
        if self.input is None:
            return dict(content) if isinstance(content, Mapping) else content
        whole = content if isinstance(content, Mapping) else {self.chat.input: content}
        try:
            return self.input.model_validate(whole).model_dump()
        except ValidationError as error:
            raise InputError(f"What was said is not what this agent takes: {_fault(error)}") from error

    def _text(self, given: Any) -> str:
        """Return what the model reads: the text, and behind it whatever else the input has."""
        if not isinstance(given, dict):
            return str(given)
        rest = {name: value for name, value in given.items() if name != self.chat.input and value is not None}
        text = str(given.get(self.chat.input, ""))
        return f"{text}\n\n{as_json(rest)}".strip() if rest else text


def define_agent(
    *,
    name: str,
    input: type[BaseModel] | None = None,  # noqa: A002 - the word that users write
    output: type[BaseModel] | None = None,
    model: Any = None,
    instructions: str | None = None,
    tools: Sequence[Any] = (),
    middleware: Sequence[Any] = (),
    graph: Any = None,
    checkpointer: Any = None,
    store: Any = None,
    limits: Limits | None = None,
    state_profile: Profile = "agents",
    client: ClientPolicy | None = None,
    chat: Chat | None = None,
    controls: Sequence[str] = (),
    untested_langgraph: Untested = "refuse",
) -> Agent:
    """Define an agent: one of LangChain's with a model and tools, or a graph that was compiled elsewhere.

    Args:
        name: 1 to 128 of ``A-Z a-z 0-9 _ -``; threads and the worker's credential name it.
        input: What it takes; text fills the member that `chat` names.
        output: What it gives; checked before the run settles.
        model: A chat model or its name, or a factory of one.
        instructions: The system prompt; no client ever sees it.
        tools: Tools as LangChain takes them, and `GovernedTool` for those with effects.
        middleware: Middleware of LangChain; it stands behind what governs tools.
        graph: A compiled graph in the place of model, instructions, tools and middleware; or a function of a
            `ContinuityClient` (None without a coordinator's credential) that compiles one.
        checkpointer: SqliteSaver or PostgresSaver on something durable, or a factory of one. A graph may bring its own.
        store: LangGraph's store, or a factory of one.
        limits: How far it may go.
        state_profile: ``agents``: its state has ``messages``. ``graph``: the input is its first update.
        client: Who may talk to it and what they see; nobody but its owners' policy when left out.
        chat: Which members of input and output are text.
        controls: Any of ``steer, follow-up, stop, approve``.
        untested_langgraph: ``"run_without_proof"`` lets a worker run it on versions that no test has run on, with a
            warning; see `continuity.integrations.governed_langgraph_tools`.

    Raises:
        ValueError: Parts that do not go together, or a checkpointer that would not keep what it was told.
    """
    if (graph is None) == (model is None):
        raise ValueError("An agent has a model, or a graph: one of them.")
    if graph is not None and (tools or middleware or instructions):
        raise ValueError("A graph brings its own tools, middleware and instructions.")
    has_saver = checkpointer is not None or getattr(graph, "checkpointer", None) or _is_factory(graph)
    if not has_saver:
        raise ValueError("An agent needs a checkpointer: SqliteSaver on a file, or PostgresSaver.")
    if not _is_factory(checkpointer) and checkpointer is not None:
        check_saver(checkpointer)
    governed = [tool for tool in tools if isinstance(tool, GovernedTool)]
    limits, chat = limits or Limits(), chat or Chat()

    def compiled(made: Mapping[str, Any], coordinator: Any) -> Any:
        if graph is not None:
            return _dressed(graph(coordinator) if _is_factory(graph) else graph, made)
        # Here: LangChain is more than a graph needs.
        from continuity.threads.assembling import assemble  # noqa: PLC0415

        return assemble(
            name=name, instructions=instructions, tools=tools, middleware=middleware, limits=limits,
            client=coordinator, response=_structured(output, chat), untested=untested_langgraph, **made,
        )  # fmt: skip

    return Agent(
        name, input, output, limits, client or ClientPolicy(), chat, frozenset(map(Control, controls)),
        state_profile, bool(governed), ("langgraph",) if model is None else ("langgraph", "langchain"),
        untested_langgraph, {"model": model, "checkpointer": checkpointer, "store": store}, compiled,
    )  # fmt: skip


def _dressed(graph: Any, made: Mapping[str, Any]) -> Any:
    """Give a compiled graph the saver and the store that were named."""
    update = {name: made[name] for name in ("checkpointer", "store") if made[name] is not None}
    return graph.copy(update=update) if update else graph


def check_saver(saver: Any, *, is_async: bool | None = None) -> None:
    """Refuse a saver that is not known to keep what it was told, or that the other kind of worker takes.

    Raises:
        ValueError: It is none of the four that do, or not for this kind of worker.
    """
    kind = None if saver is None else saver_kind(saver)
    if kind is None:
        raise ValueError(f"{type(saver).__name__} is no checkpointer for threads: SqliteSaver or PostgresSaver is.")
    if is_async is not None and kind.is_async is not is_async:
        needed = "AsyncThreadWorker" if kind.is_async else "ThreadWorker"
        raise ValueError(f"{type(saver).__name__} is for {needed}.")


def _is_factory(given: Any) -> bool:
    return callable(given) and not isinstance(given, Runnable | BaseCheckpointSaver | BaseStore)


def _made(given: Any, owned: ExitStack) -> Any:
    """Return a resource: as it was given, or of its factory, closed with the others."""
    if not _is_factory(given):
        return given
    made = given()
    if isinstance(made, AbstractContextManager):
        return owned.enter_context(made)
    close = getattr(made, "close", None)
    if callable(close):
        owned.callback(close)
    return made


async def _amade(given: Any, owned: AsyncExitStack) -> Any:
    """Do as `_made`; what is made may be an asynchronous context."""
    if not _is_factory(given):
        return given
    made = given()
    if isinstance(made, AbstractAsyncContextManager):
        return await owned.enter_async_context(made)
    if isinstance(made, AbstractContextManager):
        return owned.enter_context(made)
    close = getattr(made, "aclose", None) or getattr(made, "close", None)
    if callable(close):
        owned.push_async_callback(_closed, close)
    return made


async def _closed(close: Callable[[], Any]) -> None:
    ended = close()
    if inspect.isawaitable(ended):
        await ended


def _structured(output: type[BaseModel] | None, chat: Chat) -> type[BaseModel] | None:
    """Return the output that a model must be asked for in its form: one that text alone cannot fill."""
    if output is None:
        return None
    needed = {name for name, part in output.model_fields.items() if part.is_required()}
    return output if needed - {chat.output} else None


def _fault(error: ValidationError) -> str:
    """Name what is wrong and where, without the value."""
    found = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors(include_input=False)]
    return "; ".join(found)[:_FAULT_CHARS]
