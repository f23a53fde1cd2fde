"""Master keys under a passphrase, handed over, and what each source does when the key is rotated."""

from __future__ import annotations

import base64
import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

import continuity.vault
from continuity.errors import DecryptionError, ForbiddenError, KeySourceError, MalformedError, SealedError
from continuity.vault import (
    EnvironmentKeyProvider,
    FileKeyProvider,
    Keyring,
    PassphraseKeyProvider,
    SealedKeyFile,
    cleartext,
    files,
    handover,
    sealedkeys,
)
from continuity.vault.keyring import KEYS_MAX
from continuity.vault.passphrase import LONGEST, Cost, check_new, derive

CHEAP = Cost(memory_kib=8, time_cost=1, parallelism=1)
PASSPHRASE = "correct horse battery staple"
ONE, TWO = bytes(range(32)), bytes(range(32, 64))
RING = Keyring({7: ONE}, primary_id=7)
BOTH = Keyring({1: ONE, 2: TWO}, primary_id=1)


def documented(heading):
    text = (Path(continuity.vault.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"```text\n(.*?)```", section, re.DOTALL)[0].encode()


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


class TestFormat:
    def test_a_file_of_sealed_keys_is_what_its_words_say(self):
        content = documented("File of sealed keys")
        head, cost, line = content.splitlines(keepends=True)
        numbers = cost.split()
        salt = base64.b64decode(numbers[4])
        key = Argon2id(
            salt=salt, length=32, memory_cost=int(numbers[1]), iterations=int(numbers[2]), lanes=int(numbers[3])
        ).derive(PASSPHRASE.encode())
        parts = [b"atmem-envelope-1", b"sealed_keys", b"", b"7", cost]
        place = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        prefix = b"\x01" + (7).to_bytes(4, "big")
        sealed = prefix + b"\xa2" * 12 + AESGCM(key).encrypt(b"\xa2" * 12, ONE, prefix + place)

        assert (head, salt) == (b"atmem-sealed-keys 1\n", b"\x5a" * 16)
        assert line == b"7 " + base64.b64encode(sealed) + b"\n"
        assert sealedkeys.parse(content, name="x").opened(PASSPHRASE) == {7: ONE}

    def test_the_package_writes_just_that(self):
        drawn = iter([b"\x5a" * 16, b"\xa2" * 12])

        made = sealedkeys.seal(RING, PASSPHRASE, cost=Cost(1024, 2, 1), entropy=lambda _size: next(drawn))

        assert made.content() == documented("File of sealed keys")

    def test_a_hand_over_is_what_its_words_say(self):
        sealed = bytes.fromhex(documented("Hand-over").decode())
        private, ephemeral = (X25519PrivateKey.from_private_bytes(bytes(range(n, n + 32))) for n in (0, 64))
        mine, theirs = ephemeral.public_key().public_bytes_raw(), private.public_key().public_bytes_raw()
        secret = ephemeral.exchange(X25519PublicKey.from_public_bytes(theirs))
        key = HKDF(algorithm=hashes.SHA256(), length=32, salt=mine + theirs, info=b"atmem-handover-1").derive(secret)
        plaintext = (7).to_bytes(4, "big") + ONE
        by_hand = AESGCM(key).encrypt(b"\xa3" * 12, plaintext, b"\x01" + mine + theirs)

        assert sealed == b"\x01" + mine + b"\xa3" * 12 + by_hand
        assert handover.Receiver(private).opened(sealed) == {7: ONE}
        assert handover.seal(RING, theirs, ephemeral=ephemeral, nonce=b"\xa3" * 12) == sealed

    def test_the_example_of_transit_is_read(self, folder):
        from continuity.vault.transit import TransitKeyProvider, TransitSettings  # noqa: PLC0415

        path = folder / "vault.transit"
        path.touch(mode=0o600)
        path.write_bytes(documented("File of Transit keys"))
        settings = TransitSettings(url="http://127.0.0.1:9", mount="transit", key="atmem", token_file=folder / "t")

        assert TransitKeyProvider(path, settings).next_key_id(7) == 8


class TestSealedKeys:
    def test_every_key_opens_again_and_no_other_passphrase_opens_any(self):
        made = sealedkeys.parse(sealedkeys.seal(BOTH, PASSPHRASE, cost=CHEAP).content(), name="x")

        assert made.opened(PASSPHRASE) == {1: ONE, 2: TWO}
        for wrong in (PASSPHRASE + " ", PASSPHRASE.upper(), PASSPHRASE[:-1]):
            with pytest.raises(ForbiddenError) as refused:
                made.opened(wrong)
            assert refused.value.code == "wrong_passphrase"

    def test_two_files_of_the_same_keys_share_no_line_but_the_first(self):
        one, two = (sealedkeys.seal(BOTH, PASSPHRASE, cost=CHEAP).content().splitlines() for _ in range(2))

        assert [a == b for a, b in zip(one, two, strict=True)] == [True, False, False, False]

    def test_a_key_is_taken_out_without_the_passphrase_and_the_others_stay(self):
        made = sealedkeys.seal(BOTH, PASSPHRASE, cost=CHEAP).without_key(1)

        assert made.opened(PASSPHRASE) == {2: TWO}

    def test_a_key_is_added_only_with_the_passphrase(self):
        made = sealedkeys.seal(RING, PASSPHRASE, cost=CHEAP)

        with pytest.raises(ForbiddenError):
            made.with_keys("some other long passphrase", RING.with_key(8, TWO))
        assert made.with_keys(PASSPHRASE, RING.with_key(8, TWO)).opened(PASSPHRASE) == {7: ONE, 8: TWO}

    def test_no_byte_of_it_can_be_changed(self):
        content = sealedkeys.seal(RING, PASSPHRASE, cost=CHEAP).content()

        for at in range(len(content)):
            changed = bytearray(content)
            changed[at] ^= 1
            with pytest.raises((KeySourceError, ForbiddenError)):
                sealedkeys.parse(bytes(changed), name="x").opened(PASSPHRASE)

    def test_no_piece_of_it_passes_for_the_whole(self):
        content = sealedkeys.seal(RING, PASSPHRASE, cost=CHEAP).content()

        for length in range(len(content)):
            with pytest.raises(KeySourceError):
                sealedkeys.parse(content[:length], name="x")

    def test_a_line_does_not_open_under_another_number_or_in_another_file(self):
        made = sealedkeys.seal(BOTH, PASSPHRASE, cost=CHEAP)
        swapped = sealedkeys.SealedKeys(made.cost, made.salt, {1: made.keys[2], 2: made.keys[1]})
        other = sealedkeys.SealedKeys(made.cost, bytes(16), made.keys)

        for wrong in (swapped, other):
            with pytest.raises(ForbiddenError):
                wrong.opened(PASSPHRASE)

    @pytest.mark.parametrize(
        "line",
        [
            b"argon2id 99999999 1 1 ", b"argon2id 8 99 1 ", b"argon2id 8 1 17 ", b"argon2id 8 1 2 ", b"argon2id 0 1 1 ",
            b"argon2d 8 1 1 ", b"argon2id 08 1 1 ", b"argon2id 8 1 ",
        ],
    )  # fmt: skip
    def test_a_cost_out_of_bounds_is_refused_before_memory_is_taken(self, line):
        head, _, key = sealedkeys.seal(RING, PASSPHRASE, cost=CHEAP).content().splitlines(keepends=True)

        with pytest.raises(KeySourceError):
            sealedkeys.parse(head + line + base64.b64encode(bytes(16)) + b"\n" + key, name="x")

    def test_more_keys_than_there_may_be_are_refused(self):
        made = sealedkeys.seal(RING, PASSPHRASE, cost=CHEAP)
        many = sealedkeys.SealedKeys(made.cost, made.salt, dict.fromkeys(range(1, KEYS_MAX + 2), made.keys[7]))

        with pytest.raises(KeySourceError):
            sealedkeys.parse(many.content(), name="x")

    def test_what_it_prints_holds_no_envelope(self):
        made = sealedkeys.seal(RING, PASSPHRASE, cost=CHEAP)

        assert repr(made.keys[7])[2:20] not in repr(made)


class TestPassphrases:
    @pytest.mark.parametrize(
        "text",
        ["", "eleven char", "a" * 40, "ab" * 20, "x" * (LONGEST + 1), "nul \0 in the middle", "half \ud800 a pair"],
    )
    def test_what_must_not_be_one_is_refused_before_anything_is_computed(self, text):
        with pytest.raises(MalformedError):
            check_new(text)

    def test_what_was_typed_is_what_counts(self):
        texts = ["Correct horse battery", "correct horse battery", "correct horse battery ", "correct hørse battery"]
        salt = bytes(16)

        assert len({derive(text, salt=salt, cost=CHEAP) for text in texts}) == len(texts)

    @pytest.mark.parametrize("salt", [b"", bytes(15), bytes(17)])
    def test_a_salt_of_another_size_is_refused(self, salt):
        with pytest.raises(KeySourceError):
            derive(PASSPHRASE, salt=salt, cost=CHEAP)


class TestHandOver:
    def test_it_opens_for_its_receiver_alone(self):
        receiver, other = handover.Receiver(), handover.Receiver()
        sealed = handover.seal(BOTH, receiver.public)

        assert receiver.opened(sealed) == {1: ONE, 2: TWO}
        with pytest.raises(DecryptionError):
            other.opened(sealed)

    def test_no_byte_of_it_can_be_changed_and_no_piece_passes_for_the_whole(self):
        receiver = handover.Receiver()
        sealed = handover.seal(RING, receiver.public)

        for at in range(len(sealed)):
            changed = bytearray(sealed)
            changed[at] ^= 1
            for wrong in (bytes(changed), sealed[:at], sealed + bytes(at + 1)):
                with pytest.raises(DecryptionError):
                    receiver.opened(wrong)

    @pytest.mark.parametrize("public", [b"", bytes(31), bytes(32), bytes(33)])
    def test_nothing_is_sealed_for_what_is_no_public_key(self, public):
        with pytest.raises(DecryptionError):
            handover.seal(RING, public)

    def test_a_receiver_is_neither_pickled_nor_copied_and_prints_nothing(self):
        receiver = handover.Receiver()

        for take in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError):
                take(receiver)
        assert repr(receiver) == "<Receiver>"


