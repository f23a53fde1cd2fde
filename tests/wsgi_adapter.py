"""Carries requests to an application in this process instead of over a socket."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import BaseAdapter
from werkzeug.test import EnvironBuilder, run_wsgi_app


class WSGIAdapter(BaseAdapter):
    """Calls a WSGI application; `fault`, when set, may lose the request or the reply of a path."""

    def __init__(self, app: Any) -> None:
        super().__init__()
        self.app = app
        self.fault: Callable[[str, str], None] = lambda _path, _when: None

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        path = urlsplit(str(request.url)).path
        self.fault(path, "request")
        body = request.body.encode() if isinstance(request.body, str) else request.body
        builder = EnvironBuilder(
            method=request.method, base_url=str(request.url).partition(path)[0], path=path,
            query_string=urlsplit(str(request.url)).query, headers=dict(request.headers), data=body,
        )  # fmt: skip
        chunks, status, headers = run_wsgi_app(self.app, builder.get_environ(), buffered=True)
        self.fault(path, "reply")
        response = requests.Response()
        response.status_code = int(status.split()[0])
        response.headers = requests.structures.CaseInsensitiveDict(headers)
        response.request = request
        response.url = str(request.url)
        response.raw = urllib3.HTTPResponse(io.BytesIO(b"".join(chunks)), headers=headers, preload_content=False)
        return response

    def close(self) -> None:
        """Nothing is open."""
