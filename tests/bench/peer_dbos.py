"""A workflow with one step in DBOS, by so many threads: runs in the environment that has DBOS, and in no other.

Its only argument is the address of a database. It reads one JSON line a request, ``{"threads", "seconds"}``, and
answers it with one, as a process of `tests.bench.load` does. The work is that of the other side: what is to be done
is kept, one step is performed, its result is kept.
"""

import collections
import json
import sys
import threading
import time

from dbos import DBOS

POOL_DEFAULT = 20
SWITCH_S = 0.000_5


@DBOS.step()
def publish(document):
    return {
        "outcome": "confirmed_succeeded",
        "effect_id": "file",
        "result": {"sha256": "0" * 64, "bytes": len(document)},
    }


@DBOS.workflow()
def work(document):
    return publish(document)


def run(until, took, errors):
    while time.monotonic() < until:
        begun = time.perf_counter()
        try:
            is_right = work("x" * 200)["result"]["bytes"] == 200
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and reported
            errors[f"dbos: {type(error).__name__}: {error}"[:300]] += 1
        else:
            if is_right:
                took.append((time.perf_counter() - begun) * 1e3)
            else:
                errors["dbos: the workflow has another result"] += 1


def measure(threads, seconds):
    took, errors = [], collections.Counter()
    work("x" * 200)
    begun, worked = time.monotonic(), time.process_time()
    everybody = [threading.Thread(target=run, args=(begun + seconds, took, errors)) for _ in range(threads)]
    for thread in everybody:
        thread.start()
    for thread in everybody:
        thread.join()
    elapsed_s = time.monotonic() - begun
    busy = (time.process_time() - worked) / elapsed_s
    return {"spans": {"operation": took}, "errors": dict(errors), "elapsed_s": elapsed_s, "busy": busy, "made": []}


def main():
    sys.setswitchinterval(SWITCH_S)
    most_threads = int(sys.argv[2])
    DBOS(
        config={
            "name": "bench",
            "system_database_url": sys.argv[1],
            "log_level": "CRITICAL",
            # Its default, unless there are more threads than that.
            "sys_db_pool_size": max(POOL_DEFAULT, most_threads),
        }
    )
    DBOS.launch()
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(**json.loads(line))), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
