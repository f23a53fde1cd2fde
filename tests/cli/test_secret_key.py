"""Changing the instance's secret key, as the documentation says (security.md S09, A14)."""

from __future__ import annotations

import re
import subprocess

import pytest
from click.testing import CliRunner

from app.cli import main
from app.config import load_settings
from app.wiring import SystemClock, built
from continuity.errors import UnauthenticatedError
from tests.entry import OVERRIDES
from tests.people import PASSWORD
from tests.second_factors import VISIT, App, enrolled
from tests.servers import ROOT


@pytest.fixture
def instance(fresh_instance):
    """A folder in which an instance lies under the name that the documentation has for it."""
    return fresh_instance.copy_to(fresh_instance.folder.parent / "place" / "instance")


def wired(instance):
    return built(load_settings({"ATMEM_INSTANCE": str(instance.folder)}), overrides=OVERRIDES)


def with_factor(instance) -> App:
    with wired(instance) as wiring:
        wiring.auth.sign_in.change_password_locally("administrator", current=instance.password, new=PASSWORD)
        return enrolled(wiring.auth, _Waiting(), "administrator", PASSWORD)


class _Waiting(SystemClock):
    """This machine's clock, an hour late: the code of an hour ago sets up, and later ones are left to sign in with."""

    def advance(self, _seconds: float) -> None:
        return


def signs_in(instance, code) -> bool:
    with wired(instance) as wiring:
        try:
            wiring.auth.sign_in.sign_in("administrator", PASSWORD, visit=VISIT, replaced=None, code=code)
        except UnauthenticatedError:
            return False
        return True


def change_as_documented(instance) -> None:
    page = (ROOT / "docs" / "people-and-credentials.md").read_text(encoding="utf-8")
    commands = re.search(r"```sh\n(cd instance\n.*?)```", page, re.DOTALL)[1]
    subprocess.run(["sh", "-euc", commands], cwd=instance.folder.parent, check=True)


def test_after_the_documented_change_everybody_signs_in_as_before(instance):
    app = with_factor(instance)
    before = (instance.folder / "secret.key").read_bytes()

    change_as_documented(instance)
    change_as_documented(instance)

    older = (instance.folder / "secret.older").read_bytes().split()
    assert (instance.folder / "secret.key").read_bytes() not in {before, *older}
    assert older[-1] == before
    assert {path.stat().st_mode & 0o777 for path in instance.folder.glob("secret.*")} == {0o600}
    assert signs_in(instance, app.recovery_codes[0])
    assert signs_in(instance, app.code(steps=1))


def test_without_the_older_key_nothing_that_it_sealed_opens(instance):
    app = with_factor(instance)
    change_as_documented(instance)
    (instance.folder / "secret.older").unlink()

    assert not signs_in(instance, app.recovery_codes[0])
    assert not signs_in(instance, app.code(steps=1))


@pytest.mark.parametrize("older", [b"changeme", b"a" * 64, b"0123456789abcdef" * 3 + b"\nshort\n"])
def test_an_older_key_that_is_none_stops_the_start(instance, older):
    path = instance.folder / "secret.older"
    path.write_bytes(older)
    path.chmod(0o600)

    refused = status(instance)

    assert refused.exit_code == 1
    assert "secret.older: must hold at least 32 random bytes." in refused.stderr


def test_older_keys_that_others_can_read_stop_the_start(instance):
    path = instance.folder / "secret.older"
    path.write_bytes(b"0123456789abcdef" * 3)
    path.chmod(0o644)

    refused = status(instance)

    assert refused.exit_code == 1
    assert "secret.older" in refused.stderr


def test_older_keys_behind_a_link_stop_the_start(instance, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"0123456789abcdef" * 3)
    (instance.folder / "secret.older").symlink_to(tmp_path / "elsewhere")

    assert "symbolic link" in status(instance).stderr


def status(instance):
    environment = {"ATMEM_INSTANCE": str(instance.folder), "ATMEM_DATABASE_URL": None}
    return CliRunner(env=environment).invoke(main, ["users", "list"], obj=OVERRIDES)
