"""What is published: a document in the arguments of its operation, where people review it.

`continuity.tools` publishes it and hands on everything here that a host needs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from continuity.callbacks import NotDispatched
from continuity.errors import MalformedError, TooLargeError

DOCUMENT_BYTES: Final = 128 * 1024
PUBLISH: Final = "publish_document"
"""The name of the tool in a definition."""

_READABLE_BYTES: Final = 200 * 1024
"""A text that grows beyond this when JSON escapes it travels as base64, which a definition has room for."""
_SUFFIX: Final = re.compile(r"\.[a-z0-9]{1,10}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was reviewed, and the place that it is for.

    Attributes:
        operation_id: Names the file, with the suffix.
        name: The file's name.
        output: The directory.
        sha256: Of the content, in hex.
        content: All bytes.
    """

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
        The definition, with `PUBLISH` as its tool.
    """
    return {
        "name": name,
        "tool": PUBLISH,
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
