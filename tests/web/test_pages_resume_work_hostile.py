"""Whatever hosts and people write is text on every page: the same elements, the same attributes (X01, X03)."""

from __future__ import annotations

import html
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from tests.web.pages import get, post
from tests.web.reading import LIST, page_of
from tests.web.scenes import MAIL, QUERY, Stage

CORPUS = {
    "script": "<script>alert(1)</script>",
    "image": '"><img src=x onerror=alert(1)>',
    "template": "{{7*7}}{% print(config) %}${7*7}",
    "end of a field": "</textarea></pre></svg></details><h1>x</h1>",
    "quotes": "\"' onmouseover='x' autofocus onfocus=\"y\" `",
    "comment": "<!--<![CDATA[ --> x <? ?>",
    "htmx": '<div hx-get="/x" hx-trigger="load"></div>',
    "link": "javascript:alert(1)",
    "right to left": "safe\u202etxt.exe\u2066\u2069",
    "zero width": "pay\u200bpal\ufeff\u00ad",
    "ANSI": "\x1b[2J\x1b[31mred",
    "NUL": "a\0b",
    "separators": "a\u2028b\u2029c\x85d",
    "tag characters": "a\U000e0041\U000e0042",
    "long": "x" * 10_000,
    "entities": "&lt;b&gt;&amp;&#x3c;",
}
SEEN = {"right to left": ("\u202e", "202e"), "zero width": ("\u200b", "200b"), "ANSI": ("\x1b", "001b"),
        "separators": ("\u2028", "2028"), "tag characters": ("\U000e0041", "db40")}  # fmt: skip


class Shape(HTMLParser):
    """The elements of a page with the names of their attributes; no text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, tuple(name for name, _ in attrs)))

    def handle_comment(self, data):
        self.elements.append(("comment", ()))

    def handle_decl(self, decl):
        self.elements.append(("decl", ()))

    def unknown_decl(self, data):
        self.elements.append(("decl", ()))

    def handle_pi(self, data):
        self.elements.append(("pi", ()))


def tame(text: str) -> str:
    """Return text of the same length and lines that is not hostile."""
    return "".join(character if character == "\n" else "x" for character in text)


def printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)[:256]


def perform(stage, text, reason):
    """Put a text wherever a host or a person can put one; return the workflows."""
    arguments = {"to": text, f"k{text}": [text, {"deep": text}]}
    hostile = {**MAIL, "tool": printable(text), "arguments": arguments}
    effect_id = text[:1_000]
    completed = stage.ready({**hostile, **QUERY})
    first = completed.lose()
    completed.begin().report("confirmed_succeeded", effect_id=effect_id, result={f"r{text}": text})
    first.report("confirmed_succeeded", effect_id=f"{effect_id}!", result=text)
    stopped = stage.ready(hostile)
    stopped.begin().report("unknown", detail=text)
    stage.site.clock.advance(300)
    stopped.stop(reason=f"Because {reason}")
    confirmed = stage.ready(hostile)
    confirmed.lose()
    confirmed.confirm(happened=False, reason=f"Since {reason}")
    waiting = stage.ready(hostile)
    waiting.lose()
    return [completed, stopped, confirmed, waiting]


@pytest.fixture
def stage(site):
    return Stage(site)


@pytest.fixture
def op(stage):
    stage.site.person("op")
    return stage.site.signed_in("op")


@pytest.mark.parametrize("what", [name for name in CORPUS if name != "NUL"])
def test_hostile_text_makes_no_element_and_no_attribute(stage, op, what):
    text = CORPUS[what]
    reason = text[:900]
    tamed = perform(stage, tame(text), tame(reason))
    performed = perform(stage, text, reason)
    stage.site.clock.advance(600)
    browser = stage.site.signed_in("op")

    for harmless, scene in zip(tamed, performed, strict=True):
        page, plain = get(browser, page_of(scene)), get(browser, page_of(harmless))
        assert page.status_code == plain.status_code == 200
        assert Shape(page.text).elements == Shape(plain.text).elements
        if what in SEEN:
            hidden, written = SEEN[what]
            assert hidden not in page.text
            assert f"\\u{written}" in page.text


@pytest.mark.parametrize("what", [name for name in CORPUS if name not in {"long", "NUL", "ANSI", "separators"}])
def test_a_hostile_search_comes_back_as_text(op, what):
    plain = Shape(get(op, f"{LIST}?q=!!").text).elements

    page = get(op, f"{LIST}?q={quote(CORPUS[what])}")

    found = Shape(page.text).elements
    if page.status_code == 422:
        assert found == plain
    else:
        assert page.status_code in {200, 400}
        assert not {tag for tag, _ in found} - {tag for tag, _ in plain} - {"a", "p", "h2", "div", "svg", "path"}


@pytest.mark.parametrize("what", CORPUS)
def test_what_was_written_into_a_form_comes_back_as_text(stage, op, what):
    scene = stage.mail()
    scene.lose()
    fields = {
        "name": "send-mail", "happened": "yes", "revision": str(scene.view()["revision"]), "late_receipts": "0",
        "effect_id": "e", "result": "{",
    }  # fmt: skip

    def sent(text):
        return post(
            op, f"{page_of(scene)}/confirm", {**fields, "effect_id": text, "result": f"{{{text}", "reason": text}
        )

    page, plain = sent(CORPUS[what]), sent(tame(CORPUS[what]))

    assert page.status_code == plain.status_code == 422
    if what != "NUL":
        assert Shape(page.text).elements == Shape(plain.text).elements
    if what == "NUL":
        assert html.unescape(page.text).count("Holds a character that cannot be kept") == 2
    elif what != "long":
        assert CORPUS[what].splitlines()[0] in html.unescape(page.text)
