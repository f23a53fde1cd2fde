"""A picture of the rates over the number of clients, a panel for each work. It alone needs matplotlib."""

from __future__ import annotations

import itertools
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
    """Draw the rate of every row, from nothing upwards; a subject has one colour in all panels."""
    import matplotlib as mpl  # noqa: PLC0415 - optional, and a second

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    works = list(dict.fromkeys(row["work"] for row in rows))
    subjects = dict.fromkeys(row["subject"] for row in rows)
    colours = dict(zip(subjects, itertools.cycle(mpl.colormaps["tab20"].colors), strict=False))
    figure, panels = plt.subplots(len(works), 1, figsize=(10, 1 + 3 * len(works)), squeeze=False)
    for panel, work in zip(panels[:, 0], works, strict=True):
        _panel(panel, work, [row for row in rows if row["work"] == work], colours)
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)


def _panel(panel: Any, work: str, rows: Sequence[Mapping[str, Any]], colours: Mapping[str, Any]) -> None:
    for subject in dict.fromkeys(row["subject"] for row in rows):
        own = {row["clients"]: row["rate"] for row in rows if row["subject"] == subject}
        panel.plot(list(own), list(own.values()), "o-", color=colours[subject], label=subject)
    clients = sorted({row["clients"] for row in rows})
    panel.set(title=work, xlabel="clients", ylabel="a second", xscale="log")
    panel.set_ylim(bottom=0)
    panel.set_xticks(clients, [str(count) for count in clients])
    panel.minorticks_off()
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
