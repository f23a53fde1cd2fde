"""What was just done, said once on the page that follows.

After a form has been taken the browser is sent on; a cookie carries one word of ours to the next page and is
removed by it. No other word is shown, so that a cookie cannot put words into our mouth.
"""

from __future__ import annotations

from typing import Final

from flask import Flask, Response, g, request

from app.auth import identity

WORDS: Final[dict[str, str]] = {
    "password_changed": "Your password is changed. Every other session of yours has ended.",
    "session_ended": "That session has ended.",
    "sessions_ended": "Every other session of yours has ended.",
    "session_gone": "That session had ended already.",
}
"""Each note by its code; the blueprint that leaves one adds its own before the first request."""
_SECONDS: Final = 60
_TAKEN: Final = "note_taken"


def install(app: Flask) -> None:
    """Let the layouts of `app` show the note, and forget it once it was shown."""
    app.context_processor(lambda: {"note": _take})
    app.after_request(_forget)


def leave_note(answer: Response, code: str) -> None:
    """Have the next page say ``WORDS[code]``."""
    if code not in WORDS:
        raise KeyError(code)
    answer.set_cookie(
        _name(),
        code,
        max_age=_SECONDS,
        secure=identity.auth().cookie.is_secure,
        httponly=True,
        samesite="Strict",
        path="/",
    )


def _take() -> str | None:
    found = WORDS.get(request.cookies.get(_name(), ""))
    if found is not None:
        g.setdefault(_TAKEN, default=True)
    return found


def _forget(answer: Response) -> Response:
    if _TAKEN in g:
        answer.delete_cookie(
            _name(), secure=identity.auth().cookie.is_secure, httponly=True, samesite="Strict", path="/"
        )
    return answer


def _name() -> str:
    return "__Host-atmem_note" if identity.auth().cookie.is_secure else "atmem_note"
