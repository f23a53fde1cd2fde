"""Workers of the example in processes of their own, which die or stop where a test says.

``python -m tests.threads.jobs`` forks one for each test (`tests.crash.forks`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from continuity.errors import TransportError
from continuity.threads import Agent, AsyncThreadWorker, ThreadWorker, WorkerClient
from continuity.transport import elapsed_s
from examples.order_support import agent as order_support
from tests.crash import entry, forks
from tests.threads import variants

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
EMPTY_S = 0.2
SETTLED_S = 0.5


def work(
    url: str, token: str, coordinator: str, folder: str, clock: str, *, die_at: str = "", nth: int = 1,
    end: str = "kill", runs: int = 1, leaves: bool = False, passed: str = "", how: str = "",
    steps: str = "",
) -> None:  # fmt: skip
    """Run so many runs of the example; die at the nth time that a point is passed.

    It leaves earlier where no run waits, if it is told to, and writes which points it has passed. `how` it works:
    as the example does, or ``awaited`` on an event loop; with its `steps` on a file, or at an address of PostgreSQL.
    """
    os.environ["ORDER_SUPPORT_FOLDER"] = folder
    seen: dict[str, int] = {}

    def trace(point: str) -> None:
        seen[point] = seen.get(point, 0) + 1
        if point == die_at and seen[point] == nth:
            if end == "stop":
                # Whoever is stopped while SQLite writes keeps its lock, and nobody goes on: let writes end.
                time.sleep(SETTLED_S)
            os.kill(os.getpid(), SIGNALS[end])
            # A thread may run on for a moment before its process stands still.
            time.sleep(SETTLED_S)

    shift = entry.FileClock(Path(clock))
    client = WorkerClient(
        url, token, coordinator_token=coordinator, trace=trace, clock=lambda: elapsed_s() + shift.shift_s()
    )
    agent = variants.awaited() if how == "awaited" else order_support.agent
    if steps:
        agent = variants.on_postgresql(agent, steps)
    if how == "awaited":
        asyncio.run(_awaited(client, agent, runs=runs))
    else:
        with ThreadWorker(client, [agent], report=_report) as worker:
            done = 0
            while done < runs:
                if _has_run(worker):
                    done += 1
                elif leaves:
                    break
                else:
                    time.sleep(EMPTY_S)
    if passed:
        Path(passed).write_text(json.dumps(seen))


async def _awaited(client: WorkerClient, agent: Agent, *, runs: int) -> None:
    async with AsyncThreadWorker(client, [agent], report=_report) as worker:
        for _ in range(runs):
            await worker.run_one()


def _report(text: str) -> None:
    print(text, file=sys.stderr)


def _has_run(worker: ThreadWorker) -> bool:
    try:
        return worker.run_one()
    except TransportError:
        # The server is not there: as `ThreadWorker.run` does, come again.
        return False


if __name__ == "__main__":
    forks.main({"serve": entry.serve, "work": work})
