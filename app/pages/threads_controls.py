"""What people do to a thread from its page: plain forms, each with a request_id that was made when it was shown.

Done: the browser is sent back to the page. Refused (409), incomplete (422), or without a password where one is needed
(403): the page comes again with the reason, the new state, and what was written. The same request_id again gets the
first receipt, so that a form sent twice is taken once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from flask import Response, url_for

from app import htmx
from app.auth.admission import admits, admitted
from app.body import read_form
from app.extensions import wiring
from app.pages import forms, keeping
from app.pages.notes import WORDS, leave_note
from app.pages.reauthentication import Unproved, proved
from app.pages.threads import EVERY_ROLE, New, blueprint, list_page, newest, recorded_view, thread_page
from app.pages.threads_asks import JSON_FIELD, WHOLE, AskForm, ask_form
from app.pages.threads_conflicts import refusal
from app.pages.threads_sent import Sent
from app.query import read_query
from continuity.decisions.threads.bounds import RECORD_BYTES
from continuity.errors import ConflictError, MalformedError, NotFoundError, TooLargeError
from continuity.jsontext import canonical_bytes
from continuity.members import is_blank
from continuity.services.callers import Caller
from continuity.thread_requests import ControlRequest, NewThread, ReplyRequest, SayRequest
from continuity.wire import IDENTIFIER

__all__ = ["blueprint"]

WORDS.update({
    "thread_said": "It is accepted and kept, whatever happens to the agent.",
    "thread_steered": "It is accepted. The run reads it before its next step, or it becomes a follow-up.",
    "thread_followed_up": "It is accepted, and waits for its turn.",
    "thread_stopped": "The stop is recorded. A run that a worker has ends after the step in hand.",
    "thread_resumed": "A new run is queued. It goes on as soon as a worker takes it.",
    "thread_answered": "Your answer is recorded. It counts, and is never changed.",
    "thread_deleted": "The thread is deleted. Its content is destroyed, and its name cannot be used again.",
})  # fmt: skip
SAY: Final = "say"
STOP: Final = "stop"
RESUME: Final = "resume"
DELETE: Final = "delete"
_TICKED: Final = "yes"
_NUL: Final = "\0"
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_FORBIDDEN: Final = 403


@blueprint.get("/threads/<thread:thread_id>/message")
@blueprint.get("/threads/<thread:thread_id>/steer")
@blueprint.get("/threads/<thread:thread_id>/follow-up")
@blueprint.get("/threads/<thread:thread_id>/stop")
@blueprint.get("/threads/<thread:thread_id>/resume")
@blueprint.get("/threads/<thread:thread_id>/delete")
@admits(people=EVERY_ROLE)
def instead(thread_id: str) -> Response:
    """Lead to the thread's page: a refusal leaves the address of a control in the browser, which may ask again."""
    read_query()
    return _back(thread_id)


@blueprint.get("/threads/<thread:thread_id>/waiting/<waiting:waiting_id>/reply")
@admits(people=EVERY_ROLE)
def instead_of_reply(thread_id: str, waiting_id: str) -> Response:
    """As `instead`, whichever question it was."""
    del waiting_id
    read_query()
    return _back(thread_id)


@blueprint.post("/threads")
@admits(people=EVERY_ROLE)
def create() -> Response:
    """Begin a thread, or find one's own of this name and agent."""
    given = forms.fields("request_id", "name", "agent")
    caller, values = admitted(), {name: given[name] for name in ("name", "agent")}
    problems = {} if IDENTIFIER.fullmatch(given["name"]) else {"name": "Letters, digits, _ and - only, 128 at most."}
    if problems:
        return list_page(newest(caller), new=New(values, problems), status=_UNPROCESSABLE)
    try:
        made = wiring().threads.acting.create(caller, NewThread.from_json(given))
    except NotFoundError:
        problems = {"agent": "No worker offers this agent to you any more."}
        return list_page(newest(caller), new=New(values, problems), status=_UNPROCESSABLE)
    except ConflictError as error:
        return list_page(newest(caller), new=New(values, refused=refusal("new", error.code)), status=_CONFLICT)
    return _back(made["thread_id"])


@blueprint.post("/threads/<thread:thread_id>/message")
@admits(people=EVERY_ROLE)
def message(thread_id: str) -> Response:
    return _say(thread_id, wiring().threads.acting.message, done="thread_said")