def file_provider(folder):
    provider = FileKeyProvider(folder / "vault.key")
    provider.create()
    return provider


def passphrase_provider(folder):
    provider = PassphraseKeyProvider(folder / "vault.sealed", passphrase=PASSPHRASE, cost=CHEAP)
    provider.create()
    return provider


PROVIDERS = {"file": file_provider, "passphrase": passphrase_provider}


@pytest.mark.parametrize("make", PROVIDERS.values(), ids=PROVIDERS.keys())
class TestRotatingSources:
    def test_a_new_key_is_added_once_and_stays_until_the_old_one_is_dropped(self, folder, make):
        provider = make(folder)
        first = cleartext.export(provider.load())
        number = provider.next_key_id(1)

        both = cleartext.export(provider.add(number))
        again = cleartext.export(provider.add(number))
        provider.settle(number, keep=frozenset())
        provider.settle(number, keep=frozenset())

        assert number == 2
        assert both == again
        assert both == {1: first[1], 2: both[2]}
        assert cleartext.export(provider.load()) == {2: both[2]}

    def test_keys_that_are_still_named_are_kept(self, folder, make):
        provider = make(folder)
        provider.add(2)
        provider.add(3)

        provider.settle(3, keep=frozenset({1}))

        assert provider.load().key_ids == {1, 3}

    def test_a_number_is_never_given_again(self, folder, make):
        assert make(folder).next_key_id(41) == 42

    def test_there_is_an_end_to_how_many_there_may_be(self, folder, make):
        provider = make(folder)
        for number in range(2, KEYS_MAX + 1):
            provider.add(number)

        with pytest.raises(KeySourceError, match="16 master keys"):
            provider.next_key_id(1)

    def test_what_a_killed_writer_has_left_is_in_nobodys_way(self, folder, make):
        provider = make(folder)
        path = next(folder.iterdir())
        partial = files.partial_of(path)
        partial.touch(mode=0o600)
        partial.write_bytes(b"half of it")

        provider.add(2)

        assert provider.load().key_ids == {1, 2}
        assert sorted(folder.iterdir()) == [path]

    def test_a_source_that_cannot_be_written_keeps_what_it_had(self, folder, make, monkeypatch):
        provider = make(folder)
        before = next(folder.iterdir()).read_bytes()

        def fail(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files, "sync", fail)
        with pytest.raises(KeySourceError, match="No space left"):
            provider.add(2)
        monkeypatch.undo()

        assert [path.read_bytes() for path in folder.iterdir()] == [before]

    def test_a_file_that_is_open_to_others_is_not_replaced(self, folder, make):
        provider = make(folder)
        path = next(folder.iterdir())
        path.chmod(0o644)

        with pytest.raises(KeySourceError, match="mode 0600 or 0400"):
            provider.add(2)

        assert path.stat().st_mode & 0o777 == 0o644


