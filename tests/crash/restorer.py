"""Backs up or restores an instance and kills itself at a step: ``python -m tests.crash.restorer WHAT FILE STEP``.

The steps are those that the product tells of while it works; the number is how many are told of before the kill, -1 for
none. Prints how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from app import backups, restores, wiring
from app.config import load_settings
from app.renewals import Who
from tests.entry import OVERRIDES

TEXT = "correct horse battery"


def main() -> None:
    what, name, wanted = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    told: list[str] = []

    def tell(step: str, _done: int, _whole: int) -> None:
        if len(told) == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        told.append(step)

    os.umask(0o077)
    settings, cost = load_settings(os.environ), wiring.passphrase_cost(OVERRIDES)
    if what == "backup":
        with wiring.built(settings, overrides=OVERRIDES) as built:
            backups.make(built, built.vault_life.keyring, name, TEXT, tell=tell, cost=cost)
    else:
        restores.restore(
            settings, name, TEXT, who=Who(), keys=wiring.key_provider(settings), now_us=time.time_ns() // 1_000,
            auth=OVERRIDES.auth, cost=cost, tell=tell,
        )  # fmt: skip
    print(len(told))


if __name__ == "__main__":
    main()
