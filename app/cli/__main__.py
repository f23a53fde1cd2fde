"""``python -m app.cli``: the command line where no console script is on the path."""

from __future__ import annotations

from app.cli import main

if __name__ == "__main__":
    main(prog_name="atmem")
