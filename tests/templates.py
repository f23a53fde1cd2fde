"""Templates of the pages, compiled once for all processes of a run: it takes longer than everything else of a page."""

from __future__ import annotations

import os
import shutil
import tempfile

from flask import Flask
from jinja2 import FileSystemBytecodeCache

_FOLDER = "TESTS_TEMPLATES"
_MADE_BY = "TESTS_TEMPLATES_MADE_BY"


def make() -> None:
    """Make the folder of this run, for this process and those that it starts."""
    if _FOLDER not in os.environ:
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="atmem-templates-")
        os.environ[_MADE_BY] = str(os.getpid())


def share() -> None:
    """Let each application that this process makes take what was compiled, where there is a folder."""
    if folder := os.environ.get(_FOLDER):
        Flask.jinja_options = {**Flask.jinja_options, "bytecode_cache": FileSystemBytecodeCache(folder)}


def remove() -> None:
    """Remove the folder, at the end of the process that made it."""
    if os.environ.get(_MADE_BY) == str(os.getpid()):
        shutil.rmtree(os.environ[_FOLDER], ignore_errors=True)
