"""A conversation that is all secrets, for `tests.crash.test_secrets`: said, streamed, asked, replied, refused."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

from tests.patience import PATIENCE_S

THREADS = "/v1/threads"
_STREAM_BYTES = 2_000
"""Enough of a stream to hold records."""


class Conversation:
    """A thread of an application, its worker, and the secrets that both say."""

    def __init__(self, sweep: Any) -> None:
        self.sweep, self.numbers = sweep, 0
        self.agent, self.key, self.subject = sweep.mint("agent"), sweep.mint("state key"), sweep.mint("subject")
        for kind, role, more in (
            ("thread worker", "thread_worker", {"agents": [self.agent]}),
            ("application", "thread_application", {}),
        ):
            body = {"principal_id": sweep.mint("principal"), "role": role, "workspace_id": "default", **more}
            status, reply, _ = sweep.as_person("POST", "/v1/evidence/grants", body)
            assert status == 200, reply
            sweep.tokens[kind] = sweep.secrets.learn(f"{kind} token", reply["token"])
        declared = {
            "name": self.agent, "controls": ["steer", "follow-up", "stop", "approve"], "state_keys": [self.key],
            "public": True,
        }  # fmt: skip
        assert self.work("agents", {"agents": [declared]})[0] == 200
        self.thread_id = self.say("", name=sweep.mint("name of a thread"), agent=self.agent)["thread_id"]

    # ---- asking

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        given = {"Authorization": f"Bearer {self.sweep.tokens['application']}", "Atmem-Subject": self.subject}
        return self.sweep.wire.send(method, f"{THREADS}{path}", body, headers={**given, **headers})

    def say(self, rest: str, **fields: Any) -> Any:
        path = f"/{self.thread_id}{rest}" if rest else ""
        status, reply, _ = self.send("POST", path, {"request_id": self.fresh(), **fields})
        assert status == 200, reply
        return reply

    def work(self, path: str, body: Any) -> tuple[int, Any, Any]:
        return self.sweep.as_machine(f"{THREADS}/{path}", body, kind="thread worker")

    def fresh(self) -> str:
        self.numbers += 1
        return f"request-{self.numbers}"

    def claim(self) -> Any:
        self.secret = self.sweep.mint("secret of a claim") + "x" * 15
        status, reply, _ = self.work("claims", {"request_id": self.fresh(), "secret": self.secret})
        assert status == 200, reply
        self.run = reply["run"]
        return self.run

    def held(self, verb: str, **fields: Any) -> tuple[int, Any, Any]:
        named = {} if verb == "heartbeat" else {"request_id": self.fresh()}
        hold = {"generation": self.run["generation"], "secret": self.secret}
        return self.work(f"runs/{self.run['run_id']}/{verb}", {**hold, **named, **fields})

    # ---- the story

    def everything(self) -> str:
        """Say, stream, ask, reply, fail, go on and end; then everything that is refused. Returns the thread's id."""
        mint = self.sweep.mint
        self.say("/messages", content={"text": mint("message"), mint("member"): 1})
        self.claim()
        self.say("/steer", content=mint("steer"))
        self.say("/follow-ups", content=mint("follow-up"))
        status, reply, _ = self.held("append", records=self.records())
        assert status == 200, reply
        assert self.held("heartbeat")[0] == 200
        waiting = self.asked()
        refused = {"request_id": self.fresh(), "revision": 1, "reply": mint("reply of a wrong type")}
        assert self.send("POST", f"/{self.thread_id}/waiting/{waiting}/reply", refused)[0] == 400
        answer = {"answer": mint("reply")}
        self.say(f"/waiting/{waiting}/reply", revision=1, reply=answer)
        other = {"request_id": self.fresh(), "revision": 1, "reply": {"answer": mint("another reply")}}
        assert self.send("POST", f"/{self.thread_id}/waiting/{waiting}/reply", other)[0] == 409
        # It tells the decision that is recorded, to somebody who may read all of the thread, and nothing else.
        told = self.sweep.secrets.found_in(self.sweep.wire.refusals.pop())
        assert [each.partition(" #")[0] for each in told] == ["reply"]
        assert self.claim()["replies"][0]["reply"] == answer
        assert self.held("fail", reason="failed", message=mint("why it failed"))[0] == 200
        self.say("/resume")
        self.claim()
        assert self.held("settle", output={"answer": mint("output")})[0] == 200
        self.refusals()
        self.reads()
        return self.thread_id

    def records(self) -> list[dict[str, Any]]:
        mint, message, call = self.sweep.mint, self.sweep.mint("message id"), self.sweep.mint("call id")
        return [
            {"kind": "message_started", "message_id": message, "name": mint("name of a message")},
            {"kind": "message_part", "message_id": message, "text": mint("part")},
            {"kind": "message_ended", "message_id": message},
            {"kind": "tool_started", "call_id": call, "tool": mint("tool"), "arguments": {"to": mint("argument")}},
            {"kind": "tool_progress", "call_id": call, "data": mint("progress of a call")},
            {"kind": "tool_ended", "call_id": call, "outcome": "ok", "result": mint("result")},
            {"kind": "state_changed", "values": {self.key: mint("state")}},
            {"kind": "progress", "data": mint("progress")},
        ]

    def asked(self) -> str:
        mint = self.sweep.mint
        schema = {"type": "object", "properties": {"answer": {"type": "string", "title": mint("title")}}}
        question = {
            "task": mint("task"), "ordinal": 0, "kind": "reply", "schema": schema, "shown": {"order": mint("shown")},
        }  # fmt: skip
        status, reply, _ = self.held("wait", requests=[question])
        assert status == 200, reply
        return reply["waiting"][0]["waiting_id"]

    def refusals(self) -> None:
        """Send what is refused for what it is, for when it comes, and for who sends it."""
        mint, own = self.sweep.mint, f"/{self.thread_id}"
        used = {"request_id": "request-2", "content": mint("another body under a request_id")}
        assert self.send("POST", f"{own}/messages", used)[0] == 409
        # The follow-up has begun by itself.
        assert self.send("POST", f"{own}/messages", {"request_id": "b", "content": mint("while it runs")})[0] == 409
        for content in (mint("endless message") * 3_000, [mint("list")] * 3_000):
            assert self.send("POST", f"{own}/messages", {"request_id": "large", "content": content})[0] in {400, 413}
        for path in (own + "/messages", own + "/steer", own + "/follow-ups", own + "/resume", ""):
            for wrong in (
                {mint("unknown member"): 1}, {"request_id": [mint("request_id")]}, {"content": None},
                {"request_id": mint("request_id") + " ", "content": 1}, {"revision": mint("revision")},
            ):  # fmt: skip
                assert self.send("POST", path, wrong)[0] == 400
        for broken in ('{"content":"%s"', '{"content":NaN,"b":"%s"}', '"%s"'):
            assert self.send("POST", f"{own}/messages", (broken % mint("broken body")).encode())[0] == 400
        assert self.held("append", records=[{"kind": "progress", "data": mint("of a claim that is over")}])[0] == 409
        assert self.held("append", records=[{"kind": mint("kind"), "data": 1}])[0] == 400
        assert self.held("settle", output=mint("output") * 3_000)[0] in {400, 413}
        self.secret = mint("secret of nobody") + "x" * 15
        assert self.held("heartbeat")[0] == 409
        stranger = mint("subject of another")
        assert self.send("GET", own, **{"Atmem-Subject": stranger})[0] == 404
        assert self.send("POST", "", {
            "request_id": "s", "name": mint("name"), "agent": self.agent, "subject": stranger,
        })[0] == 400  # fmt: skip
        unknown = {"request_id": "u", "name": mint("name"), "agent": mint("unknown agent")}
        assert self.send("POST", "", unknown)[0] == 404

    def reads(self) -> None:
        """Read it in every way, and with secrets where positions, cursors and filters belong."""
        mint, own, sweep = self.sweep.mint, f"/{self.thread_id}", self.sweep
        for path in (own, f"{own}/journal?after=1-0", f"{own}/receipts/request-2", "", "/agents"):
            assert self.send("GET", path)[0] == 200, path
            if "receipts" not in path:
                assert sweep.as_person("GET", f"{THREADS}{path}")[0] == 200, path
        for path in (
            f"{own}/journal?after={mint('position')}", f"{own}/journal?after=1-0&wait={mint('wait')}",
            f"{own}/journal?{mint('parameter')}=1", f"{own}/history?cursor={mint('cursor')}",
            f"?state={mint('state')}", f"?cursor={mint('cursor')}", f"{own}/receipts/request-unknown",
        ):  # fmt: skip
            # Nothing but ids stands in a path, which is what the log of requests holds.
            assert self.send("GET", path)[0] in {400, 404, 409}, path
        assert self.send("GET", f"{own}/journal", **{"Last-Event-ID": mint("event")})[0] == 400
        assert b"data:" in self.stream(f"{THREADS}{own}/journal?after=1-0")
        for address in ("/threads", f"/threads/{self.thread_id}", f"/threads/{self.thread_id}/live"):
            assert sweep.as_page("GET", address) in {200, 204}, address
        for address in (f"/threads/{self.thread_id}/history?cursor=", "/threads?cursor=", "/threads?state="):
            assert sweep.as_page("GET", address + mint("filter")) in {200, 303, 400, 404, 422}, address

    def stream(self, path: str) -> bytes:
        """Follow the journal as events for a moment, and leave."""
        parts = urlsplit(self.sweep.wire.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE_S)
        headers = {
            "Authorization": f"Bearer {self.sweep.tokens['application']}", "Atmem-Subject": self.subject,
            "Accept": "text/event-stream",
        }  # fmt: skip
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().read(_STREAM_BYTES)
        finally:
            connection.close()

    def delete(self) -> None:
        """Deleted, its words are nowhere, and who asks is told so."""
        self.say("/stop")
        assert self.send("DELETE", f"/{self.thread_id}")[0] == 200
        assert self.send("GET", f"/{self.thread_id}")[0] == 409
