"""How a disk that fills is met before it is full."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from app import room
from continuity.errors import StorageLowError, UnavailableError

FLOOR = 64 << 20


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class Disk:
    """A disk whose free space a test sets, and a clock that it moves."""

    def __init__(self, monkeypatch):
        self.free, self.looks, self.now_s = FLOOR, 0, 0.0
        monkeypatch.setattr(room.shutil, "disk_usage", self._look)

    def _look(self, _path):
        self.looks += 1
        return Usage(1 << 40, 0, self.free)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def require(disk, tmp_path):
    return room.require_room(tmp_path, FLOOR, clock=lambda: disk.now_s)


def test_at_the_floor_work_goes_on_and_below_it_none_is_begun(disk, require):
    require()
    disk.free, disk.now_s = FLOOR - 1, 1.0

    with pytest.raises(StorageLowError, match="has 63 MiB left, and nothing new is begun below 64 MiB"):
        require()


def test_it_goes_on_as_soon_as_there_is_space_again(disk, require):
    disk.free = 0
    with pytest.raises(StorageLowError):
        require()
    disk.free = FLOOR

    require()


def test_many_decisions_look_at_the_disk_once(disk, require):
    for _ in range(1_000):
        require()

    assert disk.looks == 1


def test_who_waits_is_told_how_long_and_that_nothing_was_done(disk, require):
    disk.free = 0
    with pytest.raises(UnavailableError, match="Nothing was done; receipts are still taken") as caught:
        require()

    assert (caught.value.code, caught.value.retry_after_s) == ("storage_low", 5)


@pytest.mark.parametrize(
    ("url", "floor_bytes"), [("postgresql+psycopg://localhost/x", FLOOR), ("sqlite:////nowhere/x.db", 0)]
)
def test_a_disk_of_another_machine_and_no_floor_are_not_looked_at(disk, url, floor_bytes):
    disk.free = 0

    room.require_for(url, floor_bytes)()

    assert disk.looks == 0
