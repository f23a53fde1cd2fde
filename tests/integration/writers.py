"""One process of the race tests: threads that each add to one counter by reading and writing it.

Usage: writers.py URL THREADS WRITES; waits for a line on standard input, prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import sqlalchemy as sa

from continuity.store.engine import make_engine
from continuity.store.schema import owners
from continuity.store.store import Store


def add_one(connection: sa.Connection) -> None:
    counter = sa.select(owners.c.unfinished).where(owners.c.owner_pk == 1).with_for_update()
    found = connection.execute(counter).scalar_one()
    connection.execute(sa.update(owners).where(owners.c.owner_pk == 1).values(unfinished=found + 1))


def main(url: str, threads: int, writes: int) -> None:
    engine = make_engine(url, pool_size=threads)
    store = Store(engine)
    # Opened beforehand: the race is for the row.
    for connection in [engine.connect() for _ in range(threads)]:
        connection.close()
    errors: list[str] = []
    waits_s: list[float] = []
    start = threading.Barrier(threads + 1)

    def write_all() -> None:
        start.wait()
        for _ in range(writes):
            begun = time.perf_counter()
            try:
                store.write(add_one)
            except Exception as error:  # noqa: BLE001 - the parent judges what a caller may see
                errors.append(repr(error))
            waits_s.append(time.perf_counter() - begun)

    workers = [threading.Thread(target=write_all) for _ in range(threads)]
    for worker in workers:
        worker.start()
    print("ready", flush=True)
    sys.stdin.readline()
    start.wait()
    for worker in workers:
        worker.join()
    store.close()
    engine.dispose()
    print(json.dumps({"errors": errors, "written": threads * writes - len(errors), "longest_s": max(waits_s)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
