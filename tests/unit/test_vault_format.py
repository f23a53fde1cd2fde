"""The bytes of FORMAT.md, recomputed from its words alone and by the package."""

import hashlib
import hmac
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import continuity.vault
from continuity.vault import (
    EnvironmentKeyProvider,
    FileKeyProvider,
    Keyring,
    Place,
    ShredHead,
    ShredList,
    create_vault,
    open_vault,
)

MASTER, DATA, INDEX = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
STATE = ("continuity_operations", "wf_1", "op_1", "sealed_state")


def documented(heading, number=0):
    text = (Path(continuity.vault.__file__).parent / "FORMAT.md").read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"```text\n(.*?)```", section, re.DOTALL)[number]


def documented_bytes(heading, number=0):
    return bytes.fromhex(documented(heading, number))


def associated(*parts):
    spelled = [b"atmem-envelope-1", *(part.encode() for part in parts)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in spelled)


def sealed_by_hand(key, *, key_id, nonce, plaintext, place):
    head = b"\x01" + key_id.to_bytes(4, "big")
    return head + nonce + AESGCM(key).encrypt(nonce, plaintext, head + associated(*place))


WRAPPED_PLACE = ("continuity_partitions", "wf_1", "wf_1", "wrapped_key")
CANARY_PLACE = ("continuity_vault", "", "1", "sealed_canary")
INDEX_KEY_PLACE = ("continuity_vault", "", "1", "wrapped_index_key")


@pytest.mark.parametrize(
    ("heading", "number", "by_hand"),
    [
        ("Place", 1, associated(*STATE)),
        ("Envelope", 0, sealed_by_hand(DATA, key_id=1, nonce=b"\xa1" * 12, plaintext=b"hello", place=STATE)),
        (
            "Wrapped keys and the canary",
            0,
            sealed_by_hand(MASTER, key_id=7, nonce=b"\xa0" * 12, plaintext=DATA, place=WRAPPED_PLACE),
        ),
        (
            "Wrapped keys and the canary",
            1,
            sealed_by_hand(MASTER, key_id=7, nonce=b"\xc0" * 12, plaintext=b"atmem-vault-canary-1", place=CANARY_PLACE),
        ),
        (
            "Wrapped keys and the canary",
            2,
            sealed_by_hand(MASTER, key_id=7, nonce=b"\xc1" * 12, plaintext=INDEX, place=INDEX_KEY_PLACE),
        ),
        (
            "Blind index",
            1,
            hmac.digest(INDEX, b"\0\0\0\x0cworkflow_keyi\0\0\0\x013s\0\0\0\x0ainvoice-17", "sha256"),
        ),
    ],
)
def test_the_documented_bytes_follow_from_the_documented_words(heading, number, by_hand):
    assert documented_bytes(heading, number) == by_hand


@pytest.fixture
def shred_list(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "vault.shred"
    path.touch(mode=0o600)
    path.write_text(documented("Shred list", 1))
    return ShredList(path)


@pytest.fixture
def vault(shred_list):
    drawn = iter([DATA, b"\xa0" * 12, b"\xa1" * 12])
    return open_vault(
        Keyring({7: MASTER}, primary_id=7),
        canary=documented_bytes("Wrapped keys and the canary", 1),
        wrapped_index_key=documented_bytes("Wrapped keys and the canary", 2),
        shred_list=shred_list,
        recorded=shred_list.head,
        entropy=lambda size: next(drawn),
    )


def test_a_place_is_spelled_as_documented():
    assert Place(*STATE).associated_data() == documented_bytes("Place", 1)


def test_data_keys_and_values_are_sealed_as_documented(vault):
    key, stored = vault.new_partition("wf_1")

    assert stored.key_id == 7
    assert stored.wrapped == documented_bytes("Wrapped keys and the canary", 0)
    assert key.seal(b"hello", place=Place(*STATE)) == documented_bytes("Envelope")


def test_the_row_of_a_new_vault_is_sealed_as_documented():
    drawn = iter([b"\xc0" * 12, INDEX, b"\xc1" * 12])

    new = create_vault(Keyring({7: MASTER}, primary_id=7), entropy=lambda size: next(drawn))

    assert new.key_id == 7
    assert new.canary == documented_bytes("Wrapped keys and the canary", 1)
    assert new.wrapped_index_key == documented_bytes("Wrapped keys and the canary", 2)


def test_a_blind_index_is_made_as_documented(vault):
    assert vault.index("workflow_key", 3, "invoice-17") == documented_bytes("Blind index", 1)


def test_the_documented_shred_list_is_read_and_continued_as_documented(vault, shred_list):
    partition_ix = vault.index("shredded_partition", "wf_1")
    first_line, second_line = documented("Shred list", 1).splitlines(keepends=True)
    head = hashlib.sha256(first_line.encode()).digest()
    first = hashlib.sha256(head + (1).to_bytes(8, "big") + partition_ix).digest()
    second = hashlib.sha256(first + (2).to_bytes(8, "big") + b"\x22" * 32).digest()

    assert second_line == f"{partition_ix.hex()} {first.hex()}\n"
    assert shred_list.head == ShredHead(1, first)
    assert shred_list.contains(partition_ix)
    assert shred_list.append(b"\x22" * 32, recorded=ShredHead(0, head)) == ShredHead(2, second)
    assert shred_list.path.read_text() == documented("Shred list", 1) + f"{'22' * 32} {second.hex()}\n"


def shows_both_keys(keyring):
    place = Place("t", "", "1", "c")
    sealed = [
        sealed_by_hand(key, key_id=number, nonce=b"\0" * 12, plaintext=b"x", place=("t", "", "1", "c"))
        for number, key in ((1, MASTER), (2, DATA))
    ]
    opened = [
        keyring.cipher(number).decrypt(b"\0" * 12, value[17:], value[:5] + place.associated_data())
        for number, value in ((1, sealed[0]), (2, sealed[1]))
    ]
    return opened == [b"x", b"x"] and keyring.primary_id == 1


def test_the_documented_key_file_is_read(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "vault.key"
    path.touch(mode=0o600)
    path.write_text(documented("Key file"))

    assert shows_both_keys(FileKeyProvider(path).load())


def test_a_created_key_file_has_the_documented_form(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "vault.key"

    FileKeyProvider(path).create(entropy=lambda size: MASTER[:size])

    assert path.read_text() == "".join(documented("Key file").splitlines(keepends=True)[:2])


def test_the_documented_environment_value_is_read():
    environment = {"ATMEM_VAULT_KEY": documented("Environment variable").strip()}

    assert shows_both_keys(EnvironmentKeyProvider(environment=environment).load())
