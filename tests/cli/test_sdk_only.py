"""The console script where only part of what it needs is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.servers import ROOT, environment

RUN = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
from app.cli import main
sys.exit(main(prog_name="atmem"))
"""


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("click", ["--help"], "server"),
        ("click,flask,sqlalchemy", ["init"], "server"),
        ("sqlalchemy", ["init"], "server"),
        ("flask", ["serve"], "server"),
        ("psycopg", ["status"], "server,postgres"),
    ],
)
def test_what_is_not_installed_is_one_line_that_says_what_to_install(missing, arguments, extra, fresh_instance):
    extra_variables = {"ATMEM_DATABASE_URL": "postgresql://a@127.0.0.1:1/a"} if missing == "psycopg" else {}
    ended = subprocess.run(
        [sys.executable, "-c", RUN, missing, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env=environment(fresh_instance.folder, extra_variables),
    )  # fmt: skip

    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: ")
    assert f"pip install '.[{extra}]'" in ended.stderr
    assert (missing == "psycopg") == ("ATMEM_DATABASE_URL" in ended.stderr)
    assert ended.stderr.count("\n") == 1
