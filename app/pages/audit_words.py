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
    "user.disable": "Disabled an account",
    "user.enable": "Enabled an account",
    "user.reset_password": "Reset a password",
    "user.recover_administrator": "Recovered an administrator on the host",
    "credential.issue": "Issued a credential",
    "credential.revoke": "Revoked credentials",
    "access.refused": "Was refused",
    "access.throttled": "Was throttled",
    "workflow.enable": "Enabled recovery",
    "workflow.pause": "Paused new attempts",
    "workflow.abandon": "Stopped work",
    "workflow.confirm": "Confirmed an outcome",
    "workflow.viewed": "Looked at a workflow",
    "workflow.deletion_begun": "Began to delete a workflow",
    "workflow.deleted": "Deleted a workflow",
    "vault.format_raised": "Raised the format of the vault",
    "vault.integrity_failure": "Met something that contradicts itself",
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
    "backup.": "Backups",
    "retention.": "Retention",
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