@blueprint.post("/threads/<thread:thread_id>/steer")
@admits(people=EVERY_ROLE)
def steer(thread_id: str) -> Response:
    return _say(thread_id, wiring().threads.acting.steer, done="thread_steered")


@blueprint.post("/threads/<thread:thread_id>/follow-up")
@admits(people=EVERY_ROLE)
def follow_up(thread_id: str) -> Response:
    return _say(thread_id, wiring().threads.acting.follow_up, done="thread_followed_up")


@blueprint.post("/threads/<thread:thread_id>/stop")
@admits(people=EVERY_ROLE)
def stop(thread_id: str) -> Response:
    return _control(thread_id, STOP, wiring().threads.acting.stop, done="thread_stopped")


@blueprint.post("/threads/<thread:thread_id>/resume")
@admits(people=EVERY_ROLE)
def resume(thread_id: str) -> Response:
    return _control(thread_id, RESUME, wiring().threads.acting.resume, done="thread_resumed")


@blueprint.post("/threads/<thread:thread_id>/waiting/<waiting:waiting_id>/reply")
@admits(people=EVERY_ROLE)
def reply(thread_id: str, waiting_id: str) -> Response:
    """Answer a question, once, with what its form means."""
    caller = admitted()
    question = wiring().threads.standing.question(caller, thread_id, waiting_id)
    form = ask_form(question)
    given, sent = _replying(waiting_id)
    value, problems = form.read(given)
    # A question that is not open, or was asked again, is refused as that, whatever its fields lack.
    is_current = question["state"] == "open" and given["revision"] == str(question["revision"])
    if problems and is_current:
        return thread_page(caller, thread_id, sent=replace(sent, problems=problems), status=_UNPROCESSABLE)
    body = {"request_id": _request_id(given), "revision": forms.number(given, "revision"), "reply": value}

    def act(caller: Caller) -> None:
        wiring().threads.acting.reply(caller, thread_id, waiting_id, ReplyRequest.from_json(body))

    return _act(thread_id, sent, act, done="thread_answered", form=form)


@blueprint.post("/threads/<thread:thread_id>/delete")
@admits(people=EVERY_ROLE)
def delete(thread_id: str) -> Response:
    sent, caller = _deleting(), admitted()
    wiring().threads.reading.pulse(caller, thread_id)
    proof = proved(caller, forms.password())
    if isinstance(proof, Unproved):
        asking = replace(sent, problems={**sent.problems, forms.PASSWORD: proof.problem})
        answer = thread_page(caller, thread_id, sent=asking, status=proof.status)
        if proof.retry_after_s is not None:
            answer.headers["Retry-After"] = str(proof.retry_after_s)
        return answer
    if sent.problems:
        return thread_page(proof, thread_id, sent=sent, status=_UNPROCESSABLE)

    def act(caller: Caller) -> None:
        wiring().threads.deletions.delete(caller, thread_id)

    return _act(thread_id, sent, act, done="thread_deleted", caller=proof)


def _say(thread_id: str, act: Callable[[Caller, str, SayRequest], Any], *, done: str) -> Response:
    given, sent = _saying()
    content, problem = _content(given)
    if problem:
        return thread_page(admitted(), thread_id, sent=replace(sent, problems=problem), status=_UNPROCESSABLE)
    asked = SayRequest(_request_id(given), content)
    return _act(thread_id, sent, lambda caller: act(caller, thread_id, asked), done=done)


def _control(thread_id: str, name: str, act: Callable[[Caller, str, ControlRequest], Any], *, done: str) -> Response:
    given = forms.fields("request_id", "revision")
    asked = ControlRequest(_request_id(given), forms.number(given, "revision"))
    return _act(thread_id, Sent(name), lambda caller: act(caller, thread_id, asked), done=done)


