from __future__ import annotations

import hashlib
import io
import itertools
import re
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from continuity.errors import SealedFileError
from continuity.vault import sealed_file
from continuity.vault.parts import BLOCK_BYTES_MAX, PartReader, PartWriter
from continuity.vault.passphrase import Cost
from continuity.vault.sealed_file import HEAD_BYTES, SealedReader, SealedWriter

CHEAP = Cost(memory_kib=8, time_cost=1, parallelism=1)
PASSPHRASE = "correct horse battery"
CHUNK = 1_024
FORMAT = (Path(sealed_file.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")


def sealed(content: bytes, *, passphrase: str = PASSPHRASE, purpose: str = "backup", cost: Cost = CHEAP) -> bytes:
    stream = io.BytesIO()
    writer = SealedWriter(stream, passphrase, purpose=purpose, cost=cost, chunk_bytes=CHUNK)
    writer.write(content)
    writer.finish()
    return stream.getvalue()


def opened(data: bytes, *, passphrase: str = PASSPHRASE, purpose: str = "backup") -> bytes:
    reader = SealedReader(io.BytesIO(data), passphrase, purpose=purpose)
    return b"".join(iter(lambda: reader.read(700), b""))


def refusal(data: bytes, **how: str) -> str:
    with pytest.raises(SealedFileError) as caught:
        opened(data, **how)
    return caught.value.code


def with_numbers(data: bytes, **numbers: int) -> bytes:
    """Change numbers of the head, and its hash with them, as whoever wants to hurt the reader would."""
    offsets = {"memory": 32, "time": 36, "lanes": 40, "chunk": 44}
    plain = bytearray(data[:64])
    for name, number in numbers.items():
        struct.pack_into(">I", plain, offsets[name], number)
    return bytes(plain) + hashlib.sha256(plain).digest() + data[96:]


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 5 * CHUNK + 7])
def test_what_was_sealed_comes_out_again(size):
    content = bytes(itertools.islice(itertools.cycle(range(251)), size))

    assert opened(sealed(content)) == content


@given(st.lists(st.binary(max_size=3_000), max_size=6))
def test_it_does_not_matter_in_which_pieces_content_is_written(pieces):
    stream = io.BytesIO()
    writer = SealedWriter(stream, PASSPHRASE, purpose="backup", cost=CHEAP, chunk_bytes=CHUNK)
    for piece in pieces:
        writer.write(piece)
    writer.finish()

    assert opened(stream.getvalue()) == b"".join(pieces)


def test_nothing_of_the_content_can_be_read_in_the_file():
    assert b"sentinel" not in sealed(b"sentinel" * 1_000)


def test_two_files_of_the_same_content_have_nothing_in_common_but_the_head_of_the_format():
    first, second = sealed(b"x" * 5_000), sealed(b"x" * 5_000)

    assert first[:48] == second[:48]
    assert first[48:64] != second[48:64]
    assert first[HEAD_BYTES + 4 :] != second[HEAD_BYTES + 4 :]


def test_another_passphrase_is_told_as_that():
    assert refusal(sealed(b"content"), passphrase="correct horse batterz") == "wrong_passphrase"


def test_a_passphrase_is_taken_as_it_was_typed():
    assert refusal(sealed(b"content"), passphrase=PASSPHRASE + " ") == "wrong_passphrase"


@pytest.mark.parametrize(
    "data", [b"", b"SQLite format 3\0" + bytes(500), b"\x89PNG\r\n", b"atmem-sealed-1\n\n" + bytes(500)]
)
def test_a_file_of_something_else_is_told_as_that(data):
    assert refusal(data) == "sealed_file_foreign"


def test_a_file_for_another_purpose_is_told_as_that_and_says_which():
    with pytest.raises(SealedFileError, match="evidence") as caught:
        opened(sealed(b"content", purpose="evidence"))

    assert caught.value.code == "sealed_file_purpose"


def test_wherever_a_file_is_cut_off_nothing_of_it_counts_as_whole():
    data = sealed(bytes(2 * CHUNK + 10))

    for end in [*range(16, HEAD_BYTES, 7), *range(HEAD_BYTES, len(data), 13), len(data) - 1]:
        assert refusal(data[:end]) == "sealed_file_truncated", end


def test_wherever_a_bit_is_changed_the_file_does_not_open():
    data = sealed(bytes(CHUNK + 50))

    for place in [*range(HEAD_BYTES + 30), *range(HEAD_BYTES + 30, len(data), 11), len(data) - 1]:
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        assert refusal(bytes(changed)) in {
            "sealed_file_damaged", "sealed_file_foreign", "sealed_file_truncated", "wrong_passphrase",
        }, place  # fmt: skip


def test_what_follows_the_end_is_damage():
    assert refusal(sealed(b"content") + b"\0") == "sealed_file_damaged"


def frames(data: bytes) -> list[bytes]:
    found, place = [], HEAD_BYTES
    while place < len(data):
        size = 4 + (int.from_bytes(data[place : place + 4], "big") & 0x7FFFFFFF) + 16
        found.append(data[place : place + size])
        place += size
    return found


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [0, 2, 3], [0, 1, 1, 2, 3], [0, 1, 3], [1, 2, 3], [3]])
def test_chunks_cannot_change_places_or_be_left_out_or_be_doubled(order):
    data = sealed(bytes(3 * CHUNK + 10))
    chunks = frames(data)
    assert len(chunks) == 4

    assert refusal(data[:HEAD_BYTES] + b"".join(chunks[each] for each in order)) == "sealed_file_damaged"


