"""Settings from the environment: what is meant, and what stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config import SettingsError, load_settings

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


def test_without_any_variable_the_instance_stands_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    settings = load_settings({})

    assert settings.instance == tmp_path / "instance"
    assert settings.database_url == f"sqlite:///{tmp_path}/instance/continuity.db"
    assert settings.vault_key_file == tmp_path / "instance" / "vault.key"
    assert settings.shred_list == tmp_path / "instance" / "shred.list"
    assert settings.url == "http://127.0.0.1:8768"
    assert settings.trusted_hosts == {"127.0.0.1", "localhost", "[::1]"}
    assert settings.trusted_proxies == ()


def test_the_host_of_the_public_address_is_trusted():
    settings = load_settings(
        {"ATMEM_URL": "HTTPS://Atmem.Example:8443/", "ATMEM_TRUSTED_HOSTS": "a.example, [fe80::1]"}
    )

    assert settings.url == "https://atmem.example:8443"
    assert settings.is_https
    assert {"atmem.example", "a.example", "[fe80::1]"} < settings.trusted_hosts


def test_the_shred_list_lies_beside_the_key_wherever_that_is():
    assert load_settings({"ATMEM_VAULT_KEY_FILE": "/keys/vault.key"}).shred_list == Path("/keys/shred.list")


def test_a_key_in_a_variable_is_named_and_not_kept():
    settings = load_settings({"ATMEM_VAULT_KEY": KEY, "ATMEM_SHRED_LIST": "/keys/shred.list"})

    assert settings.vault_key_variable == "ATMEM_VAULT_KEY"
    assert KEY not in repr(settings)


def test_the_database_password_is_not_shown():
    assert "hunter2" not in repr(load_settings({"ATMEM_DATABASE_URL": "postgresql://atmem:hunter2@db/atmem"}))


def test_a_database_password_that_was_not_encoded_is_not_shown_either():
    with pytest.raises(SettingsError, match="%40") as refused:
        load_settings({"ATMEM_DATABASE_URL": "postgresql://atmem:a@b:hunter2@db/atmem"})

    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


WRONG = {
    "ATMEM_INSTANCE": ["a\nb", " a"],
    "ATMEM_DATABASE_URL": [
        "mysql://x/y", "sqlite://", "sqlite:///:memory:", "sqlite:///here.db", "continuity.db", "postgresql:x",
        "postgresql://a:b@host:port/c", "postgresql://a:b@[::1/c",
    ],
    "ATMEM_URL": [
        "127.0.0.1:8768", "ftp://x", "http://", "http://a@b", "http://a/b", "http://a?b", "http://a#b", "http://a:0x",
        "http://a:99999", "http://a b", "http://a\tb", "http://ä",
    ],
    "ATMEM_VAULT_KEY_FILE": ["relative.key"],
    "ATMEM_VAULT_KEY_SOURCE": ["vault", "File", "environment"],
    "ATMEM_SHRED_LIST": ["relative.list"],
    "ATMEM_TRUSTED_HOSTS": ["*", "a b", "http://a", "a:80", "-a", "*.example"],
    "ATMEM_TRUSTED_PROXIES": ["proxy.example", "10.0.0.1/8", "*", "10.0.0.1,"],
    "ATMEM_COORDINATOR_HISTORY_BYTES": ["0", "-1", "1e9", "64MiB", "69631", "٩٩٩٩٩٩", "9" * 30],
    "ATMEM_REQUESTS_PER_SECOND": ["0", "no", "1.5"],
    "ATMEM_EVENTS_PER_SECOND": ["0", "no", "1.5"],
    "ATFLOWS_CONTINUITY_TOKEN": ["short", "x" * 31, "é" * 40, "with a space in it, 32 characters long"],
    "ATFLOWS_CONTINUITY_SCOPE": ["a b", "a/b", "x" * 129],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_refused_in_one_line_that_names_the_variable(name, value):
    with pytest.raises(SettingsError) as refused:
        load_settings({name: value})

    message = str(refused.value)
    assert message.startswith(f"{name}: ")
    assert "\n" not in message


@pytest.mark.parametrize("name", WRONG)
def test_a_refusal_does_not_repeat_the_value(name):
    with pytest.raises(SettingsError) as refused:
        load_settings({name: "hunter2 hunter2\n"})

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"ATMEM_VAULT_KEY": KEY, "ATMEM_VAULT_KEY_FILE": "/k", "ATMEM_SHRED_LIST": "/s"}, "ATMEM_VAULT_KEY_FILE"),
        ({"ATMEM_VAULT_KEY": KEY}, "ATMEM_SHRED_LIST"),
        ({"ATMEM_VAULT_KEY": f"2:{KEY},1:{KEY}"}, "ATMEM_SHRED_LIST"),
        # The first thing that is wrong, not what a sound key would need next.
        ({"ATMEM_VAULT_KEY": "abc"}, "ATMEM_VAULT_KEY"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environ, named):
    with pytest.raises(SettingsError, match=f"^{named}: "):
        load_settings(environ)


def test_an_empty_variable_is_one_that_is_not_set():
    assert load_settings({"ATMEM_URL": "", "ATMEM_DATABASE_URL": ""}) == load_settings({})


TRANSIT = {
    "ATMEM_VAULT_KEY_SOURCE": "transit", "ATMEM_SHRED_LIST": "/s", "ATMEM_TRANSIT_URL": "https://vault.example:8200",
    "ATMEM_TRANSIT_TOKEN_FILE": "/t",
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "file"), [("file", "vault.key"), ("passphrase", "vault.sealed"), ("transit", "vault.transit")]
)
def test_each_key_source_has_a_file_of_its_own(source, file):
    settings = load_settings({**TRANSIT, "ATMEM_VAULT_KEY_SOURCE": source}, instance=Path("/i"))

    assert (settings.vault_key_source, settings.vault_key_file) == (source, Path("/i") / file)
    assert settings.locked_key_file == Path("/i") / f"{file}.locked"
    assert (settings.transit is not None) == (source == "transit")


def test_a_locked_key_of_a_variable_lies_in_the_instance():
    environ = {"ATMEM_VAULT_KEY": KEY, "ATMEM_SHRED_LIST": "/s"}

    assert load_settings(environ, instance=Path("/i")).locked_key_file == Path("/i/vault.locked")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"ATMEM_SHRED_LIST": ""}, "ATMEM_SHRED_LIST"),
        ({"ATMEM_TRANSIT_URL": ""}, "ATMEM_TRANSIT_URL"),
        ({"ATMEM_TRANSIT_URL": "http://vault.example:8200"}, "ATMEM_TRANSIT_URL"),
        ({"ATMEM_TRANSIT_URL": "https://user:pw@vault.example"}, "ATMEM_TRANSIT_URL"),
        ({"ATMEM_TRANSIT_TOKEN_FILE": ""}, "ATMEM_TRANSIT_TOKEN_FILE"),
        ({"ATMEM_TRANSIT_TOKEN_FILE": "t"}, "ATMEM_TRANSIT_TOKEN_FILE"),
        ({"ATMEM_TRANSIT_MOUNT": "../sys"}, "ATMEM_TRANSIT_MOUNT"),
        ({"ATMEM_TRANSIT_KEY": "a b"}, "ATMEM_TRANSIT_KEY"),
        ({"ATMEM_TRANSIT_CA_FILE": "ca.pem"}, "ATMEM_TRANSIT_CA_FILE"),
        ({"ATMEM_TRANSIT_NAMESPACE": "?"}, "ATMEM_TRANSIT_NAMESPACE"),
        ({"ATMEM_VAULT_KEY": KEY}, "ATMEM_VAULT_KEY_SOURCE"),
    ],
)
def test_what_transit_needs_is_asked_for_by_name(changed, named):
    with pytest.raises(SettingsError, match=f"^{named}: "):
        load_settings({**TRANSIT, **changed})
