"""Sealed values open unchanged at their own place and nowhere else (V01 to V04, V07, V08)."""

import itertools

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from continuity.errors import DecryptionError, KeySourceError, SealedError, VaultError
from continuity.vault import Keyring, Place, ShredHead, ShredList, Vault, create_vault, envelope, nonces, open_vault
from continuity.vault.partition import Latch, PartitionKey

MASTER = bytes(range(32))
PLACE = Place("continuity_operations", "wf_1", "op_1", "sealed_state")


def a_partition_key(partition_id="wf_1", key=b"\x07" * 32, entropy=None):
    drawn = itertools.count()
    return PartitionKey(
        partition_id,
        cipher=AESGCM(key),
        latch=Latch(),
        entropy=entropy or (lambda size: next(drawn).to_bytes(size, "big")),
    )


class Parts:
    """What a vault is opened from, as a key file, a database row and a shred list hold it."""

    def __init__(self, folder):
        self.keyring = Keyring({1: MASTER}, primary_id=1)
        self.new = create_vault(self.keyring)
        self.shred_list = ShredList.create(folder / "vault.shred")

    def open(self, keyring=None, **over):
        stored = {"canary": self.new.canary, "wrapped_index_key": self.new.wrapped_index_key}
        shred = {"shred_list": self.shred_list, "recorded": self.shred_list.head}
        return open_vault(keyring or self.keyring, **(stored | shred | over))


@pytest.fixture
def parts(tmp_path):
    tmp_path.chmod(0o700)
    return Parts(tmp_path)


@pytest.fixture
def vault(parts):
    return parts.open()


places = st.builds(Place, st.text(max_size=20), st.just("wf_1"), st.text(max_size=20), st.text(max_size=20))


class TestProperties:
    @given(plaintext=st.binary(max_size=500), place=places)
    def test_what_was_sealed_opens_unchanged(self, plaintext, place):
        key = a_partition_key()

        assert key.open(key.seal(plaintext, place=place), place=place) == plaintext

    @given(plaintext=st.binary(max_size=200), data=st.data())
    def test_any_changed_byte_fails(self, plaintext, data):
        key = a_partition_key()
        sealed = bytearray(key.seal(plaintext, place=PLACE))
        sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))

        with pytest.raises(DecryptionError):
            key.open(bytes(sealed), place=PLACE)

    @given(plaintext=st.binary(max_size=200), data=st.data())
    def test_any_truncation_fails(self, plaintext, data):
        key = a_partition_key()
        sealed = key.seal(plaintext, place=PLACE)
        start = data.draw(st.integers(0, len(sealed)))
        end = data.draw(st.integers(start, len(sealed)))

        if end - start < len(sealed):
            with pytest.raises(DecryptionError):
                key.open(sealed[start:end], place=PLACE)

    @given(place=places, other=places)
    def test_another_place_fails(self, place, other):
        key = a_partition_key()
        sealed = key.seal(b"x", place=place)

        if other != place:
            assert other.associated_data() != place.associated_data()
            with pytest.raises(DecryptionError):
                key.open(sealed, place=other)


