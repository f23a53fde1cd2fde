"""The anchor: it survives a torn write, goes forward only, and is refused when others could have written it."""

from __future__ import annotations

import threading

import pytest

from continuity.errors import IntegrityError, KeySourceError
from continuity.vault import Anchor, AnchorFile

FIRST = Anchor(1, 7, bytes([1]) * 32, 1_000)
LATER = Anchor(1, 9, bytes([2]) * 32, 2_000)


@pytest.fixture
def file(tmp_path):
    return AnchorFile(tmp_path / "shred.list.anchor")


def test_there_is_none_before_the_first(file):
    assert file.read() is None


def test_what_was_written_last_is_read(file):
    assert file.write(FIRST)
    assert file.read() == FIRST
    assert file.write(LATER)
    assert AnchorFile(file.path).read() == LATER
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "older", [FIRST, LATER, Anchor(1, 9, bytes(32), 1_999), Anchor(0, 99, bytes(32), 9_999)],
)  # fmt: skip
def test_it_never_goes_back(file, older):
    file.write(FIRST)
    file.write(LATER)

    assert not file.write(older)
    assert file.read() == LATER


@pytest.mark.parametrize("further", [Anchor(2, 1, bytes(32), 1), Anchor(1, 9, bytes([2]) * 32, 2_001)])
def test_a_new_epoch_and_a_later_mark_go_further(file, further):
    file.write(LATER)

    assert file.write(further)
    assert file.read() == further


def test_every_torn_write_leaves_the_one_before(file):
    file.write(FIRST)
    before = file.path.read_bytes()
    file.write(LATER)
    after = file.path.read_bytes()
    [start] = {at // (len(after) // 2) * (len(after) // 2) for at in range(len(after)) if before[at] != after[at]}

    for cut in range(start, start + len(after) // 2):
        file.path.write_bytes(before[:start] + after[start:cut] + before[cut:])
        assert file.read() in {FIRST, LATER}
        file.path.write_bytes(before[:start] + after[start:cut] + bytes(len(after) // 2 - cut + start) +
                              after[start + len(after) // 2:])  # fmt: skip
        assert file.read() == FIRST


@pytest.mark.parametrize("content", [b"x", b"atmem-anchor 1 ", b"\0" * 416, b"{}" * 208])
def test_what_is_no_anchor_is_refused(file, content):
    file.write(FIRST)
    file.path.write_bytes(content)

    with pytest.raises(IntegrityError, match="not an anchor"):
        file.read()
    with pytest.raises(IntegrityError, match="not an anchor"):
        file.write(LATER)


def test_a_file_that_is_longer_than_two_slots_is_refused(file):
    file.write(FIRST)
    file.path.write_bytes(file.path.read_bytes() + b"\n")

    with pytest.raises(IntegrityError):
        file.read()


def test_a_file_that_others_can_reach_is_refused(file):
    file.write(FIRST)
    file.path.chmod(0o644)

    with pytest.raises(KeySourceError, match="mode 0600"):
        file.read()
    with pytest.raises(KeySourceError, match="mode 0600"):
        file.write(LATER)


def test_a_symbolic_link_is_refused(file, tmp_path):
    AnchorFile(tmp_path / "other").write(FIRST)
    file.path.symlink_to(tmp_path / "other")

    with pytest.raises(KeySourceError):
        file.write(LATER)
    assert AnchorFile(tmp_path / "other").read() == FIRST


@pytest.mark.parametrize("wrong", [Anchor(-1, 0, bytes(32), 0), Anchor(1, 0, bytes(31), 0), Anchor(1, 10**20, b"", 0)])
def test_what_cannot_be_one_is_not_written(file, wrong):
    with pytest.raises(RuntimeError):
        file.write(wrong)
    assert file.read() is None


def test_of_many_writers_the_furthest_stays(file):
    file.write(FIRST)
    anchors = [Anchor(1, 10 + n, bytes([n]) * 32, n) for n in range(20)]
    threads = [threading.Thread(target=AnchorFile(file.path).write, args=(each,)) for each in anchors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert file.read() == anchors[-1]
