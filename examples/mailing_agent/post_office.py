"""A mail service that sends whatever it is given, as often as it is given it, and can be asked what it has sent.

``python -m examples.mailing_agent.post_office --records sent.jsonl``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from examples.local_server import Answer, Records, serve


def answer(
    method: str, path: str, _headers: Mapping[str, str], body: Any, *, records: Records, options: argparse.Namespace
) -> Answer:
    """``POST /messages`` sends; ``GET /messages?reference=…`` lists what was sent under a reference."""
    del options
    parts = urlsplit(path)
    if parts.path != "/messages":
        return 404, {"error": "There is nothing here."}
    if method == "GET":
        reference = parse_qs(parts.query).get("reference", [""])[0]
        return 200, [sent for sent in records.all() if reference in {"", sent["reference"]}]
    if "@" not in body["to"]:
        return 422, {"error": "That is no address."}
    sent = {"id": f"mail_{len(records.all()) + 1}", **body}
    records.add(sent)
    return 202, sent


if __name__ == "__main__":
    serve(answer, argparse.ArgumentParser(prog="python -m examples.mailing_agent.post_office"))