class TestNegativeList:
    """Each way a stored value can be wrong, alone."""

    key = a_partition_key()
    sealed = key.seal(b"what happened", place=PLACE)

    def refuses(self, value, place=PLACE, key=None):
        with pytest.raises(DecryptionError) as caught:
            (key or self.key).open(value, place=place)
        assert str(caught.value) == "A sealed value could not be opened."
        assert caught.value.code == "vault_integrity_error"
        return True

    def test_every_single_flipped_bit_fails(self):
        for position, bit in itertools.product(range(len(self.sealed)), range(8)):
            changed = bytearray(self.sealed)
            changed[position] ^= 1 << bit
            assert self.refuses(bytes(changed))

    def test_the_last_byte_flipped_fails(self):
        assert self.refuses(self.sealed[:-1] + bytes([self.sealed[-1] ^ 1]))

    def test_every_shorter_length_fails(self):
        for length in range(len(self.sealed)):
            assert self.refuses(self.sealed[:length])

    def test_an_extra_byte_fails(self):
        assert self.refuses(self.sealed + b"\0")
        assert self.refuses(b"\0" + self.sealed)

    def test_an_absurd_length_fails_without_a_try(self):
        key = PartitionKey("wf_1", cipher=None, latch=Latch(), entropy=bytes)  # using it would be another error

        absurd = b"\x01\0\0\0\x01" + bytes(envelope.PLAINTEXT_BYTES_MAX + envelope.OVERHEAD_BYTES)
        assert self.refuses(absurd, key=key)

    @pytest.mark.parametrize("value", [None, "text", 5, bytearray(sealed), memoryview(sealed), [sealed]])
    def test_anything_but_bytes_fails(self, value):
        assert self.refuses(value)

    def test_a_plaintext_row_fails(self):
        assert self.refuses(b'{"status":"completed","receipt":{"effect_id":"made up"}}')

    def test_an_envelope_marked_as_unencrypted_fails(self):
        assert self.refuses(b"\x00" + self.sealed[1:])

    def test_an_unknown_version_fails(self):
        assert self.refuses(b"\x02" + self.sealed[1:])

    def test_another_key_id_fails_even_where_the_key_is_the_same(self):
        nonce, sealed_by_key_2 = bytes(12), b"\x01\0\0\0\x02"
        moved = AESGCM(b"\x07" * 32).encrypt(nonce, b"x", sealed_by_key_2 + PLACE.associated_data())

        assert self.refuses(sealed_by_key_2 + nonce + moved)

    def test_missing_associated_data_fails(self):
        bare = AESGCM(b"\x07" * 32).encrypt(bytes(12), b"x", None)

        assert self.refuses(b"\x01\0\0\0\x01" + bytes(12) + bare)

    def test_another_key_fails(self):
        assert self.refuses(self.sealed, key=a_partition_key(key=b"\x08" * 32))

    def test_nothing_moves_between_tables_partitions_rows_and_columns(self):
        spots = [
            Place(*parts)
            for parts in itertools.product(("t1", "t2"), ("wf1", "wf11"), ("12", "2", "21"), ("sealed_a", "sealed_b"))
        ]
        keys = {name: a_partition_key(name) for name in ("wf1", "wf11")}

        for at, other in itertools.permutations(spots, 2):
            moved = keys[at.partition_id].seal(b"x", place=at)
            assert self.refuses(moved, place=other, key=keys[other.partition_id])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Place("t", "wf1", "12", "c"), Place("t", "wf11", "2", "c")),
        (Place("t", "wf1", "", "c"), Place("t", "", "wf1", "c")),
        (Place("ta", "b", "1", "c"), Place("t", "ab", "1", "c")),
        (Place("t", "p", "1c", ""), Place("t", "p", "1", "c")),
        (Place("t", "p", "1\0\0\0\1c", ""), Place("t", "p", "1", "c")),
        (Place("", "", "", ""), Place("", "", "", "\0")),
    ],
)
def test_places_that_look_alike_when_glued_together_differ(one, two):
    assert one.associated_data() != two.associated_data()


class TestSealing:
    def test_the_same_value_is_never_sealed_to_the_same_bytes(self):
        key = a_partition_key()

        assert key.seal(b"x", place=PLACE) != key.seal(b"x", place=PLACE)

    def test_a_value_of_the_largest_size_opens_and_one_above_is_not_sealed(self):
        key = a_partition_key()
        largest = bytes(envelope.PLAINTEXT_BYTES_MAX)

        assert key.open(key.seal(largest, place=PLACE), place=PLACE) == largest
        with pytest.raises(RuntimeError):
            key.seal(largest + b"\0", place=PLACE)

    def test_a_place_of_another_partition_is_not_sealed(self):
        with pytest.raises(RuntimeError):
            a_partition_key("wf_2").seal(b"x", place=PLACE)

    def test_a_generator_that_repeats_itself_stops_the_write(self):
        key = a_partition_key(entropy=bytes)
        key.seal(b"x", place=PLACE)

        with pytest.raises(VaultError, match="repeats itself"):
            key.seal(b"y", place=PLACE)

    def test_a_nonce_that_the_database_holds_already_stops_the_write(self):
        sealed = a_partition_key(entropy=bytes).seal(b"x", place=PLACE)
        key = a_partition_key(entropy=bytes)
        key.open(sealed, place=PLACE)

        with pytest.raises(VaultError, match="repeats itself"):
            key.seal(b"y", place=PLACE)

    def test_a_key_stops_before_its_nonces_wear_out(self, monkeypatch):
        monkeypatch.setattr(nonces, "SEALS_PER_KEY_MAX", 2)
        key = a_partition_key()
        key.seal(b"x", place=PLACE)
        key.seal(b"x", place=PLACE)

        with pytest.raises(VaultError, match="rotate"):
            key.seal(b"x", place=PLACE)

    def test_what_is_remembered_of_nonces_is_bounded(self):
        source = nonces.NonceSource(a_counter())
        for _ in range(nonces.REMEMBERED_MAX + 10):
            source.draw()

        assert len(source._seen) <= nonces.REMEMBERED_MAX