class TestEnvironment:
    VALUE = f"1:{base64.b64encode(ONE).decode()},2:{base64.b64encode(TWO).decode()}"

    def test_the_second_key_of_the_variable_is_the_next_one(self):
        provider = EnvironmentKeyProvider(environment={"ATMEM_VAULT_KEY": self.VALUE})

        assert provider.next_key_id(1) == 2
        assert provider.add(2).key_ids == {1, 2}
        with pytest.raises(KeySourceError, match="2:<old>,3:<new>"):
            provider.next_key_id(2)
        with pytest.raises(KeySourceError, match="does not hold key 3"):
            provider.add(3)

    def test_keys_that_were_forgotten_are_gone(self):
        provider = EnvironmentKeyProvider(environment={"ATMEM_VAULT_KEY": self.VALUE})

        provider.forget()

        with pytest.raises(SealedError):
            provider.load()


class TestPassphraseProvider:
    def test_without_a_passphrase_it_waits(self, folder):
        passphrase_provider(folder)

        waiting = PassphraseKeyProvider(folder / "vault.sealed")

        for use in (waiting.load, lambda: waiting.add(2)):
            with pytest.raises(SealedError):
                use()
        assert waiting.next_key_id(1) == 2

    def test_a_weak_passphrase_makes_no_file(self, folder):
        with pytest.raises(MalformedError):
            PassphraseKeyProvider(folder / "vault.sealed", passphrase="short", cost=CHEAP).create()

        assert list(folder.iterdir()) == []

    def test_it_is_neither_pickled_nor_copied_and_prints_its_file_alone(self, folder):
        provider = passphrase_provider(folder)

        for take in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError):
                take(provider)
        assert PASSPHRASE not in repr(provider)

    @pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o400, False), (0o644, True), (0o660, True)])
    def test_its_file_is_as_private_as_a_key_file(self, folder, mode, refused):
        provider = passphrase_provider(folder)
        provider.file.path.chmod(mode)

        if not refused:
            assert provider.load()
            return
        with pytest.raises(KeySourceError, match="mode 0600 or 0400"):
            provider.load()

    def test_a_link_or_a_second_name_of_its_file_is_refused(self, folder):
        provider = passphrase_provider(folder)
        (folder / "second").hardlink_to(provider.file.path)
        with pytest.raises(KeySourceError, match="hard link"):
            provider.load()
        (folder / "second").unlink()
        provider.file.path.rename(folder / "real")
        provider.file.path.symlink_to(folder / "real")

        with pytest.raises(KeySourceError, match="symbolic link"):
            provider.load()

    def test_a_huge_file_is_not_read_to_refuse_it(self, folder):
        path = folder / "vault.sealed"
        path.touch(mode=0o600)
        path.write_bytes(b"x" * 5_000)

        with pytest.raises(KeySourceError, match="too large"):
            SealedKeyFile(path).read()


