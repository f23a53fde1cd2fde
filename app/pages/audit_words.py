"""Actions of the audit log and findings of its verification in words for people. Pure.

An action that is not here is shown as it is spelled: a list must not hide what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ACTIONS: Final[dict[str, str]] = {
    "user.sign_in": "Signed in",
    "user.sign_out": "Signed out",
    "user.reauthenticate": "Gave the password again",
    "user.change_password": "Changed the own password",
    "user.end_sessions": "Ended sessions",
    "user.create": "Made an account",
    "user.set_role": "Changed a role",
    "user.set_workspaces": "Changed workspaces",
    "user.disable": "Disabled an account",
    "user.enable": "Enabled an account",
    "user.reset_password": "Reset a password",
    "user.recover_administrator": "Recovered an administrator on the host",
    "user.start_second_factor": "Began to set up a second factor",
    "user.add_second_factor": "Set up a second factor",
    "user.use_recovery_code": "Used a recovery code",
    "user.renew_recovery_codes": "Made new recovery codes",
    "user.remove_second_factor": "Turned the second factor off",
    "user.reset_second_factor": "Took a second factor away",
    "policy.set_second_factor": "Changed who needs a second factor",
    "credential.issue": "Issued a credential",
    "credential.revoke": "Revoked credentials",
    "access.refused": "Was refused",
    "access.throttled": "Was throttled",
    "workflow.viewed": "Looked at a workflow",
    "workflow.enabled": "Enabled recovery",
    "workflow.paused": "Paused new attempts",
    "workflow.operation_stopped": "Stopped work",
    "workflow.outcome_confirmed": "Confirmed an outcome",
    "workflow.deletion_begun": "Began to delete a workflow",
    "workflow.deleted": "Deleted a workflow",
    "evidence.searched": "Searched evidence by words",
    "evidence.viewed": "Looked at evidence",
    "evidence.manifest_viewed": "Looked at a replay manifest",
    "evidence.exported": "Took evidence away sealed",
    "evidence.exported_in_clear": "Took evidence away in the clear",
    "evidence.deletion_begun": "Began to delete evidence",
    "evidence.deleted": "Deleted evidence",
    "thread.created": "Began a thread",
    "thread.viewed": "Looked at a thread",
    "thread.steered": "Steered a thread",
    "thread.followed_up": "Queued for a thread",
    "thread.replied": "Answered a thread",
    "thread.stopped": "Stopped a thread",
    "thread.resumed": "Resumed a thread",
    "thread.trimmed": "Let go of the beginning of a thread",
    "thread.deletion_begun": "Began to delete a thread",
    "thread.deleted": "Deleted a thread",
    "vault.lock": "Locked the vault",
    "vault.unlock": "Unlocked the vault",
    "vault.rotation_started": "Began to rotate the key",
    "vault.rotated": "Rotated the key",
    "vault.capture_changed": "Changed what is captured",
    "vault.format_raised": "Raised the format of the vault",
    "vault.backup": "Made a backup",
    "vault.restored": "Restored a backup",
    "vault.restore_accepted": "Accepted an older database",
    "vault.close_recovery": "Closed the recovery window",
    "vault.integrity_failure": "Met what contradicts itself",
    "audit.viewed": "Looked at details of the audit log",
    "audit.exported": "Took a file of the audit log",
    "audit.checkpointed": "Took a checkpoint",
    "audit.verified": "Verified the audit log",
}
NOUNS: Final[dict[str, str]] = {
    "user.": "People and sessions",
    "policy.": "Policies",
    "credential.": "Credentials",
    "access.": "Refused and throttled",
    "workflow.": "Workflows",
    "evidence.": "Evidence",
    "thread.": "Threads",
    "vault.": "The vault",
    "audit.": "The audit log itself",
}
_RESULTS: Final = {
    "done": "done", "unauthenticated": "refused: not signed in", "forbidden": "refused: not allowed",
    "throttled": "refused: too often", "vault_integrity_error": "contradicts itself",
}  # fmt: skip
_KEEP: Final = (
    "Keep the database as it is and make a copy of its files before anything else. Compare with your last checkpoint "
    "and your last backup, and find out who could write to the database since."
)
ADVICE: Final[dict[str, str]] = {
    "changed": f"Somebody has written past this program, or the disk has. {_KEEP}",
    "missing": f"Somebody has removed it past this program. {_KEEP}",
    "truncated": f"Somebody has removed the end past this program, or commits were lost. {_KEEP}",
    "surplus": f"The log and its head are not of the same time. {_KEEP}",
    "head": f"What stands at the end does not follow from what stands before it. {_KEEP}",
    "put_back": "A row of a deleted workflow was put back from an older database. It stays unreadable.",
    "vault": "Look at atmem status: it says which file does not fit. Restore the database and the files of one backup.",
    "checkpoint": f"What was written before your checkpoint was written anew. {_KEEP}",
    "newer": (
        "If you have restored a backup since, this is what must be said. If not, an older database was put back: stop "
        "the server, and find out what was done since."
    ),
    "other_log": (
        "Most likely this checkpoint is of another instance. If it is surely of this one, the log was written "
        "anew from its beginning."
    ),
}
"""What to do about each kind of finding."""


def action(word: str) -> str:
    """Say an action in words."""
    return ACTIONS.get(word, word)


def result(word: str) -> str:
    """Say a result in words."""
    return _RESULTS.get(word, f"refused: {word.replace('_', ' ')}")


def advice(kinds: Iterable[str]) -> list[str]:
    """Return what to do about findings of these kinds, each advice once."""
    return list(dict.fromkeys(ADVICE[kind] for kind in kinds if kind in ADVICE))