def a_counter():
    drawn = itertools.count()
    return lambda size: next(drawn).to_bytes(size, "big")


class TestPartitions:
    def test_a_stored_partition_opens_and_reads_what_was_sealed(self, vault):
        key, stored = vault.new_partition("wf_1")
        sealed = key.seal(b"what happened", place=PLACE)

        again = vault.open_partition("wf_1", stored.wrapped, key_id=stored.key_id)

        assert again.partition_id == "wf_1"
        assert again.open(sealed, place=PLACE) == b"what happened"

    def test_every_flipped_byte_of_a_wrapped_key_fails(self, vault):
        _, stored = vault.new_partition("wf_1")

        for position in range(len(stored.wrapped)):
            changed = bytearray(stored.wrapped)
            changed[position] ^= 1
            with pytest.raises(DecryptionError):
                vault.open_partition("wf_1", bytes(changed), key_id=1)

    @pytest.mark.parametrize("wrapped", [None, b"", "text", b"\x01" * 64, b"\x01" * 66])
    def test_a_wrapped_key_that_is_none_fails(self, vault, wrapped):
        with pytest.raises(DecryptionError):
            vault.open_partition("wf_1", wrapped, key_id=1)

    def test_a_wrapped_key_does_not_open_for_another_partition(self, vault):
        _, stored = vault.new_partition("wf_1")

        with pytest.raises(DecryptionError):
            vault.open_partition("wf_2", stored.wrapped, key_id=1)

    def test_a_wrapped_key_opens_under_the_master_key_of_its_row_only(self, parts):
        ring = Keyring({1: MASTER, 2: MASTER, 3: bytes(32)}, primary_id=1)
        vault = parts.open(ring)
        _, stored = vault.new_partition("wf_1")
        renamed = stored.wrapped[:4] + b"\x02" + stored.wrapped[5:]

        assert vault.open_partition("wf_1", stored.wrapped, key_id=1)
        # Key 2 has the very same bytes, 3 is another one, 4 is not there: none is tried in place of 1.
        for wrapped, key_id in [
            (stored.wrapped, 2),
            (stored.wrapped, 3),
            (stored.wrapped, 4),
            (renamed, 2),
            (renamed, 1),
        ]:
            with pytest.raises(DecryptionError):
                vault.open_partition("wf_1", wrapped, key_id=key_id)

    def test_both_master_keys_of_a_rotation_unwrap_and_the_primary_one_wraps(self, parts):
        _, old = parts.open().new_partition("wf_old")
        during = parts.open(parts.keyring.with_key(2, b"\x02" * 32).with_primary(2))

        _, fresh = during.new_partition("wf_new")

        assert (during.key_id, old.key_id, fresh.key_id) == (2, 1, 2)
        assert during.open_partition("wf_old", old.wrapped, key_id=1)
        assert during.open_partition("wf_new", fresh.wrapped, key_id=2)

    def test_a_master_key_whose_nonces_repeat_wraps_nothing(self, parts):
        vault = parts.open(entropy=bytes)
        vault.new_partition("wf_1")

        with pytest.raises(VaultError, match="repeats itself"):
            vault.new_partition("wf_2")


class TestOpening:
    def test_a_wrong_master_key_is_refused_at_once(self, parts):
        with pytest.raises(KeySourceError, match="not that of this vault"):
            parts.open(Keyring({1: bytes(32)}, primary_id=1))

    def test_a_missing_master_key_is_refused_at_once(self, parts):
        with pytest.raises(KeySourceError, match="not that of this vault"):
            parts.open(Keyring({2: MASTER}, primary_id=2))

    @pytest.mark.parametrize("canary", [None, b"", b"x" * 53])
    def test_a_vault_without_a_canary_is_refused(self, canary, parts):
        with pytest.raises(KeySourceError):
            parts.open(canary=canary)

    def test_another_sealed_value_is_no_canary(self, parts):
        with pytest.raises(KeySourceError):
            parts.open(canary=parts.new.wrapped_index_key)

    @pytest.mark.parametrize("field", ["canary", "another vault's"])
    def test_a_changed_index_key_is_refused(self, field, parts):
        changed = parts.new.canary if field == "canary" else parts.new.wrapped_index_key[:-1] + b"\0\0"

        with pytest.raises(DecryptionError):
            parts.open(wrapped_index_key=changed)

    def test_a_failed_unlock_leaves_an_open_vault_open(self, vault, parts):
        with pytest.raises(KeySourceError):
            vault.unlock(
                Keyring({1: bytes(32)}, primary_id=1),
                canary=parts.new.canary,
                wrapped_index_key=parts.new.wrapped_index_key,
            )

        assert not vault.is_locked


