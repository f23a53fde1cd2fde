"""A picture of the rates, one group of bars for each work. Needs matplotlib, which nothing else here does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class NoPlotError(Exception):
    """There is nothing to draw with; the message says what to install."""


def require() -> None:
    """Find out before anything is measured."""
    if find_spec("matplotlib") is None:
        raise NoPlotError("--plot needs matplotlib: python -m pip install matplotlib")


def draw(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw the rate of every row, in a panel for each work, on a logarithmic scale."""
    import matplotlib as mpl  # noqa: PLC0415 - optional, and a second

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    works = list(dict.fromkeys(row["work"] for row in rows))
    figure, panels = plt.subplots(len(works), 1, figsize=(10, 1 + 3 * len(works)), squeeze=False)
    for panel, work in zip(panels[:, 0], works, strict=True):
        _panel(panel, work, [row for row in rows if row["work"] == work])
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)


def _panel(panel: Any, work: str, rows: Sequence[Mapping[str, Any]]) -> None:
    clients = sorted({row["clients"] for row in rows})
    subjects = list(dict.fromkeys(row["subject"] for row in rows))
    width = 0.8 / len(subjects)
    for number, subject in enumerate(subjects):
        own = {row["clients"]: row["rate"] for row in rows if row["subject"] == subject}
        places = [clients.index(count) + number * width for count in own]
        panel.bar(places, list(own.values()), width, label=subject)
    panel.set_xticks([index + 0.4 - width / 2 for index in range(len(clients))], [str(count) for count in clients])
    panel.set(title=work, xlabel="clients", ylabel="a second", yscale="log")
    panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
