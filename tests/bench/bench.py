"""The load lab: what the product does under many clients, each scenario beside its baselines in the same rounds.

    python -m tests.bench.bench --clients 1 16 64 --database sqlite postgresql --processes 1 4 --retained 100 10000 \\
        --seconds 3 --rounds 5 --peers --json bench.json --plot bench.png

A round asks everybody once: raw durable commits, the empty route of each server by as many clients, the work, and with
``--peers`` DBOS (a workflow with one step, as many threads) and AtMem 2.3.8. Their order turns around each round. What
is compared is compared within a round, since a machine drifts more than the goals allow. It ends with status 1 if
anything at all was answered with an error; no figure makes it fail.

    python -m tests.bench.bench --soak 30

runs 64 clients of all kinds of work on one server, tells its memory every minute, and fails if that is not flat.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import decisions, plots, results, soak
from tests.bench.goals import Measured, goals_of
from tests.bench.peers import PACKAGES
from tests.bench.results import Record
from tests.bench.rounds import Lab
from tests.bench.slow_disk import NoSlowDiskError, SlowDisk
from tests.bench.stands import CREDENTIAL, Databases, Place
from tests.bench.works import MEASURED

PEERS_FOLDER = Path(tempfile.gettempdir()) / "atmem-bench-peers"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    try:
        if options.plot:
            plots.require()
        slow = SlowDisk(options.fsync_delay_ms)
    except (NoSlowDiskError, plots.NoPlotError) as error:
        parser.error(str(error))
    with contextlib.closing(slow), tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as made:
        databases = Databases(Path(made), slow)
        with contextlib.closing(databases):
            if options.soak:
                return soak.run(databases, _places(options)[0], minutes=options.soak, clients=max(options.clients))
            return _measured(databases, options)


def parser_of_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--clients", type=int, nargs="+", default=[1, 16, 64], help="clients at once")
    add("--work", choices=MEASURED, nargs="+", default=list(MEASURED), help="what they do")
    add("--database", choices=["sqlite", "postgresql"], nargs="+", default=["sqlite"])
    add("--processes", type=int, nargs="+", default=[1], help="of the server; more than one only on PostgreSQL")
    add("--retained", type=int, nargs="+", default=[100, 10_000], help="workflows that are there, one server each")
    add("--seconds", type=float, default=3, help="for which each scenario runs in each round")
    add("--rounds", type=int, default=5, help="measured rounds, after a short one that does not count")
    add("--peers", action="store_true", help=f"measure {' and '.join(PACKAGES.values())} as well")
    add("--peers-folder", type=Path, default=PEERS_FOLDER, help="where they are installed; found there the next time")
    add("--atmem-retained", type=int, nargs="+", default=[300], help="workflows that AtMem 2.3.8 retains")
    add("--fsync-delay-ms", type=float, default=0, help="added to each sync of servers, databases and peers")
    add("--generators", type=int, default=0, help="processes of clients; 0: two where a server has several, else one")
    add("--one-client-rounds", type=int, default=100, help="rounds of tests.bench.decisions, request by request")
    add("--folder", type=Path, default=None, help="for databases of SQLite: a real disk (PostgreSQL: the temp folder)")
    add("--json", type=Path, help="file for everything that was measured")
    add("--plot", type=Path, help="file for a picture (needs matplotlib)")
    add("--soak", type=float, default=0, metavar="MINUTES", help="run the most clients for so long instead")
    return parser


def _places(options: argparse.Namespace) -> list[Place]:
    places = []
    for database in options.database:
        for processes in sorted(options.processes):
            if database == "sqlite" and processes > 1:
                print(f"left out: {processes} processes on SQLite, which has one writing process", flush=True)
                continue
            places += [Place(database, processes, retained) for retained in sorted(options.retained)]
    if not places:
        raise SystemExit("nothing to measure: several processes need --database postgresql")
    return places


def _measured(databases: Databases, options: argparse.Namespace) -> int:
    places, record = _places(options), Record()
    print(f"credential: {CREDENTIAL}; added to each sync: {databases.slow.means}", flush=True)
    record.note_load()
    one_client = _one_client(databases, options) if _wants_one_client(options) else {}
    with contextlib.closing(Lab(databases, places, options, record)) as lab:
        for number in range(options.rounds + 1):
            lab.round(number - 1)
            print(f"round {number} of {options.rounds}, load average {record.loads[-1]}", flush=True)
    return report(Measured(record, one_client, places, options.fsync_delay_ms), options, slow_by=databases.slow.means)


def report(measured: Measured, options: argparse.Namespace, *, slow_by: str) -> int:
    """Print everything, write the files that were asked for, and return the exit status."""
    record = measured.record
    goals = goals_of(measured)
    _show(record, goals)
    notes = {
        "options": {name: str(value) for name, value in vars(options).items()}, "credential": CREDENTIAL,
        "added_to_each_sync": slow_by, "one_client": dict(measured.one_client),
        "peers": PACKAGES if options.peers else {},
    }  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results.summary(record, goals, notes), indent=1) + "\n")
    if options.plot:
        plots.draw(list(record.rows()), options.plot)
    return 1 if record.errors else 0


def _wants_one_client(options: argparse.Namespace) -> bool:
    is_asked = "begin" in options.work and 1 in options.clients and "sqlite" in options.database
    return is_asked and options.fsync_delay_ms == 0 and options.one_client_rounds > 0


def _one_client(databases: Databases, options: argparse.Namespace) -> dict[str, float]:
    """Measure a begin of one client request by request, which is closer than rounds of seconds can be."""
    folder = databases.folder / "one-client"
    folder.mkdir()
    sizes = sorted(options.retained)
    asked = argparse.Namespace(rounds=options.one_client_rounds, sizes=sizes, seed=1)
    timings, _ = decisions.measure(folder, asked)
    few, many = (timings.p50(f"begin {size}") for size in (sizes[0], sizes[-1]))
    floor = timings.p50("empty route") + timings.p50("begin statements")
    found = {
        "begin_ms": few, "raw_commit_ms": timings.p50("raw commit"), "empty_route_ms": timings.p50("empty route"),
        "statements_ms": timings.p50("begin statements"), "commit": few / timings.p50("raw commit"),
        "floor": few / floor,
    }  # fmt: skip
    return {**found, "size": many / few} if few != many else found


def _show(record: Record, goals: Sequence[Any]) -> None:
    results.print_table(record)
    results.print_client_limit(record)
    print(f"load average: {min(record.loads)} to {max(record.loads)} on {os.cpu_count()} processors")
    for goal in goals:
        print(goal)
    results.print_errors(record)


if __name__ == "__main__":
    sys.exit(main())
