"""One request to a destination, made so that the agent knows what it must know: did it leave, or not?"""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from continuity.client import NotDispatched


def ask(
    url: str, method: str, path: str, *, timeout_s: float, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request, once; return the status and the JSON of the answer.

    Raises:
        NotDispatched: No connection could be made: nothing has left.
        OSError, HTTPException: Anything later: nobody knows whether it was done.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.connect()
    except OSError as error:
        raise NotDispatched(f"{url} was not reached.") from error
    try:
        connection.request(
            method, path, json.dumps(body).encode(), {"Content-Type": "application/json"} | (headers or {})
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
