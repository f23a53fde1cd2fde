"""Two tools to start with: publishing a document into a directory, and any call that answers with JSON.

Example::

    publisher = DirectoryPublisher("./published")
    client.run_operation(workflow_id, "publish", {DirectoryPublisher.TOOL: publisher})
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from continuity.callbacks import Callback, NotDispatched, Refused
from continuity.decisions.states import Outcome
from continuity.errors import MalformedError, TooLargeError
from continuity.folder import Folder, ForeignFileError, reason, why_unusable
from continuity.jsontext import digest

DOCUMENT_BYTES: Final = 128 * 1024
_READABLE_BYTES: Final = 200 * 1024
"""A text that grows beyond this when JSON escapes it travels as base64, which a definition has room for."""

_OPERATION_ID: Final = re.compile(r"op_[0-9a-z]{8,64}")
"""Lower case alone: two ids can then never be one name on a file system that ignores case."""
_SUFFIX: Final = re.compile(r"\.[a-z0-9]{1,10}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

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

    TOOL: ClassVar[str] = "publish_document"

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

    def _reviewed(self, arguments: Mapping[str, Any], operation_id: str) -> _Document:
        if not _OPERATION_ID.fullmatch(operation_id):
            raise NotDispatched("The operation's id cannot name a file.")
        document = _Document.from_arguments(arguments, operation_id)
        if document.output != self._output:
            raise NotDispatched("The output directory is not the one that was reviewed.")
        return document

    def _publish(self, folder: Folder, document: _Document, ends_at_s: float) -> dict[str, Any]:
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

    def _name(self, folder: Folder, document: _Document, part: str, *, ends_at_s: float) -> None:
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

    def _find(self, folder: Folder, document: _Document) -> bool:
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

    def _tidy(self, folder: Folder, document: _Document) -> None:
        """Remove what killed publishers of this operation left under names that nobody reads.

        One that is not dead after all finds its file gone and has published nothing.
        """
        left = re.compile(rf"\.{re.escape(document.operation_id)}\.[0-9a-f]{{16}}\.part")
        for name in folder.names():
            if left.fullmatch(name):
                folder.remove(name)

    def _receipt(self, document: _Document) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True)
class _Document:
    operation_id: str
    name: str
    output: str
    sha256: str
    content: bytes = field(repr=False)

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any], operation_id: str) -> Self:
        """Check reviewed arguments; raises `NotDispatched`, for nothing has happened yet."""
        texts = [arguments.get(name) for name in ("output", "sha256", "encoding", "content", "suffix")]
        output, sha256, encoding, text, suffix = (text if isinstance(text, str) else "" for text in texts)
        try:
            content = base64.b64decode(text, validate=True) if encoding == "base64" else text.encode("utf-8", "strict")
        except (binascii.Error, ValueError):
            content = b""
        holds = (
            encoding in {"utf-8", "base64"}
            and (suffix == "" or _SUFFIX.fullmatch(suffix))
            and len(content) <= DOCUMENT_BYTES
            and hashlib.sha256(content).hexdigest() == sha256
            and arguments.get("bytes") == len(content)
        )
        if not holds:
            raise NotDispatched("The arguments are not those of a document to publish.")
        return cls(operation_id, operation_id + suffix, output, sha256, content)


def publish_arguments(document: str | os.PathLike[str], output: str | os.PathLike[str]) -> dict[str, Any]:
    """Make the arguments of a publication: the document itself and the directory, for a person to review.

    Args:
        document: A file of 1 byte to 128 KiB; its content is taken now and is what will be published.
        output: The directory to publish into. It is part of the definition, and need not be there yet:
            `make_output` makes it.

    Returns:
        ``document``, ``suffix``, ``encoding`` (``utf-8`` or ``base64``), ``content``, ``sha256``,
        ``bytes`` and ``output``.

    Raises:
        TooLargeError: The document has more than 128 KiB.
        MalformedError: The document is empty or no regular file, the output is something else than a
            directory, or its path cannot be written as text.
        OSError: The document cannot be read.
    """
    content = _content(document)
    path = Path(os.path.realpath(output))
    if path.exists() and not path.is_dir():
        raise MalformedError("The output must be a directory; something else has its name.")
    try:
        written = str(path).encode("utf-8", "strict").decode()
    except UnicodeEncodeError:
        raise MalformedError("The path of the output directory must be text.") from None
    name = Path(document).name.encode("utf-8", "replace").decode()
    suffix = Path(name).suffix.lower()
    encoding, text = _encoded(content)
    return {
        "document": name,
        "suffix": suffix if _SUFFIX.fullmatch(suffix) else "",
        "encoding": encoding,
        "content": text,
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "output": written,
    }


def publish_operation(
    document: str | os.PathLike[str], output: str | os.PathLike[str], *, name: str = "publish"
) -> dict[str, Any]:
    """Make the whole definition of a publication, ready for `ContinuityClient.create_workflow`.

    It declares that absence is final after a second: a publisher that wakes up later finds the same name
    and the same content, so that there is one file whatever happens.

    Args:
        document: See `publish_arguments`, which also says what is raised.
        output: See `publish_arguments`.
        name: The operation's name.

    Returns:
        The definition, with `DirectoryPublisher.TOOL` as its tool.
    """
    return {
        "name": name,
        "tool": DirectoryPublisher.TOOL,
        "arguments": publish_arguments(document, output),
        "capability": "query",
        "timeout_seconds": 30,
        "absence_final_after_seconds": 1,
    }


def make_output(operation: Mapping[str, Any]) -> None:
    """Make the directory of what `publish_operation` made, mode 0700, where it is missing; raises `OSError`.

    `continuity.folder.folder_made` takes it back when the work cannot be defined.
    """
    Path(operation["arguments"]["output"]).mkdir(mode=0o700, parents=True, exist_ok=True)


def _content(document: str | os.PathLike[str]) -> bytes:
    # Looked at before it is opened: opening a FIFO would wait for somebody to write.
    if not stat.S_ISREG(Path(document).stat().st_mode):
        raise MalformedError("The document must be a regular file.")
    with Path(document).open("rb") as file:
        content = file.read(DOCUMENT_BYTES + 1)
    if not content:
        raise MalformedError("The document is empty.")
    if len(content) > DOCUMENT_BYTES:
        raise TooLargeError(f"The document must have at most {DOCUMENT_BYTES:,} bytes.")
    return content


def _encoded(content: bytes) -> tuple[str, str]:
    try:
        text = content.decode("utf-8", "strict")
    except UnicodeDecodeError:
        text = ""
    is_readable = text.encode() == content and not _CONTROL.search(text)
    if is_readable and len(json.dumps(text, ensure_ascii=False).encode()) <= _READABLE_BYTES:
        return "utf-8", text
    return "base64", base64.b64encode(content).decode()


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
