"""Key bytes appear in no repr, pickle, copy, exception or environment (V10, V26)."""

import base64
import copy
import os
import pickle
import subprocess
import sys
import textwrap
import traceback

import pytest

from continuity.errors import ContinuityError
from continuity.vault import (
    EnvironmentKeyProvider,
    FileKeyProvider,
    Keyring,
    Place,
    ShredList,
    create_vault,
    keys,
    open_vault,
)

MASTER = bytes(range(0x61, 0x81))  # printable on purpose, so that a repr would show it
PLACE = Place("t", "wf_1", "1", "c")


def spellings(secret):
    return [repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode(), repr(list(secret))[1:-1]]


def shows(text, secret=MASTER):
    return any(spelling in text for spelling in spellings(secret))


@pytest.fixture
def holders(tmp_path):
    """Everything that holds key material."""
    tmp_path.chmod(0o700)
    ring = Keyring({1: MASTER, 2: MASTER[::-1]}, primary_id=1)
    new, shred_list = create_vault(ring), ShredList.create(tmp_path / "shred")
    vault = open_vault(
        ring,
        canary=new.canary,
        wrapped_index_key=new.wrapped_index_key,
        shred_list=shred_list,
        recorded=shred_list.head,
    )
    key, stored = vault.new_partition("wf_1")
    provider = EnvironmentKeyProvider(environment={"ATMEM_VAULT_KEY": base64.b64encode(MASTER).decode()})
    return {"keyring": ring, "vault": vault, "data key": key, "provider": provider, "new": new, "stored": stored}


@pytest.mark.parametrize("name", ["keyring", "vault", "data key", "provider"])
def test_what_holds_a_key_cannot_be_pickled_or_copied(holders, name):
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            take(holders[name])
    assert not hasattr(holders[name], "__dict__")


def test_printing_shows_ids_and_no_key(holders):
    printed = {name: repr(holder) for name, holder in holders.items()}

    assert not shows(" ".join([*printed.values(), *map(str, holders.values())]))
    assert printed["keyring"] == "<Keyring primary=1 others=[2]>"
    assert printed["vault"] == "<Vault open>"
    assert printed["data key"] == "<PartitionKey wf_1>"
    assert printed["provider"] == "<EnvironmentKeyProvider ATMEM_VAULT_KEY>"
    assert printed["new"] == "NewVault(key_id=1)"
    assert printed["stored"] == "WrappedKey(key_id=1)"


def failures(holders, folder):
    """Every way of failing with a key at hand, each a function that raises."""
    ring, vault, stored = holders["keyring"], holders["vault"], holders["stored"]
    path = folder / "vault.key"
    path.touch(mode=0o600)
    path.write_bytes(keys._file_content([(1, True, MASTER)]) + b"1 accepted " + base64.b64encode(MASTER) + b"\n")
    environment = {"ATMEM_VAULT_KEY": base64.b64encode(MASTER).decode() + " "}
    yield FileKeyProvider(path).load
    yield EnvironmentKeyProvider(environment=environment).load
    yield lambda: FileKeyProvider(path).create(entropy=lambda size: MASTER)
    yield lambda: FileKeyProvider(folder / "none.key").create(entropy=lambda size: MASTER + b"!")
    yield lambda: ring.with_primary(9)
    yield lambda: ring.with_key(3, MASTER + b"!")
    yield lambda: Keyring({1: MASTER, 0: MASTER}, primary_id=1)
    yield lambda: ring.cipher(9)
    yield lambda: ring.without_key(9)
    yield lambda: vault.open_partition("wf_2", stored.wrapped, key_id=1)
    yield lambda: vault.unlock(ring, canary=b"", wrapped_index_key=b"")
    yield lambda: vault.unlock(ring, canary=holders["new"].canary, wrapped_index_key=b"")
    yield lambda: holders["data key"].open(b"", place=PLACE)


def test_no_exception_holds_a_key_not_even_in_the_variables_of_its_frames(holders, tmp_path):
    failing = list(failures(holders, tmp_path))

    for fail in failing:
        with pytest.raises(ContinuityError) as caught:
            fail()
        told = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
        assert "Error" in told
        assert not shows(told), told
        assert not shows(repr(caught.value.__dict__) + repr(caught.value.args))


def test_a_failed_decryption_tells_nothing_of_the_value(holders):
    sealed = bytearray(holders["data key"].seal(b"a secret that nobody may see", place=PLACE))
    sealed[-1] ^= 1

    with pytest.raises(ContinuityError) as caught:
        holders["data key"].open(bytes(sealed), place=PLACE)

    assert caught.value.args == ("A sealed value could not be opened.",)
    assert caught.value.__suppress_context__


def test_the_key_leaves_the_environment_of_the_process_and_of_its_children():
    program = """
        import os, subprocess, sys
        from pathlib import Path
        from continuity.vault import EnvironmentKeyProvider
        seen_before = os.environ["ATMEM_VAULT_KEY"].encode()[:20]
        provider = EnvironmentKeyProvider()
        initial = Path("/proc/self/environ")
        assert not initial.exists() or seen_before not in initial.read_bytes()
        assert "ATMEM_VAULT_KEY" not in os.environ
        child = [sys.executable, "-c", "import os; print('ATMEM_VAULT_KEY' in os.environ)"]
        assert subprocess.check_output(child) == b"False" + os.linesep.encode()
        print(provider.load().info())
    """
    environment = os.environ | {
        "ATMEM_VAULT_KEY": base64.b64encode(MASTER).decode(),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True, check=False
    )

    assert finished.stdout == "(KeyInfo(key_id=1, is_primary=True),)\n", finished.stderr
    assert not shows(finished.stdout + finished.stderr)
