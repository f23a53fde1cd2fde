"""Publishing into a directory: one file, whole or not at all, never over something else, only where reviewed."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from continuity import errors, folder, wire
from continuity.callbacks import NotDispatched, Refused
from continuity.folder import Folder, ForeignFileError
from continuity.tools import DOCUMENT_BYTES, DirectoryPublisher, make_output, publish_arguments, publish_operation

OPERATION = "op_" + "a1" * 16
CONTENT = "# Title\r\n\tsays “hello”\n".encode()
NAME = f"{OPERATION}.md"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Modes, links and signals of POSIX are what these look at.")


def by_path(path):
    return Folder(path, hold_open=False)


@pytest.fixture(params=[Folder, by_path], ids=["held open", "by path"])
def open_folder(request):
    return request.param


@pytest.fixture
def output(tmp_path):
    return tmp_path / "published"


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "README.MD"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def arguments(document, output):
    return prepared(document, output)


@pytest.fixture
def publisher(output, open_folder):
    return DirectoryPublisher(output, open_folder=open_folder)


def prepared(document, output):
    """Take the document, and make the directory as `prepare` does once the server has accepted."""
    operation = publish_operation(document, output)
    make_output(operation)
    return operation["arguments"]


def execute(publisher, arguments, operation_id=OPERATION, timeout_s=30):
    return publisher.execute(arguments, operation_id, "ik_1", timeout_s)


def query(publisher, arguments, operation_id=OPERATION):
    return publisher.query(arguments, operation_id, "ik_1", 30)


def names(output):
    return sorted(path.name for path in Path(output).iterdir())


# --- The good path ---


def test_a_document_becomes_one_private_file_and_its_receipt_says_which(publisher, arguments, output):
    receipt = execute(publisher, arguments)

    digest = hashlib.sha256(CONTENT).hexdigest()
    assert receipt == {
        "outcome": "confirmed_succeeded", "operation_id": OPERATION, "effect_id": f"file:{NAME}",
        "result": {"path": str(output / NAME), "name": NAME, "sha256": digest, "bytes": len(CONTENT)},
    }  # fmt: skip
    assert names(output) == [NAME]
    assert (output / NAME).read_bytes() == CONTENT
    found = (output / NAME).stat()
    assert (stat.S_IMODE(found.st_mode), found.st_nlink) == (0o600, 1)


def test_publishing_again_changes_nothing_and_says_the_same(publisher, arguments, output):
    first = execute(publisher, arguments)
    before = (output / NAME).stat()

    assert execute(publisher, arguments) == first
    assert query(publisher, arguments) == first
    after = (output / NAME).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert names(output) == [NAME]


def test_a_query_publishes_nothing(publisher, arguments, output):
    assert query(publisher, arguments) == {"outcome": "absent", "operation_id": OPERATION}
    assert names(output) == []


def test_another_operation_is_another_file(publisher, arguments, output):
    execute(publisher, arguments)
    execute(publisher, arguments, "op_" + "b2" * 16)

    assert len(names(output)) == 2


@pytest.mark.parametrize(
    "content",
    [b"x", b"\x00\x01\xff", b"x" * DOCUMENT_BYTES, b"\xff" * DOCUMENT_BYTES, b'"' * DOCUMENT_BYTES, b"\xef\xbb\xbfbom",
     b"\r\n\r", "\u2028é\U0001f600".encode(), b"\x1b[31m", b"\\" * DOCUMENT_BYTES, b"\n" * DOCUMENT_BYTES],
    ids=range(11),
)  # fmt: skip
def test_every_content_arrives_byte_for_byte_and_its_definition_is_one(content, tmp_path, output):
    (tmp_path / "d").write_bytes(content)
    operation = publish_operation(tmp_path / "d", output)
    make_output(operation)

    definition = wire.CreateWorkflow.from_json({"workflow_key": "k", "operations": [operation]})
    receipt = execute(DirectoryPublisher(output), definition.operations[0].arguments)

    assert Path(receipt["result"]["path"]).read_bytes() == content
    assert receipt["result"]["bytes"] == len(content)


# --- Arguments ---


def test_a_text_can_be_read_by_whoever_reviews_it(arguments, output):
    assert arguments["encoding"] == "utf-8"
    assert arguments["content"] == CONTENT.decode()
    assert (arguments["document"], arguments["suffix"], arguments["output"]) == ("README.MD", ".md", str(output))


def test_a_document_above_the_limit_is_refused_and_nothing_is_created(tmp_path, output):
    (tmp_path / "d").write_bytes(b"x" * (DOCUMENT_BYTES + 1))

    with pytest.raises(errors.TooLargeError):
        publish_arguments(tmp_path / "d", output)

    assert not output.exists()


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo, lambda path: path.symlink_to(os.devnull)])
def test_what_is_no_document_is_refused_by_name_of_the_fault(make, tmp_path, output):
    make(tmp_path / "d")

    with pytest.raises(errors.MalformedError, match=r"regular file|empty"):
        publish_arguments(tmp_path / "d", output)


def test_a_file_in_the_place_of_the_output_is_refused(document, output):
    output.write_text("mine")

    with pytest.raises(errors.MalformedError, match="directory"):
        publish_arguments(document, output)

    assert output.read_text() == "mine"


def test_taking_a_document_makes_no_directory(document, output):
    publish_operation(document, output)

    assert not output.exists()


def test_the_same_document_and_directory_give_the_same_definition(document, output, tmp_path, monkeypatch):
    first = publish_operation(document, output)
    monkeypatch.chdir(tmp_path)

    assert publish_operation("./README.MD", "./published") == first
    make_output(first)
    assert publish_operation("./README.MD", "./published") == first
    assert stat.S_IMODE(output.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["noext", "a.tar.GZ", "a.", ".hidden", "a.MD", "x.sh;rm", "a.ünï", "a.toolongsuffix0"])
def test_only_a_plain_suffix_of_the_document_is_kept(name, tmp_path, output):
    (tmp_path / name).write_bytes(b"x")

    suffix = publish_arguments(tmp_path / name, output)["suffix"]

    assert suffix == {"a.tar.GZ": ".gz", "a.MD": ".md"}.get(name, "")


def test_a_document_name_that_is_no_text_is_still_a_definition(tmp_path, output):
    path = os.fsencode(tmp_path) + b"/bad\xff\n"
    Path(os.fsdecode(path)).write_bytes(b"x")

    operation = publish_operation(os.fsdecode(path), output)

    wire.CreateWorkflow.from_json({"workflow_key": "k", "operations": [operation]})


@pytest.mark.parametrize(
    "operation_id",
    ["", "op_", "op_/etc/passwd", "../../x", "op_..", "op_" + "a" * 65, "op_" + "A" * 32, "op_ａａａａａａａａ",
     "op_aaaaaaa\n", "op_aaaaaaaa.md", "op_aaaaaaaa\x00", "OP_" + "a" * 32, "op_aaaa aaaa", "con"],
)  # fmt: skip
def test_an_id_that_cannot_name_a_file_publishes_nothing(operation_id, publisher, arguments, output):
    with pytest.raises(NotDispatched):
        execute(publisher, arguments, operation_id)

    assert names(output) == []


@pytest.mark.parametrize(
    "change",
    [
        {"content": "other"}, {"sha256": "0" * 64}, {"bytes": 1}, {"bytes": None}, {"encoding": "rot13"},
        {"encoding": None}, {"suffix": "/../x"}, {"suffix": ".MD"}, {"suffix": "\n"}, {"suffix": None, "content": 5},
        {"encoding": "base64"}, {"output": "/"}, {"output": None}, {"output": ""}, {"output": []},
    ],
)  # fmt: skip
def test_arguments_that_are_not_the_reviewed_ones_publish_nothing(change, publisher, arguments, output):
    with pytest.raises(NotDispatched):
        execute(publisher, {**arguments, **change})

    assert names(output) == []


def test_another_directory_than_the_reviewed_one_is_refused_before_the_effect(arguments, output, tmp_path):
    (tmp_path / "elsewhere").mkdir()

    for other in (tmp_path / "elsewhere", tmp_path / "not there", output.parent, output / "." / ".."):
        with pytest.raises(NotDispatched, match="reviewed"):
            execute(DirectoryPublisher(other), arguments)

    assert names(output) == names(tmp_path / "elsewhere") == []
    assert not (tmp_path / "not there").exists()


def test_another_spelling_of_the_reviewed_directory_is_the_same_directory(arguments, output, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(output)
    monkeypatch.chdir(tmp_path)

    for spelling in ("published", "./published/", "link", str(output / ".." / "published")):
        assert execute(DirectoryPublisher(spelling), arguments)["result"]["path"] == str(output / NAME)


# --- Things in the way ---


def huge(target, _victim):
    with target.open("wb") as file:
        file.truncate(10 * DOCUMENT_BYTES)


def listening(target, _victim):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.path.relpath(target))


IN_THE_WAY = {
    "file": lambda target, _victim: target.write_bytes(b"mine"),
    "empty file": lambda target, _victim: target.touch(),
    "longer file": lambda target, _victim: target.write_bytes(CONTENT + b"x"),
    "huge file": huge,
    "folder": lambda target, _victim: target.mkdir(),
    "fifo": lambda target, _victim: os.mkfifo(target),
    "socket": listening,
    "symlink": lambda target, victim: target.symlink_to(victim),
    "dangling symlink": lambda target, victim: target.symlink_to(victim.with_name("nowhere")),
    "symlink to a device": lambda target, _victim: target.symlink_to("/dev/zero"),
    "hardlink": lambda target, victim: target.hardlink_to(victim),
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_whatever_has_the_name_is_left_alone_and_the_publication_refused(
    kind, publisher, arguments, output, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    target, victim = output / NAME, tmp_path / "victim"
    victim.write_bytes(CONTENT)
    IN_THE_WAY[kind](target, victim)

    def look():
        found = target.lstat()
        return found.st_ino, found.st_mtime_ns, found.st_nlink, victim.read_bytes()

    before = look()

    with pytest.raises(Refused):
        execute(publisher, arguments)
    said = query(publisher, arguments)

    assert said["outcome"] == "unknown"
    assert look() == before
    assert names(output) == [NAME]
    assert not (tmp_path / "nowhere").exists()


def test_a_device_that_has_the_name_is_foreign(open_folder):
    with open_folder("/dev") as opened, pytest.raises(ForeignFileError):
        opened.read("null", most_bytes=10)


def test_a_directory_that_is_gone_is_no_proof_of_absence(publisher, arguments, output):
    output.rmdir()

    for call in (execute, query):
        with pytest.raises(NotDispatched) as caught:
            call(publisher, arguments)
        assert caught.value.message == f"The output directory is not there: make {output} and run again."
    assert not output.exists()


def test_a_directory_that_became_a_file_or_a_link_publishes_nothing(publisher, arguments, output, tmp_path):
    output.rmdir()
    output.write_bytes(b"")
    with pytest.raises(NotDispatched):
        execute(publisher, arguments)

    output.unlink()
    (tmp_path / "victim").mkdir()
    output.symlink_to(tmp_path / "victim")
    for tool in (publisher, DirectoryPublisher(output)):
        with pytest.raises(NotDispatched):
            execute(tool, arguments)
    assert names(tmp_path / "victim") == []


def test_a_link_among_the_parents_is_followed_by_nobody(tmp_path, document):
    real = tmp_path / "real" / "published"
    real.mkdir(parents=True)
    arguments = publish_arguments(document, real)
    publisher = DirectoryPublisher(real)
    (tmp_path / "real").rename(tmp_path / "moved")
    (tmp_path / "victim" / "published").mkdir(parents=True)
    (tmp_path / "real").symlink_to(tmp_path / "victim")

    with pytest.raises(NotDispatched):
        execute(publisher, arguments)

    assert names(tmp_path / "victim" / "published") == names(tmp_path / "moved" / "published") == []


def test_a_publication_whose_time_is_over_publishes_nothing(publisher, arguments, output):
    with pytest.raises(NotDispatched):
        execute(publisher, arguments, timeout_s=0)

    assert names(output) == []


# --- File systems that fail ---


class Failing(Folder):
    """A directory whose file system fails at one step."""

    step, number = "", 0

    def _fail(self, step):
        if step == self.step:
            raise OSError(self.number, os.strerror(self.number))

    def write_new(self, name, content):
        self._fail("write")
        return super().write_new(name, content)

    def give_name(self, written, name):
        self._fail("name")
        super().give_name(written, name)

    def sync(self):
        self._fail("sync")
        super().sync()


@pytest.mark.parametrize(
    ("step", "number", "raised", "left"),
    [
        ("write", errno.ENOSPC, NotDispatched, []),
        ("write", errno.EIO, NotDispatched, []),
        ("name", errno.EPERM, NotDispatched, []),
        ("name", errno.EOPNOTSUPP, NotDispatched, []),
        ("name", errno.EIO, OSError, []),
        ("name", errno.ESTALE, OSError, []),
        ("sync", errno.EIO, OSError, [NAME]),
    ],
)
def test_only_a_failure_without_doubt_says_that_nothing_happened(step, number, raised, left, arguments, output):
    failing = type("FailingOnce", (Failing,), {"step": step, "number": number})

    with pytest.raises(raised) as caught:
        execute(DirectoryPublisher(output, open_folder=failing), arguments)

    assert isinstance(caught.value, NotDispatched) == (raised is NotDispatched)
    assert names(output) == left


def test_an_interrupted_write_leaves_no_name(output):
    output.mkdir()

    with Folder(output) as opened, pytest.raises(TypeError):
        opened.write_new("x", "no bytes")

    assert names(output) == []


def test_a_file_that_took_the_name_meanwhile_is_looked_at(arguments, output):
    class Beaten(Folder):
        content = CONTENT

        def give_name(self, written, name):
            (output / name).write_bytes(self.content)
            super().give_name(written, name)

    other = type("BeatenByAnother", (Beaten,), {"content": b"other"})

    with pytest.raises(Refused):
        execute(DirectoryPublisher(output, open_folder=other), arguments)
    (output / NAME).unlink()
    assert execute(DirectoryPublisher(output, open_folder=Beaten), arguments)["outcome"] == "confirmed_succeeded"
    assert names(output) == [NAME]


def test_a_name_that_was_taken_and_is_free_again_leaves_the_outcome_unknown(arguments, output):
    class Flickering(Folder):
        def give_name(self, written, name):
            raise FileExistsError(errno.EEXIST, "taken for a moment")

    with pytest.raises(FileExistsError):
        execute(DirectoryPublisher(output, open_folder=Flickering), arguments)

    assert names(output) == []


def test_a_written_file_that_was_replaced_by_a_file_is_not_called_published(arguments, output):
    class Replaced(Folder):
        def give_name(self, written, name):
            super().give_name(written, name)
            (output / name).unlink()

    with pytest.raises(OSError, match="not the one"):
        execute(DirectoryPublisher(output, open_folder=Replaced), arguments)


def test_a_directory_that_has_moved_is_not_asked(arguments, output):
    class Moving(Folder):
        def __init__(self, path):
            super().__init__(path)
            output.rename(output.with_name("moved"))

    for call in (execute, query):
        with pytest.raises(NotDispatched):
            call(DirectoryPublisher(output, open_folder=Moving), arguments)
        output.with_name("moved").rename(output)


def test_a_directory_whose_path_is_no_text_is_refused(document, tmp_path):
    with pytest.raises(errors.MalformedError):
        publish_arguments(document, os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))


def test_a_publisher_shows_its_directory(output):
    assert str(output) in repr(DirectoryPublisher(output))


def test_a_written_file_that_was_exchanged_is_not_called_published(arguments, output, tmp_path):
    (tmp_path / "evil").write_bytes(b"evil")

    class Exchanged(Folder):
        def give_name(self, written, name):
            (output / written).unlink()
            (output / written).symlink_to(tmp_path / "evil")
            super().give_name(written, name)

    with pytest.raises((Refused, OSError)):
        execute(DirectoryPublisher(output, open_folder=Exchanged), arguments)

    assert (tmp_path / "evil").read_bytes() == b"evil"


def test_a_directory_that_is_replaced_meanwhile_is_not_called_published(arguments, output):
    class Replaced(Folder):
        def give_name(self, written, name):
            super().give_name(written, name)
            output.rename(output.with_name("moved"))
            output.mkdir()

    with pytest.raises(OSError, match="replaced"):
        execute(DirectoryPublisher(output, open_folder=Replaced), arguments)

    assert names(output) == []
    assert query(DirectoryPublisher(output), arguments)["outcome"] == "absent"


def test_what_killed_publishers_left_is_removed_and_nothing_else(publisher, arguments, output):
    part = output / f".{OPERATION}.{'0' * 16}.part"
    execute(publisher, arguments)
    part.hardlink_to(output / NAME)
    others = [f".op_{'c' * 32}.{'0' * 16}.part", f".{OPERATION}.part", f".{OPERATION}.{'0' * 16}.part.bak"]
    for other in others:
        (output / other).write_bytes(b"not ours")

    assert query(publisher, arguments)["outcome"] == "confirmed_succeeded"
    assert names(output) == sorted([NAME, *others])


def test_a_publisher_whose_written_file_was_removed_has_published_nothing(arguments, output):
    class Removed(Folder):
        def give_name(self, written, name):
            self.remove(written)
            super().give_name(written, name)

    with pytest.raises(NotDispatched):
        execute(DirectoryPublisher(output, open_folder=Removed), arguments)

    assert names(output) == []


# --- Races and kills ---


def test_many_publishers_of_one_operation_leave_one_file(arguments, output):
    receipts, problems = [], []
    barrier = threading.Barrier(16)

    def work():
        barrier.wait()
        for _ in range(5):
            try:
                receipts.append(execute(DirectoryPublisher(output), arguments)["result"]["sha256"])
            except NotDispatched:
                # Another one tidied its file away before it had its name: certainly nothing happened.
                continue
            except Exception as error:  # noqa: BLE001 - shown by the assertion below
                problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    assert set(receipts) == {hashlib.sha256(CONTENT).hexdigest()}
    assert (output / NAME).read_bytes() == CONTENT
    assert names(output) == [NAME]


LEAST_SWAPS = 21


class SwappedAt(Folder):
    """A directory in whose place a link stands from one step of a publication on."""

    step, put_link = "", staticmethod(lambda: None)

    def __init__(self, path):
        self._at_step("open")
        super().__init__(path)
        self._at_step("look")

    def write_new(self, name, content):
        self._at_step("write")
        return super().write_new(name, content)

    def give_name(self, written, name):
        self._at_step("name")
        super().give_name(written, name)

    def sync(self):
        self._at_step("sync")
        super().sync()

    def _at_step(self, step):
        if step == self.step:
            self.put_link()


@pytest.mark.skipif(not folder.CAN_HOLD_OPEN, reason="By path alone a swap can only be noticed, not prevented.")
@pytest.mark.parametrize(
    "race_s", [pytest.param(1.0, id="short"), pytest.param(10.0, marks=pytest.mark.soak, id="long")]
)
def test_a_directory_swapped_for_a_link_never_leads_a_file_astray(race_s, document, tmp_path):
    output, aside, victim = tmp_path / "published", tmp_path / "aside", tmp_path / "victim"
    arguments = prepared(document, output)
    victim.mkdir()
    numbers = itertools.count(1)
    swaps = 0

    def put_link():
        output.rename(aside)
        output.symlink_to(victim)

    def put_back():
        output.unlink()
        aside.rename(output)

    def published(publisher):
        try:
            execute(publisher, arguments, f"op_{next(numbers):032x}")
        except (NotDispatched, OSError):
            return False
        return True

    def swap():
        nonlocal swaps
        while time.monotonic() < ends_at_s or swaps < LEAST_SWAPS:
            put_link()
            put_back()
            swaps += 1
            time.sleep(random.uniform(0, 0.002))

    # First at each step with the link held there, whatever the machine's speed; then at any instant.
    for step in ("open", "look", "write", "name", "sync"):
        held = type("Held", (SwappedAt,), {"step": step, "put_link": staticmethod(put_link)})
        # The reviewed path is given as it was resolved then: the race is about what happens afterwards.
        publisher = DirectoryPublisher(output, open_folder=held)
        assert not published(publisher), step
        put_back()
        assert names(victim) == [], step
        # A swap that is over before the next look is no harm.
        held.put_link = staticmethod(lambda: (put_link(), put_back()))
        assert published(publisher), step

    publisher = DirectoryPublisher(output)
    ends_at_s = time.monotonic() + race_s
    thread = threading.Thread(target=swap)
    thread.start()
    while thread.is_alive():
        published(publisher)
    thread.join()

    assert names(victim) == []
    assert swaps >= LEAST_SWAPS
    assert published(publisher)
    assert all((output / name).read_bytes() == CONTENT for name in names(output))


KILLED = """
import os, signal, sys
from continuity.tools import DirectoryPublisher, make_output, publish_operation

