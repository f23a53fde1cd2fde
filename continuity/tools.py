"""Two tools to start with: publishing a document into a directory, and any call that answers with JSON.

Example::

    publisher = DirectoryPublisher("./published")
    client.run_operation(workflow_id, "publish", {DirectoryPublisher.TOOL: publisher})
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from continuity.callbacks import Callback, NotDispatched, Refused
from continuity.decisions.states import Outcome
from continuity.folder import Folder, ForeignFileError, reason, why_unusable
from continuity.jsontext import digest
from continuity.publications import (
    DOCUMENT_BYTES,
    PUBLISH,
    Document,
    make_output,
    publish_arguments,
    publish_operation,
)

__all__ = [
    "DOCUMENT_BYTES",
    "DirectoryPublisher",
    "JsonResponseTool",
    "make_output",
    "publish_arguments",
    "publish_operation",
]

_OPERATION_ID: Final = re.compile(r"op_[0-9a-z]{8,64}")
"""Lower case alone: two ids can then never be one name on a file system that ignores case."""

_CERTAINLY_NOT_NAMED: Final = frozenset({
    errno.EPERM, errno.EACCES, errno.ENOENT, errno.EXDEV, errno.EMLINK, errno.ENOSPC, errno.EROFS,
    getattr(errno, "EDQUOT", errno.ENOSPC),
    getattr(errno, "EOPNOTSUPP", errno.EPERM), getattr(errno, "ENOTSUP", errno.EPERM),
})  # fmt: skip
"""Refusals of a second name that leave no doubt; after any other error nobody knows."""


class DirectoryPublisher:
    """Publishes a document as one new file of a directory. It is itself a tool, with capability ``query``.

    The file's name is made of the operation's id, so that one operation has one place to be published at:
    it is published once, or found there, or the place is taken and the publication is refused. The file
    appears whole or not at all, with mode 0600, and nothing is ever replaced.

    Keep the directory private: this is no untrusted multi-user file service.

    Attributes:
        TOOL: The name that `publish_operation` gives the tool in a definition.
    """

    TOOL: ClassVar[str] = PUBLISH

    def __init__(self, output: str | os.PathLike[str], *, open_folder: Callable[[str], Folder] = Folder) -> None:
        """Keep the directory; it is opened for each call and created by none.

        Args:
            output: The directory that was reviewed. Any other is refused before the effect.
            open_folder: Opens a directory; a seam for platforms that cannot hold one open.
        """
        self._output = os.path.realpath(output)
        self._open = open_folder

    def __repr__(self) -> str:
        return f"DirectoryPublisher({self._output!r})"

    def execute(
        self, arguments: Mapping[str, Any], operation_id: str, _idempotency_key: str, timeout_seconds: float
    ) -> dict[str, Any]:
        """Publish the document.

        Args:
            arguments: What `publish_arguments` made.
            operation_id: Names the file.
            timeout_seconds: No file gets its name later than this.

        Returns:
            A success receipt; its result holds ``path``, ``name``, ``sha256`` and ``bytes``.

        Raises:
            NotDispatched: The directory or the arguments are not the reviewed ones, or nothing could be
                written. No file has its name.
            Refused: The name is taken by something else, which is unchanged.
            OSError: The file may have its name; whether it will survive a power failure is unknown.
        """
        ends_at_s = time.monotonic() + timeout_seconds
        document = self._reviewed(arguments, operation_id)
        with self._opened() as folder:
            if not folder.is_in_place():
                raise NotDispatched("The output directory has been replaced.")
            try:
                return self._publish(folder, document, ends_at_s)
            except ForeignFileError as error:
                raise Refused(error.message) from error

    def query(
        self, arguments: Mapping[str, Any], operation_id: str, _idempotency_key: str, _timeout_seconds: float
    ) -> dict[str, Any]:
        """Look for the published file; publish nothing.

        Returns:
            A success receipt, the same as `execute` gave; ``absent`` if the name is free; ``unknown`` if
            it is taken by something else.

        Raises:
            NotDispatched: Another directory or other arguments than the reviewed ones, or the directory
                cannot be opened. What was published before is as open as it was.
            OSError: The file cannot be read.
        """
        document = self._reviewed(arguments, operation_id)
        with self._opened() as folder:
            if not folder.is_in_place():
                raise NotDispatched("The output directory has been replaced.")
            try:
                found = self._find(folder, document)
            except ForeignFileError as error:
                return {"outcome": Outcome.UNKNOWN.value, "operation_id": operation_id, "detail": error.message}
            if found:
                return self._receipt(document)
            return {"outcome": Outcome.ABSENT.value, "operation_id": operation_id}

    def _opened(self) -> Folder:
        try:
            return self._open(self._output)
        except OSError as error:
            raise NotDispatched(why_unusable(self._output, error)) from error

    def _reviewed(self, arguments: Mapping[str, Any], operation_id: str) -> Document:
        if not _OPERATION_ID.fullmatch(operation_id):
            raise NotDispatched("The operation's id cannot name a file.")
        document = Document.from_arguments(arguments, operation_id)
        if document.output != self._output:
            # Both were chosen by whoever defines and runs the work; the reviewed one stands on its page as well.
            raise NotDispatched(
                f"The output directory that was reviewed is {document.output}, and this one is {self._output}."
            )
        return document

    def _publish(self, folder: Folder, document: Document, ends_at_s: float) -> dict[str, Any]:
        if not self._find(folder, document):
            self._tidy(folder, document)
            part = f".{document.operation_id}.{secrets.token_hex(8)}.part"
            try:
                identity = folder.write_new(part, document.content)
            except OSError as error:
                raise NotDispatched(f"The document cannot be written into {self._output}: {reason(error)}.") from error
            try:
                self._name(folder, document, part, ends_at_s=ends_at_s)
                if not folder.is_file(document.name, identity) and not self._find(folder, document):
                    raise OSError("The file that has the name is not the one that was written.")
            finally:
                folder.remove(part)
            folder.sync()
        if not folder.is_in_place():
            raise OSError("The output directory was replaced while the document was being published.")
        return self._receipt(document)

    def _name(self, folder: Folder, document: Document, part: str, *, ends_at_s: float) -> None:
        if time.monotonic() >= ends_at_s or not folder.is_in_place():
            raise NotDispatched("The time is over, or the output directory has been replaced.")
        try:
            folder.give_name(part, document.name)
        except FileExistsError:
            if not self._find(folder, document):
                raise
        except OSError as error:
            if error.errno not in _CERTAINLY_NOT_NAMED:
                raise
            raise NotDispatched(f"The file system gives no name: {reason(error)}.") from error

    def _find(self, folder: Folder, document: Document) -> bool:
        """Say whether this very document is published.

        A publisher that was killed between naming its file and removing the other name leaves a file of
        two names; the other one is removed here, for it is ours and in nobody's way.
        """
        try:
            content = folder.read(document.name, most_bytes=DOCUMENT_BYTES)
        except ForeignFileError:
            self._tidy(folder, document)
            content = folder.read(document.name, most_bytes=DOCUMENT_BYTES)
        if content is None:
            return False
        if content != document.content:
            raise ForeignFileError("The name is taken by a file with other content.")
        folder.sync()
        return True

    def _tidy(self, folder: Folder, document: Document) -> None:
        """Remove what killed publishers of this operation left under names that nobody reads.

        One that is not dead after all finds its file gone and has published nothing.
        """
        left = re.compile(rf"\.{re.escape(document.operation_id)}\.[0-9a-f]{{16}}\.part")
        for name in folder.names():
            if left.fullmatch(name):
                folder.remove(name)

    def _receipt(self, document: Document) -> dict[str, Any]:
        return {
            "outcome": Outcome.SUCCEEDED.value,
            "operation_id": document.operation_id,
            "effect_id": f"file:{document.name}",
            "result": {
                "path": str(Path(self._output) / document.name),
                "name": document.name,
                "sha256": document.sha256,
                "bytes": len(document.content),
            },
        }


class JsonResponseTool:
    """Makes a tool of calls that answer with JSON; they may raise what callbacks may. It is itself a tool.

    Attributes:
        execute: The callback that performs the effect.
        query: The callback that asks; None without `find`.
    """

    def __init__(
        self,
        call: Callable[[dict[str, Any], str, str, float], Any],
        *,
        find: Callable[[dict[str, Any], str, str, float], Any] | None = None,
        effect_id: Callable[[Any], str] | None = None,
    ) -> None:
        """Wrap the calls.

        Args:
            call: Performs the effect and returns the destination's answer, any JSON value: it happened.
            find: Asks the destination without performing the effect: its answer, or None if it knows
                nothing of it.
            effect_id: Picks the destination's identifier out of an answer. Without it, the answer's
                ``id`` if it is an object with one, else the digest of the answer.
        """
        self._call = call
        self._find = find
        self._effect_id = _effect_id if effect_id is None else effect_id
        self.query: Callback | None = None if find is None else self._ask

    def execute(
        self, arguments: dict[str, Any], operation_id: str, idempotency_key: str, timeout_seconds: float
    ) -> dict[str, Any]:
        """Perform the effect and return the receipt of its answer; raises what the call raises."""
        return self._receipt(self._call(arguments, operation_id, idempotency_key, timeout_seconds), operation_id)

    def _ask(
        self, arguments: dict[str, Any], operation_id: str, idempotency_key: str, timeout_seconds: float
    ) -> dict[str, Any]:
        answer = None if self._find is None else self._find(arguments, operation_id, idempotency_key, timeout_seconds)
        if answer is None:
            return {"outcome": Outcome.ABSENT.value, "operation_id": operation_id}
        return self._receipt(answer, operation_id)

    def _receipt(self, answer: Any, operation_id: str) -> dict[str, Any]:
        return {
            "outcome": Outcome.SUCCEEDED.value,
            "operation_id": operation_id,
            "effect_id": self._effect_id(answer),
            "result": answer,
        }


def _effect_id(answer: Any) -> str:
    named = answer.get("id") if isinstance(answer, dict) else None
    if isinstance(named, str | int) and not isinstance(named, bool) and named != "":
        return str(named)
    return f"sha256:{digest(answer).hex()}"
