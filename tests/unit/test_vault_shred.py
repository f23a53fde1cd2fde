"""The shred list: nothing acknowledged is lost, nothing damaged is believed (V18, V19)."""

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from continuity.errors import IntegrityError, KeySourceError
from continuity.vault import ShredHead, ShredList, files
from tests.patience import PATIENCE_S

LINE_BYTES = 130


@pytest.fixture
def path(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path / "vault.shred"


@pytest.fixture
def shred_list(path):
    return ShredList.create(path)


def an_index(number):
    return number.to_bytes(32, "big")


def append(shred_list, *numbers):
    """Append as a service does: the database knows everything but the line that is added."""
    return [shred_list.append(an_index(number), recorded=shred_list.head) for number in numbers][-1]


def numbers_in(shred_list, limit=100):
    return [number for number in range(limit) if shred_list.contains(an_index(number))]


def started(program, path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


class TestAppending:
    def test_a_new_list_is_private_and_empty(self, shred_list, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert shred_list.length == 0
        assert not shred_list.contains(an_index(1))

    def test_no_two_empty_lists_have_the_same_head(self, shred_list, path):
        other = ShredList.create(path.with_name("other"))

        assert other.head.length == shred_list.head.length == 0
        assert other.head.head != shred_list.head.head

    def test_what_was_appended_is_found_now_and_by_the_next_process(self, shred_list, path):
        head = append(shred_list, 1, 2, 3)

        for one in (shred_list, ShredList(path)):
            assert numbers_in(one) == [1, 2, 3]
            assert one.head == head
            assert one.length == 3

    def test_appending_twice_adds_nothing_and_is_durable(self, shred_list, path, monkeypatch):
        head = append(shred_list, 1)
        synced = []
        monkeypatch.setattr(files, "sync", synced.append)

        assert append(shred_list, 1) == head
        assert len(synced) == 1
        assert path.stat().st_size == 84 + LINE_BYTES

    def test_a_line_is_durable_before_it_is_acknowledged(self, shred_list, path, monkeypatch):
        sizes = []
        monkeypatch.setattr(files, "sync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))

        append(shred_list, 1)

        assert sizes == [path.stat().st_size]

    def test_lines_of_other_processes_are_seen_by_asking(self, shred_list, path):
        other = ShredList(path)
        append(other, 1)

        assert shred_list.contains(an_index(1))
        append(shred_list, 2)
        assert other.length == 2
        assert numbers_in(other) == [1, 2]

    def test_a_known_list_is_asked_without_opening_the_file(self, shred_list, path, monkeypatch):
        append(shred_list, 1)
        opened, looked = [], []
        monkeypatch.setattr(files, "opened", lambda *arguments: opened.append(arguments))
        monkeypatch.setattr(Path, "lstat", lambda self: looked.append(self) or os.lstat(self))

        assert shred_list.contains(an_index(1))
        assert not shred_list.contains(an_index(2))
        assert opened == []
        assert looked == [path, path]

    def test_an_index_of_another_size_is_a_mistake(self, shred_list):
        with pytest.raises(RuntimeError):
            shred_list.append(b"wf_1", recorded=shred_list.head)

    def test_threads_append_together(self, path):
        lists = [ShredList.create(path), ShredList(path)]
        start = lists[0].head
        threads = [
            threading.Thread(
                target=lambda one, first: [one.append(an_index(first + i), recorded=start) for i in range(10)],
                args=(lists[number % 2], number * 10),
            )
            for number in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert numbers_in(ShredList(path)) == list(range(60))
        assert {one.head for one in lists} == {ShredList(path).head}

    def test_processes_append_together(self, shred_list, path):
        program = """
            import sys
            from pathlib import Path
            from continuity.vault import ShredList
            shred_list = ShredList(Path(sys.argv[1]))
            first = int(sys.stdin.readline())
            for number in range(first, first + 25):
                shred_list.append(number.to_bytes(32, "big"), recorded=shred_list.head)
        """
        processes = [started(program, path) for _ in range(4)]
        for number, process in enumerate(processes):
            process.stdin.write(b"%d\n" % (number * 25))
        for process in processes:
            process.communicate()

        assert [process.returncode for process in processes] == [0, 0, 0, 0]
        assert numbers_in(ShredList(path)) == list(range(100))

    def test_a_line_that_went_into_a_file_that_was_moved_away_is_not_acknowledged(self, shred_list, path, monkeypatch):
        start = append(shred_list, 1)

        def replace(descriptor, content, real=files.write_all):
            copy = path.with_name("copy")
            copy.touch(mode=0o600)
            copy.write_bytes(path.read_bytes())
            copy.replace(path)
            real(descriptor, content)

        with monkeypatch.context() as patched:
            patched.setattr(files, "write_all", replace)
            with pytest.raises(KeySourceError, match="replaced meanwhile"):
                shred_list.append(an_index(2), recorded=start)

        after = ShredList(path)
        assert numbers_in(after) == [1]
        assert after.append(an_index(2), recorded=start).length == 2

    def test_a_failed_write_is_not_acknowledged_and_can_be_repeated(self, shred_list, path, monkeypatch):
        append(shred_list, 1)
        before = path.read_bytes()

        def fail(descriptor):
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(files, "sync", fail)
            with pytest.raises(KeySourceError, match="cannot be written: Input/output error"):
                append(shred_list, 2)

        # A second sync would claim success for pages that the first one lost, so the line has to go.
        assert path.read_bytes() == before
        assert append(shred_list, 2).length == 2
        assert numbers_in(ShredList(path)) == [1, 2]


class TestDatabaseHead:
    def test_a_list_that_goes_further_than_the_database_is_accepted(self, shred_list, path):
        known = append(shred_list, 1)
        append(shred_list, 2)

        ShredList(path).verify(known)

    def test_an_older_list_is_refused(self, shred_list, path):
        append(shred_list, 1)
        before = path.read_bytes()
        known = append(shred_list, 2)
        path.write_bytes(before)

        with pytest.raises(IntegrityError, match="shorter than the database says"):
            ShredList(path).verify(known)

    def test_another_list_of_the_same_length_is_refused(self, shred_list, path):
        known = append(shred_list, 1)
        other = ShredList.create(path.with_name("other"))
        append(other, 1)

        with pytest.raises(IntegrityError, match="not the shred list of this database"):
            other.verify(known)

    def test_an_empty_list_made_anew_is_refused(self, shred_list, path):
        known = shred_list.head
        path.unlink()

        with pytest.raises(IntegrityError, match="not the shred list of this database"):
            ShredList.create(path).verify(known)

    def test_nothing_is_appended_to_a_list_that_the_database_does_not_know(self, shred_list, path):
        before = path.read_bytes()

        for recorded in (ShredHead(1, bytes(32)), ShredHead(0, bytes(32))):
            with pytest.raises(IntegrityError):
                shred_list.append(an_index(1), recorded=recorded)
        assert path.read_bytes() == before


class TestTornEnd:
    @pytest.mark.parametrize("left", range(1, LINE_BYTES))
    def test_a_piece_of_a_last_line_does_not_count_and_the_next_line_replaces_it(self, shred_list, path, left):
        known = append(shred_list, 1)
        append(shred_list, 2)
        os.truncate(path, 84 + LINE_BYTES + left)

        after = ShredList(path)
        assert after.head == known
        after.verify(known)
        after.append(an_index(3), recorded=known)
        assert numbers_in(ShredList(path)) == [1, 3]
        assert path.stat().st_size == 84 + 2 * LINE_BYTES

    def test_a_last_line_that_a_power_cut_left_as_zeros_does_not_count(self, shred_list, path):
        known = append(shred_list, 1)
        append(shred_list, 2)
        whole = path.read_bytes()
        path.write_bytes(whole[:-40] + bytes(40))

        after = ShredList(path)
        assert after.head == known
        after.append(an_index(3), recorded=known)
        assert numbers_in(ShredList(path)) == [1, 3]

    @pytest.mark.parametrize("damage", [lambda whole: whole[:-1], lambda whole: whole[:-40] + bytes(40)])
    def test_a_torn_line_that_the_database_counted_is_damage_and_stays(self, shred_list, path, damage):
        counted = append(shred_list, 1, 2)
        path.write_bytes(damage(path.read_bytes()))
        torn = path.read_bytes()

        after = ShredList(path)
        with pytest.raises(IntegrityError):
            after.verify(counted)
        with pytest.raises(IntegrityError):
            after.append(an_index(3), recorded=counted)
        assert path.read_bytes() == torn

    def test_zeros_before_the_last_line_are_damage(self, shred_list, path):
        append(shred_list, 1, 2)
        whole = bytearray(path.read_bytes())
        whole[84 : 84 + LINE_BYTES] = bytes(LINE_BYTES)
        path.write_bytes(whole)

        with pytest.raises(IntegrityError):
            ShredList(path)


class TestDamage:
    def test_any_changed_byte_is_noticed(self, shred_list, path):
        known = append(shred_list, 1, 2)
        whole = path.read_bytes()

        for position in range(len(whole)):
            changed = bytearray(whole)
            changed[position] ^= 1
            path.write_bytes(changed)
            with pytest.raises(IntegrityError):
                ShredList(path).verify(known)

    def test_lines_cannot_change_places_or_go(self, shred_list, path):
        append(shred_list, 1, 2, 3)
        whole = path.read_bytes()
        head, lines = whole[:84], [whole[84 + i * LINE_BYTES :][:LINE_BYTES] for i in range(3)]

        for order in ([1, 0, 2], [0, 2], [1, 2], [0, 1, 1], [0, 1, 2, 2]):
            path.write_bytes(head + b"".join(lines[i] for i in order))
            with pytest.raises(IntegrityError, match="not an unbroken shred list"):
                ShredList(path)

    @pytest.mark.parametrize("content", [b"", b"atmem-shred-list 1 ", b"atmem-shred-list 2 " + b"0" * 64 + b"\n"])
    def test_what_is_no_shred_list_is_refused(self, shred_list, path, content):
        path.write_bytes(content)

        with pytest.raises(IntegrityError):
            ShredList(path)

    def test_a_list_that_shrinks_under_a_running_process_stops_it(self, shred_list, path):
        append(shred_list, 1, 2)
        os.truncate(path, 84 + LINE_BYTES)

        for _ in range(2):
            with pytest.raises(IntegrityError, match="became shorter"):
                shred_list.contains(an_index(5))

    def test_a_list_put_in_place_of_another_must_hold_all_that_was_known(self, shred_list, path):
        append(shred_list, 1)
        longer = path.with_name("longer")
        longer.touch(mode=0o600)
        longer.write_bytes(path.read_bytes())
        append(ShredList(longer), 2)
        other = ShredList.create(path.with_name("other"))
        append(other, 7, 8, 9)

        longer.replace(path)
        assert numbers_in(shred_list) == [1, 2]
        other.path.replace(path)
        with pytest.raises(IntegrityError, match="replaced by another list"):
            shred_list.contains(an_index(1))

    def test_a_list_that_is_missing_or_not_private_stops_everything(self, shred_list, path):
        head = append(shred_list, 1)
        path.chmod(0o644)
        for use in (lambda: shred_list.contains(an_index(1)), lambda: shred_list.append(an_index(2), recorded=head)):
            with pytest.raises(KeySourceError, match="mode 0600"):
                use()

        path.unlink()
        for use in (
            lambda: shred_list.head,
            lambda: ShredList(path),
            lambda: shred_list.append(an_index(2), recorded=head),
        ):
            with pytest.raises(KeySourceError):
                use()

    def test_a_list_is_never_created_over_another(self, shred_list, path):
        before = path.read_bytes()

        with pytest.raises(KeySourceError, match="File exists"):
            ShredList.create(path)

        assert path.read_bytes() == before

    def test_a_list_that_cannot_be_read_stops_everything(self, shred_list, path, monkeypatch):
        append(shred_list, 1)
        os.utime(path, ns=(1, 1))

        def fail(descriptor, offset):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(files, "read_from", fail)

        with pytest.raises(KeySourceError, match="cannot be read: Input/output error"):
            shred_list.contains(an_index(1))


WRITE_A_PART_AND_DIE = """
    import os, signal, sys
    from pathlib import Path
    from continuity.vault import ShredList, files

    def write_a_part_and_die(descriptor, content):
        os.write(descriptor, content[:PART])
        os.kill(os.getpid(), signal.SIGKILL)

    files.write_all = write_a_part_and_die
    shred_list = ShredList(Path(sys.argv[1]))
    shred_list.append((2).to_bytes(32, "big"), recorded=shred_list.head)
"""


class TestKilledProcess:
    @pytest.mark.parametrize("after_s", [0.0, 0.004, 0.013, 0.03])
    def test_what_was_acknowledged_before_a_kill_is_on_the_list(self, shred_list, path, after_s):
        program = """
            import os, sys
            from pathlib import Path
            from continuity.vault import ShredList
            shred_list = ShredList(Path(sys.argv[1]))
            for number in range(100_000):
                shred_list.append(number.to_bytes(32, "big"), recorded=shred_list.head)
                os.write(1, b"%d\\n" % number)
        """
        with started(program, path) as process:
            acknowledged = [process.stdout.readline()]
            time.sleep(after_s)
            process.send_signal(signal.SIGKILL)
            acknowledged += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL

        after = ShredList(path)
        assert all(after.contains(an_index(int(line))) for line in acknowledged)
        # One line may be there that nobody was told of: the kill came between the two.
        assert after.length - len(acknowledged) in (0, 1)
        assert append(after, 1_000_000).length == after.length

    @pytest.mark.parametrize("written", [0, 1, 65, 129, 130])
    def test_a_kill_in_the_middle_of_a_line_leaves_a_list_that_goes_on(self, shred_list, path, written):
        known = append(shred_list, 1)
        with started(WRITE_A_PART_AND_DIE.replace("PART", str(written)), path) as process:
            process.wait(PATIENCE_S)
        assert process.returncode == -signal.SIGKILL
        assert path.stat().st_size == 84 + LINE_BYTES + written

        # The running process and a new one agree, and the deletion that was cut short is repeated.
        for one in (shred_list, ShredList(path)):
            one.verify(known)
            assert one.length == (2 if written == LINE_BYTES else 1)
        assert shred_list.append(an_index(2), recorded=known).length == 2
        assert numbers_in(ShredList(path)) == [1, 2]

    def test_a_second_kill_over_a_torn_line_leaves_a_list_that_goes_on(self, shred_list, path):
        known = append(shred_list, 1)
        append(shred_list, 2)
        whole = path.read_bytes()
        path.write_bytes(whole[:-LINE_BYTES] + bytes(40) + whole[-LINE_BYTES + 40 :])
        with started(WRITE_A_PART_AND_DIE.replace("PART", "100"), path) as process:
            process.wait(PATIENCE_S)
        assert process.returncode == -signal.SIGKILL

        after = ShredList(path)
        assert after.head == known
        assert append(after, 2).length == 2