class TestLocking:
    def test_a_locked_vault_does_nothing(self, vault):
        _, stored = vault.new_partition("wf_1")
        vault.lock()

        assert vault.is_locked
        for use in (
            lambda: vault.new_partition("wf_2"),
            lambda: vault.open_partition("wf_1", stored.wrapped, key_id=1),
            lambda: vault.index("workflow_key", "x"),
            lambda: vault.shred("wf_1", recorded=ShredHead(0, b"")),
            lambda: vault.key_id,
        ):
            with pytest.raises(SealedError) as caught:
                use()
            assert caught.value.code == "vault_locked"
        assert vault.shred_list.length == 0

    def test_data_keys_given_out_before_stop_and_stay_stopped(self, vault, parts):
        key, stored = vault.new_partition("wf_1")
        sealed = key.seal(b"x", place=PLACE)
        vault.lock()

        for _ in ("locked", "unlocked again"):
            with pytest.raises(SealedError):
                key.seal(b"x", place=PLACE)
            with pytest.raises(SealedError):
                key.open(sealed, place=PLACE)
            vault.unlock(parts.keyring, canary=parts.new.canary, wrapped_index_key=parts.new.wrapped_index_key)

        again = vault.open_partition("wf_1", stored.wrapped, key_id=1)
        assert again.open(sealed, place=PLACE) == b"x"

    def test_opening_an_open_vault_again_stops_the_data_keys_of_before(self, vault, parts):
        key, _ = vault.new_partition("wf_1")

        vault.unlock(parts.keyring, canary=parts.new.canary, wrapped_index_key=parts.new.wrapped_index_key)

        with pytest.raises(SealedError):
            key.seal(b"x", place=PLACE)

    def test_a_vault_starts_locked_and_may_be_locked_twice(self, parts):
        vault = Vault(parts.shred_list)
        vault.lock()

        assert vault.is_locked


class TestIndexes:
    def test_an_index_is_the_same_in_every_opening_and_after_a_rotation(self, vault, parts):
        rotated = parts.open(parts.keyring.with_key(2, b"\x02" * 32).with_primary(2))

        assert rotated.index("workflow_key", 1, "k") == vault.index("workflow_key", 1, "k")

    def test_two_vaults_have_nothing_in_common(self, vault, parts):
        new = create_vault(parts.keyring)
        other = parts.open(canary=new.canary, wrapped_index_key=new.wrapped_index_key)

        assert other.index("workflow_key", "k") != vault.index("workflow_key", "k")

    def test_no_two_purposes_or_values_share_an_index(self, vault):
        spelled = [
            ("p",), ("p", ""), ("p", b""), ("p", 0), ("p", "0"), ("p", b"0"), ("p", 1, 2), ("p", 12), ("p", "1", "2"),
            ("p", "12"), ("p", "1s\0\0\0\x012"), ("p1", 2), ("ps",), ("", "p"), ("p", -1), ("p", 2**70),
        ]  # fmt: skip

        assert len({vault.index(*parts) for parts in spelled}) == len(spelled)
        assert all(len(vault.index(*parts)) == 32 for parts in spelled)


class TestShredding:
    def test_a_shredded_partition_never_opens_again(self, vault, parts):
        _, stored = vault.new_partition("wf_1")
        _, kept = vault.new_partition("wf_2")

        head = vault.shred("wf_1", recorded=parts.shred_list.head)

        # The row is still there, as in a database put back from a backup.
        for one in (vault, parts.open(shred_list=ShredList(parts.shred_list.path), recorded=head)):
            with pytest.raises(DecryptionError):
                one.open_partition("wf_1", stored.wrapped, key_id=1)
            assert one.open_partition("wf_2", kept.wrapped, key_id=1)

    def test_the_vault_refuses_an_older_shred_list(self, vault, parts):
        before = parts.shred_list.path.read_bytes()
        head = vault.shred("wf_1", recorded=parts.shred_list.head)
        parts.shred_list.path.write_bytes(before)
        parts.shred_list = ShredList(parts.shred_list.path)

        with pytest.raises(VaultError, match="shorter than the database says"):
            parts.open(recorded=head)

    def test_nothing_is_unwrapped_without_the_shred_list(self, vault, parts):
        _, stored = vault.new_partition("wf_1")
        parts.shred_list.path.unlink()

        with pytest.raises(KeySourceError):
            vault.open_partition("wf_1", stored.wrapped, key_id=1)
