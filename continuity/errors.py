"""Every error that this package raises, each with a stable ``code``.

Rules:

* The code is an API: it travels in the body of an error reply and the client turns it back into the
  same class (`error_from_code`). The message is for people and may change.
* A message names the field and what it must be. It never holds a secret, an argument, a receipt,
  a token or any part of them.
* HTTP status codes are not known here; ``app/errors.py`` holds the one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


class ContinuityError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: Stable name of the error, the same on both sides of the wire.
        message: One sentence for a person.
    """

    code: str = "internal_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        """Keep `message`, and `code` when the class stands for several codes."""
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class MalformedError(ContinuityError):
    """A request that cannot be read or breaks a rule of its fields. Nothing has happened."""

    code = "malformed"


class UnauthenticatedError(ContinuityError):
    """No credential, or one that is unknown, expired or revoked. Nothing has happened."""

    code = "unauthenticated"


class ForbiddenError(ContinuityError):
    """The caller is known and may not do this. Nothing has happened."""

    code = "forbidden"


class NotFoundError(ContinuityError):
    """No such object within the caller's scope; another's object answers the same."""

    code = "not_found"


class OperationNotFoundError(NotFoundError):
    """The workflow has no operation of that name. Nothing has happened."""

    code = "operation_not_found"


class KeyNotFoundError(NotFoundError):
    """The caller has no workflow of that key. Nothing has happened."""

    code = "key_not_found"


class ConflictError(ContinuityError):
    """The state of things forbids it; `code` says why (one of `CONFLICT_CODES`). Nothing has happened.

    Attributes:
        workflow_id: The caller's own workflow that is in the way; empty where there is none, or not one alone.
        current: How things stand instead, where that helps the caller to go on; only what the caller may see.
    """

    code = "request_conflict"

    def __init__(
        self, message: str, *, code: str | None = None, workflow_id: str = "",
        current: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """Keep what the attributes say."""
        super().__init__(message, code=code)
        self.workflow_id = workflow_id
        self.current = current


class CaptureInUseError(ConflictError):
    """Unfinished work needs exact content, so that the capture mode stays ``full``. Nothing has happened.

    Attributes:
        blocking: ``count``, ``is_more`` and the first ``workflows`` with ``workflow_id`` and ``because``.
    """

    code = "capture_in_use"

    def __init__(self, message: str, *, blocking: Mapping[str, Any]) -> None:
        """Keep what stands in the way."""
        super().__init__(message, code=self.code)
        self.blocking = blocking


class TooLargeError(ContinuityError):
    """A body above its limit. It was not read."""

    code = "too_large"


class UnsupportedMediaError(ContinuityError):
    """A body that is not ``application/json``. It was not read."""

    code = "unsupported_media_type"


class LengthRequiredError(ContinuityError):
    """A body without ``Content-Length``. It was not read."""

    code = "length_required"


class VaultError(ContinuityError):
    """Base of what the vault may raise."""

    code = "vault_error"


class SealedError(VaultError):
    """The vault is locked: nothing can be read or written until an administrator unlocks it."""

    code = "vault_locked"


class DecryptionError(VaultError):
    """A sealed value did not open. One message for every cause, on purpose."""

    code = "vault_integrity_error"

    def __init__(self) -> None:
        """Take no argument: the cause is never told."""
        super().__init__("A sealed value could not be opened.")


class IntegrityError(VaultError):
    """Stored columns contradict the sealed state. Dispatch stops; nothing is repeated."""

    code = "vault_integrity_error"


class RolledBackError(IntegrityError):
    """The database is older than what is kept of it beside the key. Nothing was decided, and nothing changed."""

    code = "database_rolled_back"


class KeySourceError(VaultError):
    """The master key cannot be read or must not be used (for example loose file permissions)."""

    code = "vault_key_unavailable"


class SealedFileError(VaultError):
    """A file sealed under a passphrase does not open; `code` says as much of why as can be told.

    ``sealed_file_foreign`` (not ours), ``sealed_file_purpose`` (of another kind), ``sealed_file_truncated``,
    ``sealed_file_damaged``, ``sealed_file_unbearable`` (asks for absurd memory or time) or ``wrong_passphrase``.
    """

    code = "sealed_file_damaged"


class ThrottledError(ContinuityError):
    """Too many requests. Nothing has happened; try again after `retry_after_s` seconds."""

    code = "throttled"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        """Keep how long to wait, in whole seconds."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnavailableError(ContinuityError):
    """Storage cannot answer now. Whether the request took effect is unknown to the caller."""

    code = "storage_unavailable"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        """Keep how long to wait, in whole seconds."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StorageLowError(UnavailableError):
    """The disk of the database is nearly full, so that nothing new is begun. Nothing has happened.

    What was granted is still recorded: that is what the rest of the disk is kept for.
    """

    code = "storage_low"


class TransportError(ContinuityError):
    """The answer was lost, or is not one of the server's contract.

    Whether the request took effect is unknown, but for `NotReachedError`.
    """

    code = "transport_error"


class NotReachedError(TransportError):
    """No connection could be made: nothing was sent, and nothing has happened."""

    code = "server_not_reached"


class TransportTimeoutError(TransportError):
    """No answer in time. Whether the request took effect is unknown."""

    code = "transport_timeout"


CONFLICT_CODES: Final = frozenset({
    "definition_conflict", "workflow_deleted", "lease_live", "stale_revision", "stale_lease",
    "lease_expired", "renewal_limit_reached", "late_receipt_limit_reached",
    "workflow_revision_limit_reached", "coordinator_open_limit", "coordinator_history_limit",
    "clock_moved_backwards", "capture_not_full", "event_conflict", "workflow_paused",
    "effect_may_still_land", "attempt_limit_reached", "operation_final", "workflow_unfinished",
    "capture_in_use", "last_administrator", "request_conflict", "claim_lost", "cursor_gap",
    "stale_waiting_revision", "already_answered", "capture_off", "evidence_deleted", "evidence_limit_reached",
    "waiting_cancelled", "thread_busy", "thread_not_running", "thread_stopping", "nothing_to_resume",
    "control_not_declared", "queue_full", "thread_deleted",
})  # fmt: skip
"""Codes a `ConflictError` may carry; wire.md's list of 409."""

_BY_CODE: Final[dict[str, type[ContinuityError]]] = {
    cls.code: cls
    for cls in (
        MalformedError, UnauthenticatedError, ForbiddenError, NotFoundError, OperationNotFoundError,
        KeyNotFoundError, TooLargeError, UnsupportedMediaError, LengthRequiredError, SealedError, IntegrityError,
        KeySourceError, ThrottledError, UnavailableError, StorageLowError,
    )
}  # fmt: skip


def error_from_code(code: str, message: str, *, workflow_id: str = "") -> ContinuityError:
    """Turn a code from the wire back into the error it was.

    Args:
        code: The ``error.code`` of a reply.
        message: The ``error.message`` of the same reply.
        workflow_id: Its ``error.workflow_id``, empty where it has none.

    Returns:
        An instance of the class with that code; `ConflictError` for the codes of 409;
        a plain `ContinuityError` that keeps the code when it is not known here.
    """
    if code in CONFLICT_CODES:
        return ConflictError(message, code=code, workflow_id=workflow_id)
    cls = _BY_CODE.get(code)
    return ContinuityError(message, code=code) if cls is None else cls(message)
