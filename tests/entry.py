"""The command line of the product with parts that only tests may have: argon2id at the lowest cost.

``python -m tests.entry serve --port 0 --json`` is `atmem serve` in every other way. No variable and no setting of
the product can do the same.
"""

from __future__ import annotations

from app.auth.settings import CHEAP_HASHING, AuthSettings
from app.cli import main
from app.wiring import Overrides
from tests import templates

OVERRIDES = Overrides(auth=AuthSettings(hashing=CHEAP_HASHING))

if __name__ == "__main__":
    templates.share()
    main(prog_name="atmem", obj=OVERRIDES)
