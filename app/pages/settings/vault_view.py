"""The vault as one frozen value for its page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.pages.settings.area import seconds
from app.pages.wording import Named

SOURCES: Final = {
    "file": Named(
        "a file of this host", "Readable by the server's user alone, with the list of what was destroyed beside it."
    ),
    "environment": Named(
        "the environment", "Given to the server when it starts, and taken out of its environment then."
    ),
    "passphrase": Named("a passphrase", "Sealed under a passphrase that somebody gives after every start."),
    "transit": Named("a key service", "Wrapped by a key that never leaves the service."),
}
MODES: Final = {
    "full": Named("Full", "Exact content of what agents do. Governed operations need this one.", "good"),
    "metadata": Named(
        "Metadata", "Size, SHA-256 and type in place of content. No work can be created or begun.", "warn"
    ),
    "off": Named("Off", "Nothing is kept of what agents do. No work can be created or begun.", "warn"),
}
STEPS: Final = {
    "adding": Named("Making a new key", "It becomes durable at its source before anything is sealed under it.", "info"),
    "announced": Named(
        "Handing it out", "Every serving process fetches the new key; one that lacks it is waited for.", "info"
    ),
    "running": Named("Sealing data keys anew", "Both keys are accepted until the last one is done.", "info"),
    "retiring": Named("Dropping the old key", "Nothing is left under it.", "info"),
    "done": Named("Done", "Everything is under the new key, and the old one is gone.", "good"),
    "held": Named(
        "Done, but for what does not open",
        "Some data keys do not open. They are as they were; the key that they name is kept.",
        "warn",
    ),
}
_FORMATS: Final = {
    2: "evidence alone; the first workflow takes it to 3, and there is no way back",
    3: "evidence and governed operations",
}


@dataclass(frozen=True, slots=True)
class RotationView:
    """The last rotation. Times in Unix seconds."""

    step: Named
    old_key_id: int
    new_key_id: int
    total: int
    done: int
    unreadable: int
    started: float | None
    finished: float | None

    @property
    def is_finished(self) -> bool:
        return self.finished is not None

    @property
    def looked_at(self) -> int:
        return min(self.total, self.done + self.unreadable)


@dataclass(frozen=True, slots=True)
class VaultView:
    """What the page shows. `is_open` is the flag, `is_open_here` whether this process has the keys.

    `blocking` is what keeps the capture mode full, None while it cannot be read. `seen` binds a rotation to what was
    seen, `mark` differs whenever the page would look different.
    """

    is_open: bool
    is_open_here: bool
    source: Named
    source_kind: str
    key_id: int
    format: int
    format_text: str
    capture: Named
    capture_mode: str
    locked: float | None
    locked_by: str
    needs_passphrase_to_lock: bool
    needs_passphrase_to_unlock: bool
    holders: int
    waiting: int
    rotation: RotationView | None
    blocking: Mapping[str, Any] | None
    is_recovering: bool
    restored: float | None
    backup: float | None
    seen: str
    mark: str

    @property
    def is_usable(self) -> bool:
        return self.is_open and self.is_open_here

    @property
    def is_rotating(self) -> bool:
        return self.rotation is not None and not self.rotation.is_finished

    @property
    def is_moving(self) -> bool:
        """Whether it will look different by itself before long."""
        return self.is_rotating and self.is_usable


def vault_view(
    status: Any, recovery: Any, *, blocking: Mapping[str, Any] | None, locked_by: str, seen: str, mark: str
) -> VaultView:
    """Make the page's value of a `VaultStatus` and a `RecoveryStatus`."""
    kind = status.key_source
    return VaultView(
        is_open=status.state == "open", is_open_here=status.is_open_here,
        source=SOURCES.get(kind, Named(kind, "")), source_kind=kind, key_id=status.key_id, format=status.format,
        format_text=_FORMATS.get(status.format, ""), capture=MODES[status.capture_mode],
        capture_mode=status.capture_mode, locked=seconds(status.locked_at_us), locked_by=locked_by,
        needs_passphrase_to_lock=status.needs_passphrase_to_lock,
        needs_passphrase_to_unlock=status.needs_passphrase_to_unlock, holders=status.holders, waiting=status.waiting,
        rotation=None if status.rotation is None else _rotation(status.rotation), blocking=blocking,
        is_recovering=recovery.is_open, restored=seconds(recovery.restored_us), backup=seconds(recovery.backup_us),
        seen=seen, mark=mark,
    )  # fmt: skip


def _rotation(progress: Any) -> RotationView:
    return RotationView(
        step=STEPS[progress.state], old_key_id=progress.old_key_id, new_key_id=progress.new_key_id,
        total=progress.total, done=progress.done, unreadable=progress.unreadable,
        started=seconds(progress.started_at_us), finished=seconds(progress.finished_at_us),
    )  # fmt: skip
