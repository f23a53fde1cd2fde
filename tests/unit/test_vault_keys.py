"""Master keys: the ring, the key file with its permissions (V09) and the environment variable."""

import base64
import errno
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from continuity.errors import DecryptionError, KeySourceError
from continuity.vault import EnvironmentKeyProvider, FileKeyProvider, KeyInfo, Keyring, files, keys

ONE, TWO = bytes(range(32)), bytes(range(32, 64))
BASE64_ONE, BASE64_TWO = base64.b64encode(ONE), base64.b64encode(TWO)


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def provider(folder):
    made = FileKeyProvider(folder / "vault.key")
    made.create()
    return made


def same_keys(one, other):
    def sealed(ring):
        return [ring.cipher(info.key_id).encrypt(bytes(12), b"", None) for info in ring.info()]

    return one.info() == other.info() and sealed(one) == sealed(other)


class TestKeyring:
    def test_it_tells_ids_and_which_is_primary(self):
        ring = Keyring({9: TWO, 1: ONE}, primary_id=9)

        assert ring.info() == (KeyInfo(1, is_primary=False), KeyInfo(9, is_primary=True))
        assert ring.primary_id == 9

    def test_adding_and_dropping_answer_new_rings(self):
        first = Keyring({1: ONE}, primary_id=1)
        both = first.with_key(2, TWO)
        moved = both.with_primary(2)

        assert [len(ring.info()) for ring in (first, both, moved, moved.without_key(1))] == [1, 2, 2, 1]
        assert [ring.primary_id for ring in (first, both, moved, moved.without_key(1))] == [1, 1, 2, 2]
        assert same_keys(moved.without_key(1), Keyring({2: TWO}, primary_id=2))

    def test_the_primary_key_cannot_be_dropped(self):
        with pytest.raises(RuntimeError):
            Keyring({1: ONE, 2: TWO}, primary_id=1).without_key(1)

    def test_a_key_id_is_never_given_twice(self):
        with pytest.raises(RuntimeError):
            Keyring({1: ONE}, primary_id=1).with_key(1, TWO)

    def test_a_key_that_is_not_there_is_neither_dropped_nor_made_primary_nor_used(self):
        ring = Keyring({1: ONE}, primary_id=1)

        for use in (ring.without_key, ring.with_primary):
            with pytest.raises(KeySourceError):
                use(2)
        with pytest.raises(DecryptionError):
            ring.cipher(2)

    @pytest.mark.parametrize(
        ("held", "primary_id"),
        [({}, 1), ({1: ONE}, 2), ({1: ONE[:16]}, 1), ({1: ONE + b"\0"}, 1), ({0: ONE}, 0), ({2**32: ONE}, 2**32)],
    )
    def test_a_ring_of_wrong_keys_is_refused(self, held, primary_id):
        with pytest.raises(KeySourceError):
            Keyring(held, primary_id=primary_id)

    @pytest.mark.parametrize(("key_id", "key"), [(2, ONE[:31]), (0, ONE), (2**32, ONE)])
    def test_a_wrong_key_is_not_added(self, key_id, key):
        with pytest.raises(KeySourceError):
            Keyring({1: ONE}, primary_id=1).with_key(key_id, key)

    def test_it_does_not_change(self):
        held = {1: ONE}
        ring = Keyring(held, primary_id=1)
        held[2] = TWO

        with pytest.raises(AttributeError):
            ring.primary_id = 2
        with pytest.raises(AttributeError):
            del ring.primary_id
        with pytest.raises(TypeError):
            ring._keys[2] = TWO
        assert ring.info() == (KeyInfo(1, is_primary=True),)


