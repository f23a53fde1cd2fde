"""Which work a tool call is: the same call is the same workflow, for ever.

Rules:

* A call is known by the application's namespace, the thread, the node's `continuity_namespace`, the
  assistant message's id and the call's id. Nothing of what it says counts: two equal calls are two
  operations, and a call whose arguments were edited is still the same call (and is refused).
* LangGraph's ``checkpoint_ns`` never counts: it names a task, and a task is another one after a fork.
* The parts are hashed with their lengths, so that no two lists of parts have one key.

Source: docs/adr/0013.
"""

from __future__ import annotations

import hashlib
from typing import Final

KEY_PREFIX: Final = "call-"
_VERSION: Final = b"atmem-call-v1"


def workflow_key(*, namespace: str, thread_id: str, continuity_namespace: str, message_id: str, call_id: str) -> str:
    """Return the workflow key of one tool call: ``call-`` and 64 hex digits.

    Args:
        namespace: The application's name for its governed calls.
        thread_id: The conversation.
        continuity_namespace: Tells several governed nodes of one application apart; may be empty.
        message_id: Identifier of the assistant message that holds the call.
        call_id: Identifier of the call in its message.
    """
    digest = hashlib.sha256(_VERSION)
    for part in (namespace, thread_id, continuity_namespace, message_id, call_id):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return KEY_PREFIX + digest.hexdigest()
