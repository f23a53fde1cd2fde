"""Keys and nonces: where a master key is not, and that no nonce comes twice (V07, V10, V24)."""

from __future__ import annotations

import base64
import gc
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from continuity.errors import VaultError
from continuity.vault import nonces
from tests.crash.sweep import Secrets, files
from tests.integration.governed import govern
from tests.servers import ROOT, environment, initialised, start, stop

KEY = bytes(range(0x80, 0xA0))


def test_a_million_nonces_of_one_key_are_a_million():
    source = nonces.NonceSource(os.urandom)

    assert len({source.draw() for _ in range(1_000_000)}) == 1_000_000


def test_a_key_wears_out_at_half_of_what_is_allowed():
    assert nonces.SEALS_PER_KEY_MAX == 2**31
    source = nonces.NonceSource(os.urandom)
    source._drawn = iter(range(2**31, 2**31 + 2))

    source.draw()
    with pytest.raises(VaultError, match="rotate"):
        source.draw()


def test_a_repeating_generator_stops_every_write_of_a_ledger(sqlite_store, tmp_path):
    at = govern(sqlite_store, tmp_path)
    at.home.vault._entropy = bytes
    before = at.everything()

    with pytest.raises(VaultError, match="repeats itself"):
        at.create()

    assert at.everything() == before


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A server whose master key stands in a variable, and everything that it leaves."""
    folder = tmp_path_factory.mktemp("keyed")
    extra = {"ATMEM_VAULT_KEY": base64.b64encode(KEY).decode(), "ATMEM_SHRED_LIST": str(folder / "shred.list")}
    server = start(initialised(folder / "instance", extra), extra=extra)
    yield server
    stop(server)


def test_the_master_key_is_in_nothing_that_can_be_read_of_a_running_server(keyed):
    secrets = Secrets()
    secrets.learn_bytes("master key", KEY)
    process = Path(f"/proc/{keyed.process.pid}")
    seen = {
        "environment": (process / "environ").read_bytes(), "arguments": (process / "cmdline").read_bytes(),
        "log": keyed.log.read_bytes(), **files(keyed.instance.folder),
    }  # fmt: skip

    assert {name: found for name, content in seen.items() if (found := secrets.found_in(content))} == {}


PROGRAM = """
    import os, resource, sys
    from pathlib import Path
    from click.testing import CliRunner
    from app.cli import main
    from app.cli import terminal
    limits = []
    met = terminal.settings
    def settings():
        limits.append(resource.getrlimit(resource.RLIMIT_CORE))
        return met()
    terminal.settings = settings
    done = CliRunner().invoke(main, sys.argv[1:])
    print(resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize(
    "command",
    [["init"], ["status"], ["audit", "verify"]],
    ids=" ".join,
)
def test_no_command_that_may_hold_the_key_leaves_its_memory_on_disk(fresh_instance, command):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *command], cwd=ROOT, env=environment(fresh_instance.folder),
        capture_output=True, text=True, check=True, preexec_fn=lambda: None,
    )  # fmt: skip

    assert done.stdout.splitlines()[-1] == "(0, 0)"


def test_nothing_that_the_collector_sees_prints_or_pickles_the_key(site):
    key = base64.b64decode((site.wiring.settings.vault_key_file).read_text().split()[-1])
    secrets = Secrets()
    secrets.learn_bytes("master key", key)
    held = [
        each for each in gc.get_objects()
        if str(type(each).__module__).startswith(("continuity.", "app.", "observations."))
    ]  # fmt: skip

    assert len(held) > 50
    printed = "".join(repr(each) for each in held if not isinstance(each, type)).encode()
    assert secrets.found_in(printed) == []
    for holder in (site.wiring.vault, site.wiring.audit):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            pickle.dumps(holder)


def test_what_holds_everything_shows_no_key_when_it_is_printed(site):
    secrets = Secrets()
    secrets.learn_bytes("master key", base64.b64decode(site.wiring.settings.vault_key_file.read_text().split()[-1]))
    secrets.learn_bytes("signing key", site.wiring.secret_key)

    assert secrets.found_in(f"{site.wiring!r} {site.wiring.settings!r} {site.app.config.get('DEBUG')}".encode()) == []


def test_a_search_keeps_no_word_and_no_plain_hash_of_one(sqlite_store, tmp_path):
    """Equal words of one workspace share an index, which limits.md says; without the key nobody makes it."""
    import hashlib  # noqa: PLC0415 - what an attacker would use

    at = govern(sqlite_store, tmp_path)
    first, second = (at.create(f"quarterly-{name}")["workflow_id"] for name in ("one", "two"))
    content = (tmp_path / "atmem.db").read_bytes() + (tmp_path / "atmem.db-wal").read_bytes()

    assert at.listed(search="quarterly") == [second, first]
    for word in (b"quarterly", b"quarterly-one"):
        plain = [word, hashlib.sha256(word).digest(), hashlib.sha1(word).digest(), hashlib.md5(word).digest()]
        assert not [each for each in plain if each in content]
    assert "equal" in (ROOT / "SECURITY.md").read_text() + (ROOT / "continuity/vault/FORMAT.md").read_text()