class TestKeyFile:
    def test_a_created_file_is_private_and_loads_again(self, folder):
        provider = FileKeyProvider(folder / "vault.key")

        created = provider.create()

        assert stat.S_IMODE(provider.path.stat().st_mode) == 0o600
        assert same_keys(provider.load(), created)
        assert created.info() == (KeyInfo(1, is_primary=True),)

    @pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
    def test_a_created_file_is_private_whatever_the_umask(self, folder, umask):
        before = os.umask(umask)
        try:
            FileKeyProvider(folder / "vault.key").create()
        finally:
            os.umask(before)

        assert stat.S_IMODE((folder / "vault.key").stat().st_mode) == 0o600

    def test_two_files_hold_two_keys(self, folder, provider):
        other = FileKeyProvider(folder / "other.key").create()

        assert not same_keys(other, provider.load())

    def test_a_file_that_is_there_is_never_overwritten(self, provider):
        before = provider.path.read_bytes()

        with pytest.raises(KeySourceError, match="cannot be created: File exists"):
            provider.create()

        assert provider.path.read_bytes() == before

    def test_an_empty_file_is_filled(self, folder):
        path = folder / "vault.key"
        path.touch(mode=0o600)

        assert same_keys(FileKeyProvider(path).create(), FileKeyProvider(path).load())

    @pytest.mark.parametrize("mode", [0o640, 0o604])
    def test_an_empty_file_that_others_may_hold_open_is_not_filled(self, folder, mode):
        path = folder / "vault.key"
        path.touch()
        path.chmod(mode)

        with pytest.raises(KeySourceError, match="cannot be created: File exists"):
            FileKeyProvider(path).create()

        assert path.read_bytes() == b""

    def test_of_many_creations_at_once_one_makes_the_key(self, folder):
        path = folder / "vault.key"
        path.touch(mode=0o600)

        def create(_number):
            try:
                return FileKeyProvider(path).create()
            except KeySourceError:
                return None

        with ThreadPoolExecutor(8) as pool:
            made = [ring for ring in pool.map(create, range(8)) if ring is not None]

        assert len(made) == 1
        assert same_keys(made[0], FileKeyProvider(path).load())

    def test_a_dangling_link_is_not_followed_when_creating(self, folder):
        (folder / "vault.key").symlink_to(folder / "elsewhere")

        with pytest.raises(KeySourceError):
            FileKeyProvider(folder / "vault.key").create()

        assert not (folder / "elsewhere").exists()

    def test_no_key_is_left_in_a_folder_that_others_can_write_to(self, folder):
        folder.chmod(0o770)

        with pytest.raises(KeySourceError, match="others can write"):
            FileKeyProvider(folder / "vault.key").create()

        assert list(folder.iterdir()) == []

    def test_file_and_folder_are_durable_before_anybody_is_told(self, folder, monkeypatch):
        synced = []

        def spy(descriptor, real=files.sync):
            synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), os.fstat(descriptor).st_size))
            real(descriptor)

        monkeypatch.setattr(files, "sync", spy)
        provider = FileKeyProvider(folder / "vault.key")

        provider.create()

        assert synced[0] == (False, provider.path.stat().st_size)
        assert [is_folder for is_folder, _ in synced] == [False, True]

    @pytest.mark.parametrize("failing_sync", [1, 2])
    def test_a_file_that_cannot_be_made_durable_is_not_left_behind(self, folder, monkeypatch, failing_sync):
        calls = []

        def fail(descriptor, real=files.sync):
            calls.append(descriptor)
            if len(calls) == failing_sync:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        monkeypatch.setattr(files, "sync", fail)

        with pytest.raises(KeySourceError, match="No space left"):
            FileKeyProvider(folder / "vault.key").create()

        assert list(folder.iterdir()) == []


def a_file_with_mode(mode):
    return lambda path: path.chmod(mode)


def a_second_name(path):
    (path.parent / "second").hardlink_to(path)


def a_symbolic_link(path):
    path.rename(path.parent / "real")
    path.symlink_to(path.parent / "real")


def a_loop(path):
    path.unlink()
    path.symlink_to(path)


def a_fifo(path):
    path.unlink()
    os.mkfifo(path, 0o600)


def a_folder(path):
    path.unlink()
    path.mkdir(0o700)


