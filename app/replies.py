"""JSON replies, and the id by which a request is known in log, audit and error."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

from flask import Response, request
from flask.json.provider import DefaultJSONProvider

JSON_TYPE: Final = "application/json; charset=utf-8"
# Kept, as `json.dumps` makes a new encoder for every value when it is told how to write.
_WRITER: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)
REQUEST_ID_KEY: Final = "atmem.request_id"


def new_request_id() -> str:
    """Return ``req_`` and 24 hex digits."""
    return "req_" + secrets.token_hex(12)


def request_id() -> str:
    """Return the id of the request that is being served."""
    identifier: str = request.environ[REQUEST_ID_KEY]
    return identifier


def json_bytes(value: Any) -> bytes:
    """Write `value` as compact JSON in UTF-8, keys in order; NaN and Infinity are refused."""
    return _WRITER.encode(value).encode()


def json_response(value: Mapping[str, Any], status: int = 200) -> Response:
    """Answer with a JSON object."""
    return Response(json_bytes(value), status, content_type=JSON_TYPE)


class StrictJSONProvider(DefaultJSONProvider):
    """What Flask uses when a view returns a dict: the same bytes as `json_response`."""

    mimetype = JSON_TYPE

    def dumps(self, obj: Any, **_kwargs: Any) -> str:
        return json_bytes(obj).decode()

    def response(self, *args: Any, **kwargs: Any) -> Response:
        return json_response(self._prepare_response_obj(args, kwargs))
