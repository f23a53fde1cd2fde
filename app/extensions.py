"""How a view finds what `app.wiring` built."""

from __future__ import annotations

import threading
from typing import Final

from flask import Flask, current_app

from app.config import Settings
from app.wiring import Wiring, build

_KEY: Final = "atmem"


class _Lazily:
    """Builds on first use: ``flask --app app init`` makes an application before there is an instance."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._built: Wiring | None = None

    def get(self) -> Wiring:
        with self._lock:
            if self._built is None:
                self._built = build(self._settings)
            return self._built


class _Given:
    def __init__(self, given: Wiring) -> None:
        self._given = given

    def get(self) -> Wiring:
        return self._given


def install(app: Flask, settings: Settings, given: Wiring | None) -> None:
    """Let the views of `app` use `given`, or what is built from `settings` when there is none."""
    app.extensions[_KEY] = _Lazily(settings) if given is None else _Given(given)


def wiring() -> Wiring:
    """Return what the current application is wired to."""
    return wiring_of(current_app)


def wiring_of(app: Flask) -> Wiring:
    """Return what `app` is wired to."""
    built: Wiring = app.extensions[_KEY].get()
    return built
