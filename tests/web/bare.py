"""A Flask application behind the real edge, with views that misbehave on purpose. It has no database."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Flask, Response

from app import errors
from app.body import read_json
from app.config import load_settings
from app.headers import Edge
from app.query import read_query
from app.replies import StrictJSONProvider
from continuity.errors import ContinuityError, error_from_code

BASE = "http://localhost"
SECRET = "sentinel-5e0c7a"


class FixedClock:
    """Wall and monotonic time, moved by hand."""

    def __init__(self) -> None:
        self.wall_us = 1_800_000_000_000_000
        self.elapsed_us = 0

    def now_us(self) -> int:
        return self.wall_us

    def monotonic_us(self) -> int:
        return self.elapsed_us


class BareFlask(Flask):
    json_provider_class = StrictJSONProvider


def bare_app(environ: Mapping[str, str] | None = None, *, clock: FixedClock | None = None) -> Flask:
    app = BareFlask("tests.web.bare", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    errors.install(app)

    @app.get("/page")
    def page() -> Response:
        return Response("<p>hello</p>", content_type="text/html; charset=utf-8")

    @app.get("/v1/dict")
    def dictionary() -> dict[str, str]:
        return {"name": "Zoë"}

    @app.get("/moved/<target>")
    def moved(target: str) -> Response:
        return Response(headers={"HX-Redirect": target})

    @app.get("/defect")
    def defect() -> Response:
        password = SECRET
        raise ValueError(f"cannot use {password}")

    @app.get("/refused/<code>")
    def refused(code: str) -> Response:
        raise error_from_code(code, "A sentence.")

    @app.get("/unlisted")
    def unlisted() -> Response:
        raise ContinuityError("A class that the table does not know.")

    @app.post("/v1/body/<int:limit>")
    def body(limit: int) -> dict[str, object]:
        return {"read": read_json(limit_bytes=limit)}

    @app.post("/v1/continuity/wf_1/outcome")
    def outcome() -> dict[str, str]:
        return {}

    @app.get("/v1/query")
    def query() -> dict[str, str]:
        return read_query("limit", "q")

    app.wsgi_app = Edge(app.wsgi_app, load_settings(environ or {}), clock or FixedClock())  # type: ignore[method-assign]
    return app
