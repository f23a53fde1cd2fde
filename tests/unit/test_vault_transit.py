"""Master keys that HashiCorp Vault's Transit engine wraps, against a stand-in that speaks its API."""

from __future__ import annotations

import re
import traceback
from functools import partial

import pytest

from continuity.errors import KeySourceError
from continuity.vault import Keyring, cleartext
from continuity.vault.transit import TransitKeyProvider, TransitSettings
from tests.patience import PATIENCE_S
from tests.transit import ANSWERS, TOKEN, running


@pytest.fixture
def transit():
    with running() as transit:
        yield transit


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(f"{TOKEN}\n")
    return tmp_path


def provider_in(folder, transit, *, timeout_s=PATIENCE_S, **fields):
    named = {"url": transit.url, "mount": "transit", "key": "atmem", "token_file": folder / "token", **fields}
    return TransitKeyProvider(folder / "vault.transit", TransitSettings(**named), timeout_s=timeout_s)


@pytest.fixture
def provider(folder, transit):
    made = provider_in(folder, transit)
    made.create()
    return made


def keys_of(ring):
    return cleartext.export(ring)


def test_a_key_that_was_made_is_unwrapped_again_at_every_start(folder, transit, provider):
    first = keys_of(provider.load())

    assert keys_of(provider_in(folder, transit).load()) == first
    assert list(first) == [1]
    assert {token for _, token in transit.asked} == {TOKEN}


def test_the_file_holds_the_key_in_no_spelling_and_has_its_documented_form(provider):
    key = keys_of(provider.load())[1]
    content = provider.path.read_bytes()

    assert key not in content
    assert re.fullmatch(rb"atmem-transit-keys 1\ntransit/atmem\n1 vault:v1:[A-Za-z0-9+/]+=*\n", content)
    assert provider.path.stat().st_mode & 0o777 == 0o600


def test_a_rotation_of_ours_adds_a_key_and_drops_the_old_one(provider):
    first = keys_of(provider.load())
    assert provider.next_key_id(1) == 2

    both = keys_of(provider.add(2))
    again = keys_of(provider.add(2))
    provider.settle(2, keep=frozenset())

    assert both == again
    assert both[1] == first[1]
    assert both[2] != first[1]
    assert keys_of(provider.load()) == {2: both[2]}


def test_transits_own_rotation_leaves_what_it_wrapped_before_readable(provider, transit):
    first = keys_of(provider.load())
    transit.rotate()

    assert keys_of(provider.load()) == first
    provider.add(2)
    assert b"2 vault:v2:" in provider.path.read_bytes()
    transit.least = 2
    with pytest.raises(KeySourceError, match="refuses the request"):
        provider.load()
    provider.settle(2, keep=frozenset())
    assert list(keys_of(provider.load())) == [2]


WORDS = {
    "sealed": "sealed or not ready", "no engine": "no such engine or key", "busy": "asked too often",
    "elsewhere": "none of Transit's",
}  # fmt: skip


@pytest.mark.parametrize("trouble", ANSWERS)
def test_whatever_it_answers_is_one_error_that_says_what_kind_of_trouble_it_is(provider, transit, trouble):
    transit.trouble = trouble
    content = provider.path.read_bytes()

    for use in (provider.load, lambda: provider.add(2)):
        with pytest.raises(KeySourceError) as refused:
            use()
        assert WORDS.get(trouble, "") in refused.value.message
        assert transit.url in refused.value.message
        assert TOKEN not in refused.value.message
    assert provider.path.read_bytes() == content
    transit.trouble = ""
    assert provider.load()


def test_a_slow_service_is_given_up_in_time(folder, transit, provider):
    transit.trouble = "slow"

    with pytest.raises(KeySourceError, match="does not answer in time"):
        provider_in(folder, transit, timeout_s=1).load()
    transit.may_answer.set()


def test_a_service_that_is_not_there_is_said_so(folder, transit, provider):
    with pytest.raises(KeySourceError, match="cannot be reached"):
        provider_in(folder, transit, url="http://127.0.0.1:9").load()


def test_a_token_that_was_revoked_is_refused_and_a_new_one_is_taken_from_its_file(folder, transit, provider):
    transit.tokens = {"hvs.new"}
    with pytest.raises(KeySourceError, match="refuses the token"):
        provider.load()

    (folder / "token").write_text("hvs.new\n")

    assert provider.load()


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb", b"\xff\xff", b"x" * 5_000])
def test_a_file_that_holds_no_token_is_refused_before_anybody_is_asked(folder, transit, provider, content):
    (folder / "token").write_bytes(content)
    transit.asked.clear()

    with pytest.raises(KeySourceError, match="token"):
        provider.load()

    assert transit.asked == []


def test_the_token_file_is_as_private_as_a_key_file(folder, provider):
    (folder / "token").chmod(0o644)

    with pytest.raises(KeySourceError, match="mode 0600 or 0400"):
        provider.load()


GARBAGE = {
    "empty": lambda content: b"",
    "head": lambda content: content.replace(b"keys 1", b"keys 2"),
    "cut": lambda content: content[:-1],
    "no key": lambda content: b"".join(content.splitlines(keepends=True)[:2]),
    "more": lambda content: content + b"\n",
    "twice": lambda content: content + content.splitlines(keepends=True)[2],
    "zero": lambda content: content.replace(b"\n1 ", b"\n0 "),
    "another": lambda content: content.replace(b"transit/atmem", b"transit/other"),
    "huge": lambda content: content + b"x" * 40_000,
}


@pytest.mark.parametrize("change", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_file_that_is_not_of_the_documented_form_is_refused(provider, change):
    provider.path.write_bytes(change(provider.path.read_bytes()))

    with pytest.raises(KeySourceError):
        provider.load()


def test_a_line_under_another_number_does_not_open(provider):
    provider.path.write_bytes(provider.path.read_bytes().replace(b"\n1 ", b"\n7 "))

    with pytest.raises(KeySourceError, match="not master key 7"):
        provider.load()


def test_nothing_is_made_where_the_service_does_not_wrap(folder, transit):
    transit.trouble = "sealed"

    with pytest.raises(KeySourceError):
        provider_in(folder, transit).create()

    assert not (folder / "vault.transit").exists()


@pytest.mark.parametrize("trouble", ["sealed", "numbers", "another key"])
def test_no_error_holds_a_key_not_even_in_the_variables_of_its_frames(folder, transit, provider, trouble):
    key = keys_of(provider.load())[1]
    transit.trouble = trouble
    mine = bytes(range(0x61, 0x81))

    wrap = partial(provider._wrap, provider._client(), Keyring({1: mine}, primary_id=1), 1)
    for use in (provider.load, wrap):
        with pytest.raises(KeySourceError) as refused:
            use()
        # Without this test's own frame, which has both.
        value = refused.value
        frames = traceback.TracebackException(type(value), value, value.__traceback__.tb_next, capture_locals=True)
        told = "".join(frames.format())
        assert "_asked" in told or "_trouble" in told
        assert repr(key)[2:-1] not in told
        assert mine.decode("latin-1") not in told


def test_a_proxy_of_the_environment_does_not_see_the_token(folder, transit, provider, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert provider.load()
