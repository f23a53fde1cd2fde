"""A server in this process whose pages fail on request: error pages as a browser gets them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from werkzeug.serving import WSGIRequestHandler, make_server

from app import create_app
from app.auth.admission import public
from app.config import load_settings
from app.wiring import build
from continuity import errors
from tests.entry import OVERRIDES
from tests.servers import Instance

FAILURES = {
    403: errors.ForbiddenError("not shown"),
    404: errors.NotFoundError("not shown"),
    409: errors.ConflictError("not shown", code="revision_conflict"),
    413: errors.TooLargeError("not shown"),
    423: errors.SealedError("not shown"),
    429: errors.ThrottledError("not shown", retry_after_s=5),
    500: ZeroDivisionError("not shown"),
    503: errors.UnavailableError("not shown", retry_after_s=5),
}


class _Quiet(WSGIRequestHandler):
    def log(self, *_args: object) -> None:
        """The edge writes the log."""


@contextmanager
def failing_server(instance: Instance) -> Iterator[str]:
    """Serve `instance` with ``/fail/<status>`` beside its pages; yield the address."""
    wiring = build(load_settings({"ATMEM_INSTANCE": str(instance.folder)}), overrides=OVERRIDES)
    app = create_app(wiring=wiring)

    @public
    def fail(status: int) -> None:
        raise FAILURES[status]

    app.add_url_rule("/fail/<int:status>", "account.fail", fail)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        wiring.close()
