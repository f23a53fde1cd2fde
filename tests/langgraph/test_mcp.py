"""Tools of a real MCP server in this process, governed from the client's side."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from mcp import Client
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from continuity.client import RecoveryBlocked
from continuity.integrations import McpQuery, mcp_tool
from continuity.integrations.mcp import is_error, receipt_of_effect, value_of, without_argument
from tests.langgraph.hall import arunner_of, call


class Bank:
    """An MCP server with payments that know their keys, and what its tools were told to do."""

    def __init__(self):
        self.payments = {}
        self.calls = []
        self.fails_after = False
        self.server = MCPServer("bank")
        self.server.add_tool(self.pay, annotations=ToolAnnotations(idempotent_hint=True, read_only_hint=False))
        self.server.add_tool(self.find, annotations=ToolAnnotations(read_only_hint=True))
        self.server.add_tool(self.shout)

    async def pay(self, amount: int, key: str = "") -> dict[str, str]:
        """Pay once a key."""
        self.calls.append(("pay", amount, key))
        known = self.payments.setdefault(key, f"pay-{len(self.payments) + 1}")
        if self.fails_after:
            self.fails_after = False
            raise RuntimeError("lost")
        return {"payment": known}

    async def find(self, key: str) -> dict[str, str]:
        """Find a payment."""
        self.calls.append(("find", key))
        return {"payment": self.payments.get(key, "")}

    async def shout(self, text: str) -> str:
        """Shout."""
        self.calls.append(("shout", text))
        return text.upper()


@pytest.fixture
def bank():
    return Bank()


@asynccontextmanager
async def connected(bank):
    async with Client(bank.server) as client:
        described = {tool.name: tool for tool in (await client.list_tools()).tools}
        yield client, described


def paying(client, described, **more):
    declared = {
        "destination": "bank", "effect_id": lambda result: result["payment"], "key_argument": "key",
        "capability": "idempotent", "retention_seconds": 3_600, "confirmed": {"idempotent"},
    }  # fmt: skip
    return mcp_tool(client, described["pay"], **{**declared, **more})


def finding(described, **more):
    options = {"confirmed": {"read_only"}, **more}
    return McpQuery(described["find"], lambda _a, _o, key: {"key": key}, lambda result: result["payment"], **options)


def run(bank, hall, make, *rounds):
    """Run rounds of calls, each a message of its own unless it is the one before; return what each came to."""

    async def scenario():
        came = []
        async with connected(bank) as (client, described), arunner_of(hall, make(client, described)) as runner:
            for calls in rounds:
                try:
                    came.append(await runner.run_calls(calls, thread_id="t", message_id="m"))
                except RecoveryBlocked as error:
                    came.append(error.code)
        return came

    return asyncio.run(scenario())


def test_a_payment_whose_answer_was_lost_is_repeated_under_its_key_and_is_one_payment(bank, hall):
    bank.fails_after = True
    first, [second] = run(bank, hall, paying, [call("pay", amount=5)], [call("pay", amount=5)])
    assert first == "outcome_unknown"
    assert second.content == '{"payment": "pay-1"}'
    assert len(bank.payments) == 1
    assert len({key for _, _, key in bank.calls}) == 1


def test_a_payment_whose_answer_was_lost_is_asked_for_where_the_bank_can_be_asked(bank, hall):
    bank.fails_after = True

    def make(client, described):
        # The key is the application's, so that the payment can be asked for by it.
        return paying(client, described, capability="query", retention_seconds=0, query=finding(described))

    first, [second] = run(bank, hall, make, [call("pay", amount=5)], [call("pay", amount=5)])
    assert (first, second.content) == ("outcome_unknown", '{"payment": "pay-1"}')
    assert [name for name, *_ in bank.calls] == ["pay", "find"]


def test_a_tool_without_a_name_for_its_effect_leaves_the_outcome_unknown(bank, hall):
    def make(client, described):
        return mcp_tool(client, described["shout"], destination="hall", effect_id=lambda _: None)

    assert run(bank, hall, make, [call("shout", text="a")]) == ["outcome_unknown"]


def test_a_refusal_that_the_application_can_read_is_told_to_the_model(bank, hall):
    def make(client, described):
        return mcp_tool(
            client,
            described["shout"],
            destination="hall",
            effect_id=lambda _: "1",
            refusal=lambda said: f"Too {said['result']}.",
        )

    [[result]] = run(bank, hall, make, [call("shout", text="loud")])
    assert result.is_error
    assert "Too LOUD." in result.content


def test_a_model_cannot_set_the_key_nor_send_what_the_servers_schema_forbids(bank, hall):
    calls = [call("pay", "c1", amount=5, key="mine"), call("pay", "c2", amount="five"), call("pay", "c3")]
    [results] = run(bank, hall, paying, calls)
    assert [result.is_error for result in results] == [True, True, True]
    assert bank.calls == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"confirmed": ()}, "must be confirmed as idempotent"),
        ({"confirmed": {"idempotent", "read_only"}}, "does not claim that its tool 'pay' is read_only"),
        ({"confirmed": {"idempotent", "harmless"}}, "no claim"),
        ({"key_argument": None}, "key_argument"),
        ({"key_argument": "token"}, "has no argument 'token'"),
    ],
)
def test_a_claim_counts_only_when_both_sides_say_so(bank, change, said):
    async def scenario():
        async with connected(bank) as (client, described):
            with pytest.raises(ValueError, match=said):
                paying(client, described, **change)

    asyncio.run(scenario())


def test_a_server_that_no_longer_claims_what_was_confirmed_is_refused(bank):
    async def scenario():
        async with connected(bank) as (client, described):
            silent = described["pay"].model_copy(update={"annotations": None})
            with pytest.raises(ValueError, match="does not claim"):
                paying(client, {"pay": silent})
            with pytest.raises(ValueError, match="must be confirmed as read_only"):
                paying(client, described, query=finding(described, confirmed=()))
            query = McpQuery(described["shout"], lambda *_: {}, str, confirmed={"read_only"})
            with pytest.raises(ValueError, match="does not claim"):
                paying(client, described, query=query)

    asyncio.run(scenario())


def old(**members):
    """Make a result in the spelling of the library's first generation."""
    return SimpleNamespace(**{"isError": False, "structuredContent": None, "content": [], **members})


def test_results_of_the_first_generation_are_read_as_well():
    text = SimpleNamespace(text="a")
    assert value_of(old(content=[text, SimpleNamespace(data=b""), text])) == "a\na"
    assert value_of(old(structuredContent={"a": 1})) == {"a": 1}
    assert [is_error(old()), is_error(old(isError=True)), is_error(object())] == [False, True, True]


def test_an_error_is_kept_for_a_person_and_proves_nothing():
    result = old(isError=True, content=[SimpleNamespace(text="x" * 5_000)])
    receipt = receipt_of_effect(result, operation_id="op_1", effect_id=lambda _: "e", refusal=lambda _: None)
    assert receipt == {"outcome": "unknown", "operation_id": "op_1", "said": "x" * 1_000}


def test_a_schema_without_an_argument_refuses_just_that_one():
    schema = {"type": "object", "properties": {"a": {}, "key": {}}, "required": ["a", "key"]}
    assert without_argument(schema, None) == schema
    assert without_argument(schema, "key") == {
        "type": "object", "properties": {"a": {}, "key": False}, "required": ["a"],
    }  # fmt: skip