def test_a_chunk_cannot_be_made_the_last_one():
    data = sealed(bytes(3 * CHUNK))
    first = frames(data)[0]
    forged = (int.from_bytes(first[:4], "big") | 1 << 31).to_bytes(4, "big") + first[4:]

    assert refusal(data[:HEAD_BYTES] + forged) == "sealed_file_damaged"


def test_a_chunk_of_another_file_of_the_same_passphrase_does_not_open():
    one, other = sealed(bytes(2 * CHUNK)), sealed(bytes(2 * CHUNK))

    assert refusal(one[:HEAD_BYTES] + frames(other)[0] + frames(one)[1]) == "sealed_file_damaged"


@pytest.mark.parametrize(
    "numbers",
    [
        {"memory": 2**32 - 1}, {"memory": 0}, {"memory": 7}, {"time": 0}, {"time": 65}, {"time": 2**32 - 1},
        {"lanes": 0}, {"lanes": 17}, {"memory": 1024 * 1024, "time": 60}, {"chunk": 0}, {"chunk": 2**32 - 1},
        {"chunk": 4 * 1024 * 1024 + 1}, {"chunk": 1_023},
    ],
)  # fmt: skip
def test_absurd_numbers_are_refused_before_memory_is_taken(numbers):
    data = with_numbers(sealed(b"content"), **numbers)

    tracemalloc.start()
    try:
        assert refusal(data) == "sealed_file_unbearable"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_frame_that_claims_two_gibibytes_is_refused_before_it_is_read():
    class Watched(io.BytesIO):
        largest = 0

        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            self.largest = max(self.largest, size)
            return super().read(size)

    data = sealed(bytes(CHUNK * 2))
    stream = Watched(data[:HEAD_BYTES] + b"\x7f\xff\xff\xff" + data[HEAD_BYTES + 4 :])

    with pytest.raises(SealedFileError):
        SealedReader(stream, PASSPHRASE, purpose="backup").drain()
    assert stream.largest < 10_000


def test_a_finished_file_takes_no_more():
    writer = SealedWriter(io.BytesIO(), PASSPHRASE, purpose="backup", cost=CHEAP)
    writer.finish()

    with pytest.raises(RuntimeError):
        writer.write(b"more")
    with pytest.raises(RuntimeError):
        writer.finish()


def test_parts_come_out_as_they_went_in():
    stream = io.BytesIO()
    parts = PartWriter(SealedWriter(stream, PASSPHRASE, purpose="backup", cost=CHEAP))
    big = bytes(BLOCK_BYTES_MAX + 5)
    assert parts.add("head.json", [b"{", b"", b"}"]) == 2
    parts.add("empty", [])
    parts.add("database", [big, b"end"])
    parts.finish()
    stream.seek(0)

    found = {name: b"".join(blocks) for name, blocks in PartReader(SealedReader(stream, PASSPHRASE, purpose="backup"))}

    assert found == {"head.json": b"{}", "empty": b"", "database": big + b"end"}


def parts_of(*pieces: bytes) -> PartReader:
    stream = io.BytesIO()
    writer = SealedWriter(stream, PASSPHRASE, purpose="backup", cost=CHEAP)
    for piece in pieces:
        writer.write(piece)
    writer.finish()
    stream.seek(0)
    return PartReader(SealedReader(stream, PASSPHRASE, purpose="backup"))


def read_all(content):
    for _, blocks in parts_of(content):
        for _ in blocks:
            pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01a\0\0\0\x01x\0\0\0\0",
        b"\x08manifest\0\0\0\x01x\0\0\0\0",
        b"\x01a\0\0\0\0\x08manifest\0\0\0\0",
        b"\x08manifest\0\0\0\0more",
        b"\x03../\0\0\0\0\x08manifest\0\0\0\0",
        b"\x01a\x7f\xff\xff\xff",
    ],
)
def test_parts_that_are_not_those_of_the_manifest_are_damage(content):
    with pytest.raises(SealedFileError):
        read_all(content)


def test_no_part_has_a_name_that_leads_elsewhere_or_that_another_has():
    parts = PartWriter(SealedWriter(io.BytesIO(), PASSPHRASE, purpose="backup", cost=CHEAP))
    parts.add("one", [])

    for name in ["one", "", "../x", "A", "manifest", "a/b", "-x", "x" * 121]:
        with pytest.raises(RuntimeError):
            parts.add(name, [])


def test_the_example_of_the_format_page_is_what_is_written_and_opens():
    section = FORMAT[FORMAT.index("## Sealed file") :]
    golden = bytes.fromhex("".join(re.search(r"```text\n([0-9a-f\n]+)```", section)[1].split()))
    stream = io.BytesIO()
    parts = PartWriter(
        SealedWriter(stream, PASSPHRASE, purpose="backup", cost=CHEAP, entropy=lambda size: b"\x5a" * size)
    )
    parts.add("hello.txt", [b"hello"])
    parts.finish()

    assert stream.getvalue() == golden
    read = PartReader(SealedReader(io.BytesIO(golden), PASSPHRASE, purpose="backup"))
    assert [(name, b"".join(blocks)) for name, blocks in read] == [("hello.txt", b"hello")]