def a_socket(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


def a_missing_file(path):
    path.unlink()


def a_folder_with_mode(mode):
    return lambda path: path.parent.chmod(mode)


PERMISSIONS = {
    "0600": (a_file_with_mode(0o600), None),
    "0400": (a_file_with_mode(0o400), None),
    "0640": (a_file_with_mode(0o640), "mode 0600 or 0400"),
    "0604": (a_file_with_mode(0o604), "mode 0600 or 0400"),
    "0644": (a_file_with_mode(0o644), "mode 0600 or 0400"),
    "0660": (a_file_with_mode(0o660), "mode 0600 or 0400"),
    "0700": (a_file_with_mode(0o700), "mode 0600 or 0400"),
    "0620": (a_file_with_mode(0o620), "mode 0600 or 0400"),
    "setuid": (a_file_with_mode(0o4600), "mode 0600 or 0400"),
    "hard link": (a_second_name, "hard link"),
    "symbolic link": (a_symbolic_link, "symbolic link"),
    "link to itself": (a_loop, "symbolic link"),
    "FIFO": (a_fifo, "not a regular file"),
    "folder": (a_folder, "not a regular file"),
    "socket": (a_socket, "cannot be opened"),
    "missing": (a_missing_file, "cannot be opened: No such file"),
    "folder 0700": (a_folder_with_mode(0o700), None),
    "folder 0755": (a_folder_with_mode(0o755), None),
    "folder 0770": (a_folder_with_mode(0o770), "others can write"),
    "folder 0707": (a_folder_with_mode(0o707), "others can write"),
    "folder 1777": (a_folder_with_mode(0o1777), "others can write"),
}


class TestPermissions:
    @pytest.mark.parametrize(("change", "reason"), PERMISSIONS.values(), ids=PERMISSIONS.keys())
    def test_a_file_that_is_not_private_is_refused_with_its_reason(self, provider, monkeypatch, change, reason):
        monkeypatch.chdir(provider.path.parent)  # a socket's path is short
        change(provider.path)

        if reason is None:
            assert provider.load()
        else:
            with pytest.raises(KeySourceError, match=reason) as caught:
                provider.load()
            assert str(provider.path) in caught.value.message
            assert caught.value.code == "vault_key_unavailable"

    def test_a_file_of_another_user_is_refused(self, provider, monkeypatch):
        monkeypatch.setattr(files, "effective_user_id", lambda: os.geteuid() + 1)

        with pytest.raises(KeySourceError, match="another user"):
            provider.load()

    def test_a_link_that_appears_after_the_first_look_is_not_followed(self, provider, monkeypatch):
        a_symbolic_link(provider.path)
        monkeypatch.setattr(type(provider.path), "is_symlink", lambda path: False)

        with pytest.raises(KeySourceError, match="cannot be opened"):
            provider.load()

    def test_where_files_have_no_owner_and_mode_the_other_checks_stay(self, folder, monkeypatch):
        monkeypatch.setattr(files, "effective_user_id", lambda: None)
        provider = FileKeyProvider(folder / "vault.key")
        provider.create()
        provider.path.chmod(0o644)
        folder.chmod(0o777)

        assert provider.load()
        a_second_name(provider.path)
        with pytest.raises(KeySourceError, match="hard link"):
            provider.load()
        (folder / "second").unlink()
        a_symbolic_link(provider.path)
        with pytest.raises(KeySourceError, match="symbolic link"):
            provider.load()

    def test_only_windows_has_files_without_an_owner(self, monkeypatch):
        assert files.effective_user_id() == os.geteuid()
        monkeypatch.setattr(os, "name", "nt")
        assert files.effective_user_id() is None


def a_line(key_id, status, key):
    return b"%d %s %s\n" % (key_id, status, key)


FIRST = a_line(1, b"primary", BASE64_ONE)
WRONG_FILES = {
    "empty": b"",
    "head alone": keys.FILE_HEAD,
    "no head": FIRST,
    "another format": b"atmem-vault-key 2\n" + FIRST,
    "no line feed at the end": keys.FILE_HEAD + FIRST[:-1],
    "a blank line more": keys.FILE_HEAD + FIRST + b"\n",
    "Windows line ends": (keys.FILE_HEAD + FIRST).replace(b"\n", b"\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + keys.FILE_HEAD + FIRST,
    "the raw key": ONE,
    "base64 alone": BASE64_ONE + b"\n",
    "key of 31 bytes": keys.FILE_HEAD + a_line(1, b"primary", base64.b64encode(ONE[:31])),
    "key of 33 bytes": keys.FILE_HEAD + a_line(1, b"primary", base64.b64encode(ONE + b"\0")),
    "key without padding": keys.FILE_HEAD + a_line(1, b"primary", BASE64_ONE[:-1]),
    "stray bits in the last character": keys.FILE_HEAD + a_line(1, b"primary", BASE64_ONE[:-2] + b"9="),
    "URL alphabet": keys.FILE_HEAD + a_line(1, b"primary", b"-_" + BASE64_ONE[2:]),
    "hexadecimal": keys.FILE_HEAD + a_line(1, b"primary", ONE.hex().encode()),
    "key 0": keys.FILE_HEAD + a_line(0, b"primary", BASE64_ONE),
    "key id too large": keys.FILE_HEAD + a_line(2**32, b"primary", BASE64_ONE),
    "leading zero": keys.FILE_HEAD + b"0" + FIRST,
    "no primary": keys.FILE_HEAD + a_line(1, b"accepted", BASE64_ONE),
    "two primaries": keys.FILE_HEAD + FIRST + a_line(2, b"primary", BASE64_TWO),
    "one id twice": keys.FILE_HEAD + FIRST + a_line(1, b"accepted", BASE64_TWO),
    "another status": keys.FILE_HEAD + a_line(1, b"retired", BASE64_ONE),
    "17 keys": keys.FILE_HEAD + FIRST + b"".join(a_line(2 + i, b"accepted", BASE64_TWO) for i in range(16)),
    "a huge file": keys.FILE_HEAD + FIRST * 100_000,
}


class TestEncoding:
    @pytest.mark.parametrize("content", WRONG_FILES.values(), ids=WRONG_FILES.keys())
    def test_a_file_that_is_not_exactly_of_the_form_is_refused_whole(self, provider, content):
        provider.path.write_bytes(content)

        with pytest.raises(KeySourceError, match="not a complete vault key file"):
            provider.load()

    def test_every_truncation_of_a_file_is_refused(self, provider):
        content = provider.path.read_bytes()

        for length in range(len(content)):
            provider.path.write_bytes(content[:length])
            with pytest.raises(KeySourceError):
                provider.load()

    def test_sixteen_keys_are_read(self, provider):
        rest = (a_line(2**32 - 1 - i, b"accepted", BASE64_TWO) for i in range(15))
        provider.path.write_bytes(keys.FILE_HEAD + FIRST + b"".join(rest))

        assert len(provider.load().info()) == 16

    @pytest.mark.parametrize(
        ("value", "ring"),
        [
            (BASE64_ONE.decode(), Keyring({1: ONE}, primary_id=1)),
            (f"2:{BASE64_TWO.decode()}", Keyring({2: TWO}, primary_id=2)),
            (f"2:{BASE64_TWO.decode()},1:{BASE64_ONE.decode()}", Keyring({1: ONE, 2: TWO}, primary_id=2)),
            (f"{BASE64_ONE.decode()},2:{BASE64_TWO.decode()}", Keyring({1: ONE, 2: TWO}, primary_id=1)),
        ],
    )
    def test_an_environment_value_gives_its_keys_the_first_one_primary(self, value, ring):
        environment = {"ATMEM_VAULT_KEY": value, "OTHER": "stays"}

        provider = EnvironmentKeyProvider(environment=environment)

        assert same_keys(provider.load(), ring)
        assert same_keys(provider.load(), ring)
        assert environment == {"OTHER": "stays"}

    @pytest.mark.parametrize(
        "value",
        [
            None,
            "",
            "changeme",
            BASE64_ONE.decode() + "\n",
            BASE64_ONE.decode()[:-1],
            BASE64_ONE.decode()[:-2] + "9=",
            f"0:{BASE64_ONE.decode()}",
            f"{2**32}:{BASE64_ONE.decode()}",
            f"{BASE64_ONE.decode()},{BASE64_TWO.decode()}",
            f"{BASE64_ONE.decode()},",
            ",".join(f"{i}:{BASE64_ONE.decode()}" for i in range(1, 18)),
            "\u0661:" + BASE64_ONE.decode(),
            "\udcff" * 44,
        ],
    )
    def test_an_environment_value_of_another_form_is_refused(self, value):
        environment = {} if value is None else {"ATMEM_VAULT_KEY": value}

        with pytest.raises(KeySourceError, match="ATMEM_VAULT_KEY must hold 32 bytes as base64"):
            EnvironmentKeyProvider(environment=environment).load()

    def test_a_value_set_in_this_process_is_taken_out_of_it(self, monkeypatch):
        monkeypatch.setenv("ATMEM_TEST_KEY", BASE64_ONE.decode())

        provider = EnvironmentKeyProvider(name="ATMEM_TEST_KEY")

        assert "ATMEM_TEST_KEY" not in os.environ
        assert same_keys(provider.load(), Keyring({1: ONE}, primary_id=1))

    def test_where_the_environment_cannot_be_overwritten_it_is_still_removed(self, monkeypatch):
        monkeypatch.setattr(files, "effective_user_id", lambda: None)
        environment = {"ATMEM_VAULT_KEY": BASE64_ONE.decode()}

        EnvironmentKeyProvider(environment=environment)

        assert environment == {}

    def test_each_provider_names_its_kind(self, folder):
        assert FileKeyProvider(folder).kind == "file"
        assert EnvironmentKeyProvider(environment={}).kind == "environment"
