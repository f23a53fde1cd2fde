"""A label printer: it prints, and that is all. It knows no keys, and cannot be asked what it has printed.

``python -m examples.blind_agent.printer --records paper.jsonl``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from examples.local_server import Answer, Records, serve


def answer(
    method: str, path: str, _headers: Mapping[str, str], body: Any, *, records: Records, options: argparse.Namespace
) -> Answer:
    """``POST /labels`` prints one. The records are the paper that comes out: only a person can look at it."""
    del options
    if (method, path) != ("POST", "/labels"):
        return 404, {"error": "There is nothing here."}
    if not body["text"]:
        return 422, {"error": "An empty label is not printed."}
    records.add(body)
    return 200, {"printed": True}


if __name__ == "__main__":
    serve(answer, argparse.ArgumentParser(prog="python -m examples.blind_agent.printer"))