document, output = sys.argv[1:]
operation = publish_operation(document, output)
make_output(operation)
arguments = operation["arguments"]
publisher = DirectoryPublisher(output)

def publish(operation_id, at):
    count = 0

    def point(frame, event, argument):
        nonlocal count
        if event == "c_call" and getattr(argument, "__module__", None) in ("posix", "_io", None):
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(point)
    publisher.execute(arguments, operation_id, "ik", 30)
    os._exit(0)

for line in sys.stdin:
    operation_id, at = line.split()
    child = os.fork()
    if child == 0:
        publish(operation_id, int(at))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def kill(document, output):
    """Publish in a process of its own and kill it before its nth call into the system; say how it ended."""
    forker = subprocess.Popen(
        [sys.executable, "-c", KILLED, document, output],
        cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def publish(operation_id, at):
        forker.stdin.write(f"{operation_id} {at}\n")
        forker.stdin.flush()
        return int(forker.stdout.readline())

    with forker:
        yield publish
        forker.stdin.close()


def test_a_kill_anywhere_leaves_no_file_or_the_whole_file_and_a_second_try_finishes(kill, output, arguments):
    """A real process is killed before its first call into the system, its second, and so on to the last."""
    publisher = DirectoryPublisher(output)
    ended, at, seen = -signal.SIGKILL, 0, set()
    while ended != 0:
        at += 1
        operation_id = f"op_{at:032x}"
        target = output / f"{operation_id}.md"
        ended = kill(operation_id, at)

        assert ended in (0, -signal.SIGKILL)
        assert not target.exists() or target.read_bytes() == CONTENT
        said = query(publisher, arguments, operation_id)["outcome"]
        assert said == ("confirmed_succeeded" if target.exists() else "absent")
        assert execute(publisher, arguments, operation_id)["outcome"] == "confirmed_succeeded"
        assert names(output) == [target.name]
        seen.add(said)
        target.unlink()

    assert seen == {"absent", "confirmed_succeeded"}
    assert at > 20


# --- The folder itself ---


def test_a_folder_is_opened_through_no_link_put_there_meanwhile(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(OSError, match=r"[Nn]ot a directory|symbolic"):
        folder._open_directory(str(tmp_path / "link"))


def test_a_file_is_no_folder(tmp_path, open_folder):
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match="directory"):
        open_folder(tmp_path / "file")


def test_a_file_that_grows_while_it_is_read_is_foreign(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 11)

    with Folder(tmp_path) as opened, pytest.raises(ForeignFileError):
        opened.read("f", most_bytes=10)
    with Folder(tmp_path) as opened:
        assert opened.read("f", most_bytes=11) == b"x" * 11


def test_opening_and_publishing_leaves_no_descriptor_behind(arguments, output):
    def lowest_free():
        fd = os.open(output, os.O_RDONLY)
        os.close(fd)
        return fd

    before = lowest_free()

    for number in range(20):
        execute(DirectoryPublisher(output), arguments, f"op_{number:032x}")
        with pytest.raises(NotDispatched):
            execute(DirectoryPublisher(output), {**arguments, "bytes": 0}, f"op_{number:032x}")

    assert lowest_free() == before