class TestDestroying:
    def test_what_was_there_is_overwritten_and_gone(self, folder):
        path = folder / "secret"
        path.touch(mode=0o600)
        path.write_bytes(b"the key")
        with path.open("rb") as kept:
            files.destroy(path)

            assert kept.read() == bytes(7)
        assert not path.exists()
        files.destroy(path)

    def test_a_file_that_is_not_ours_alone_is_not_overwritten(self, folder):
        path = folder / "secret"
        path.write_bytes(b"somebody's")
        path.chmod(0o644)

        with pytest.raises(KeySourceError):
            files.destroy(path)

        assert path.read_bytes() == b"somebody's"


MANY_AT_ONCE = """
import resource, threading
from continuity.vault.passphrase import Cost, derive
cost, made = Cost(memory_kib=32_768, time_cost=1, parallelism=1), set()
use = lambda: made.add(derive("correct horse battery staple", salt=bytes(16), cost=cost))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
threads = [threading.Thread(target=use) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(made), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="macOS counts in bytes, Windows does not count")
def test_many_passphrases_at_once_take_the_memory_of_two():
    done = subprocess.run([sys.executable, "-c", MANY_AT_ONCE], capture_output=True, text=True, check=True)

    made, mib = map(int, done.stdout.split())
    assert made == 1
    assert mib < 3 * 32
