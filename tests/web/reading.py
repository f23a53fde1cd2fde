"""What tests read from the pages of Resume work."""

from __future__ import annotations

import html
import re

LIST = "/resume-work"


def page_of(scene):
    return f"{LIST}/{scene.workflow_id}"


def text_of(reply) -> str:
    """Return the words of a page, with one space where there was markup or white space."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", reply.text)).split())


def keys_in(reply) -> list[str]:
    return [html.unescape(key) for key in re.findall(r'class="table-main"[^>]*>([^<]*)<', reply.text)]


def cursor_in(reply) -> str:
    found = re.search(r'id="to-older"[^>]*href="([^"]*)"', reply.text)
    return html.unescape(found[1])


def poll_of(reply) -> str | None:
    found = re.search(r'hx-get="([^"]*)"', reply.text)
    return None if found is None else html.unescape(found[1])


def counts_in(reply) -> dict[str, str]:
    tabs = re.findall(r'id="tab-(\w+)"[^>]*>.*?class="tab-count">([^<]*)<', reply.text)
    return dict(tabs)