def _act(
    thread_id: str, sent: Sent, act: Callable[[Caller], None], *, done: str, form: AskForm | None = None,
    caller: Caller | None = None,
) -> Response:  # fmt: skip
    """Do it, and go on as the module says."""
    caller = caller or admitted()
    try:
        act(caller)
    except ConflictError as error:
        is_answered = form is not None and error.code == "already_answered"
        recorded = recorded_view(caller, thread_id, sent.form) if is_answered else None
        why = refusal(sent.form, error.code)
        return thread_page(caller, thread_id, sent=sent, refused=why, recorded=recorded, status=_CONFLICT)
    except (MalformedError, TooLargeError) as error:
        problems = _problems(error.message, form)
        return thread_page(caller, thread_id, sent=replace(sent, problems=problems), status=_UNPROCESSABLE)
    wiring().threads.streams.signals.give()
    answer = htmx.see_other(url_for("threads.index")) if sent.form == DELETE else _back(thread_id)
    leave_note(answer, done)
    return answer


def _problems(text: str, form: AskForm | None) -> dict[str, str]:
    """Return the server's refusal beside the member that it names."""
    words = text.removesuffix(" Nothing was changed.")
    if form is None:
        return {"content": words}
    path, _, rest = words.partition(" ")
    name = form.field_of(path)
    return {name: f"It {rest}" if name not in {WHOLE, JSON_FIELD} else f"The {words}"}


def _content(given: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """Return what is to be said, and what it lacks."""
    text, content = given["content"].replace("\r\n", "\n"), None
    if is_blank(text):
        return None, {"content": "Write something first."}
    if _NUL in text:
        return None, {"content": "Holds a character that cannot be kept: the one with the number zero."}
    if given["as"] == "json":
        try:
            content = forms.json_value(text)
        except MalformedError:
            return None, {"content": "This is not one JSON value as AtMem keeps it."}
        if not isinstance(content, dict) or not content:
            return None, {"content": "Must be a JSON object that is not empty, or untick the box to send it as text."}
    content = text if content is None else content
    if len(canonical_bytes(content)) > RECORD_BYTES:
        return None, {"content": f"At most {RECORD_BYTES // 1024} KiB."}
    return content, {}


def _request_id(given: dict[str, str]) -> str:
    if not IDENTIFIER.fullmatch(given["request_id"]):
        raise MalformedError("request_id must be the one that the form was shown with.")
    return given["request_id"]


def _back(thread_id: str) -> Response:
    return htmx.see_other(url_for("threads.show", thread_id=thread_id))


# ---- what forms bring, also of an earlier session


def _saying() -> tuple[dict[str, str], Sent]:
    given = forms.fields("request_id", "content", "as")
    return given, Sent(SAY, values=given)


def _replying(waiting_id: str) -> tuple[dict[str, str], Sent]:
    """Read an answer. Its fields may be those of what was asked before, at the same place."""
    answers = [name for name in read_form() if name.startswith("reply-")]
    given = forms.fields("request_id", "revision", *answers)
    return given, Sent(waiting_id, values=given)


def _deleting() -> Sent:
    given = forms.fields("sure", secret=forms.PASSWORD)
    problems = {} if given["sure"] == _TICKED else {"sure": "Tick this first: what is deleted is gone for good."}
    return Sent(DELETE, values=given, problems=problems)


def _show_again(caller: Caller, thread_id: str, sent: Sent) -> Response:
    return thread_page(caller, thread_id, sent=replace(sent, problems={}, is_outdated=True), status=_FORBIDDEN)


def _show_reply_again(caller: Caller, thread_id: str, waiting_id: str) -> Response:
    return _show_again(caller, thread_id, _replying(waiting_id)[1])


def _show_new_again(caller: Caller) -> Response:
    given = forms.fields("request_id", "name", "agent")
    values = {name: given[name] for name in ("name", "agent")}
    return list_page(newest(caller), new=New(values, is_outdated=True), status=_FORBIDDEN)


keeping.FORMS.update({
    "threads.message": lambda caller, thread_id: _show_again(caller, thread_id, _saying()[1]),
    "threads.steer": lambda caller, thread_id: _show_again(caller, thread_id, _saying()[1]),
    "threads.follow_up": lambda caller, thread_id: _show_again(caller, thread_id, _saying()[1]),
    "threads.stop": lambda caller, thread_id: _show_again(caller, thread_id, Sent(STOP)),
    "threads.resume": lambda caller, thread_id: _show_again(caller, thread_id, Sent(RESUME)),
    "threads.delete": lambda caller, thread_id: _show_again(caller, thread_id, _deleting()),
    "threads.reply": _show_reply_again,
    "threads.create": _show_new_again,
})  # fmt: skip
