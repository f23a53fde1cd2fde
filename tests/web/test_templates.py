"""What may stand in a template, and what every template must have (W07, X02, X03)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import app
from app.cli import main
from app.pages.display import utc_iso, utc_text, visible

FOLDER = Path(app.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").rglob("*"))
FILES = [path for path in TEMPLATES if path.is_file()]
PAGES = [path for path in FILES if path.relative_to(FOLDER / "templates").parts[0] in {"pages", "errors"}]

BANNED = {
    "hx-on": r"\bhx-on\b|\bhx-on:",
    "hx-vars": r"\bhx-vars\b",
    "hx-ext": r"\bhx-ext\b",
    "hx-disable": r"\bhx-disable\b",
    "js: and javascript:": r"\bjs:|javascript:",
    "a filter in hx-trigger": r"hx-trigger\s*=\s*[\"'][^\"']*\[",
    "an inline script": r"<script(?![^>]*\bsrc=)",
    "an inline style": r"<style|\sstyle\s*=",
    "an event handler": r"\son[a-z]+\s*=",
    "the safe filter": r"\|\s*safe\b",
    "Markup": r"\bMarkup\b",
    "autoescape off": r"autoescape",
    "an unquoted attribute": r"[\w-]+=\{\{",
    "tojson in double quotes": r"=\"[^\"]*\|\s*tojson",
    "a link that data makes": (
        r"(?:href|src|action|hx-get|hx-post)=\"\{\{(?!\s*(?:url_for\(|action\b|back\b|[a-z_.]*address\b))"
    ),
    "an address of another host": r"(?:href|src)=\"(?:https?:)?//",
    "a secret in an address": r"url_for\([^)]*csrf",
    "hx-headers": r"\bhx-headers\b",
    "a method that no form has": r"\bhx-(?:delete|put|patch)\b",
}
"""Never in a template, and why we look: each is a way around escaping or the Content-Security-Policy.

A link comes from `url_for`, or from a variable that the view has filled from `url_for`.
"""
WRITTEN = {
    "hx-on": "<p hx-on:click='x()'>",
    "hx-vars": '<p hx-vars="a:b">',
    "hx-ext": '<p hx-ext="sse">',
    "hx-disable": "<p hx-disable>",
    "js: and javascript:": '<p hx-vals="js:{a: 1}">',
    "a filter in hx-trigger": '<p hx-trigger="click[ctrlKey]">',
    "an inline script": "<script>alert(1)</script>",
    "an inline style": '<p style="color: red">',
    "an event handler": '<p onclick="x()">',
    "the safe filter": "{{ name | safe }}",
    "Markup": "{{ Markup(name) }}",
    "autoescape off": "{% autoescape false %}",
    "an unquoted attribute": "<p title={{ name }}>",
    "tojson in double quotes": '<p hx-vals="{{ name | tojson }}">',
    "a link that data makes": '<a href="{{ receipt.url }}">',
    "an address of another host": '<img src="https://e.example/x.png">',
    "a secret in an address": "{{ url_for('x.y', csrf_token=token) }}",
    "hx-headers": "<body hx-headers='{}'>",
    "a method that no form has": "<button hx-delete='/x'>",
}


def name_of(path):
    return str(path.relative_to(FOLDER / "templates"))


def code_of(path):
    """Return the template without its comments."""
    return re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_template_is_html_that_is_escaped_and_runs_nothing(path):
    assert path.suffix == ".html"

    assert [what for what, pattern in BANNED.items() if re.search(pattern, code_of(path))] == []


@pytest.mark.parametrize("what", BANNED)
def test_the_ban_finds_what_it_bans(what):
    assert re.search(BANNED[what], WRITTEN[what])


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_page_has_a_title(path):
    assert re.search(r"\{% block title %\}\S", code_of(path))
    assert re.search(r"\{% extends ", code_of(path))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_form_that_posts_proves_its_session(path):
    code = code_of(path)
    macros = re.findall(r"\{%-? macro (\w+)\(.*?endmacro", code, flags=re.DOTALL)
    bodies = dict(zip(macros, re.findall(r"\{%-? macro .*?endmacro", code, flags=re.DOTALL), strict=True))
    proving = ["csrf", *(name for name, body in bodies.items() if "csrf(" in body)]
    forms = re.findall(r"<form\b[^>]*method=\"post\".*?</form>", code, flags=re.DOTALL)

    assert [form[:80] for form in forms if not any(f"{name}(" in form for name in proving)] == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_element_names_its_own_target_and_swap(path):
    """Nothing is inherited: either version of htmx does the same."""
    for tag in re.findall(r"<[a-z][^<>]*\bhx-(?:get|post)=[^<>]*>", code_of(path)):
        assert "hx-target=" in tag, tag
        assert "hx-swap=" in tag, tag


def test_every_template_compiles_and_escapes(site):
    environment = site.app.jinja_env
    for path in FILES:
        environment.get_template(name_of(path))

    assert environment.autoescape is True or environment.autoescape("x.html") is True
    assert "<b>" not in environment.from_string("{{ name }}").render(name="<b>")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_command_that_a_page_names_is_there(path):
    for text in re.findall(r"\batmem ([a-z-]+(?: [a-z-]+)*)", code_of(path)):
        found = CliRunner().invoke(main, [*text.split(), "--help"])
        assert found.exit_code == 0, text


def test_no_python_makes_html_of_text():
    for path in (FOLDER / "pages").rglob("*.py"):
        assert not re.search(r"\bMarkup\(|render_template_string", path.read_text()), path.name


@pytest.mark.parametrize(
    ("hidden", "seen"),
    [
        ("abc", "abc"),
        ("a b\nc\td", "a b\nc\td"),
        ("Grüße 你好 😀", "Grüße 你好 😀"),
        ("a\u202eb", "a\\u{202E}b"),
        ("a\u200bb", "a\\u{200B}b"),
        ("a\u2066b\u2069", "a\\u{2066}b\\u{2069}"),
        ("\ufeffa", "\\u{FEFF}a"),
        ("a\x1b[31mb", "a\\u{001B}[31mb"),
        ("a\0b\x7f", "a\\u{0000}b\\u{007F}"),
        ("a\rb\x85c", "a\\u{000D}b\\u{0085}c"),
        ("a\u2028b\u2029", "a\\u{2028}b\\u{2029}"),
        ("a\u00adb", "a\\u{00AD}b"),
        ("a\U000e0041b", "a\\u{E0041}b"),
        ("a\ud800b", "a\\u{D800}b"),
        ("a\u00a0b", "a\u00a0b"),
        ("a\u3164b", "a\\u{3164}b"),
        ("a\u115fb", "a\\u{115F}b"),
        ("a\u034fb\ufe0f", "a\\u{034F}b\\u{FE0F}"),
        (17, "17"),
    ],
    ids=ascii,
)
def test_what_hides_or_turns_round_is_seen(hidden, seen):
    assert visible(hidden) == seen


@pytest.mark.parametrize("seconds", [0, -1, 1_750_000_000.25, 1e300, 253_402_300_799])
def test_any_number_a_host_reports_is_a_moment(seconds):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", utc_iso(seconds))
    assert utc_text(seconds).endswith(" UTC")


def test_a_moment_is_written_in_utc():
    assert utc_iso(1_750_000_000) == "2025-06-15T15:06:40Z"
    assert utc_text(1_750_000_000) == "2025-06-15 15:06:40 UTC"
