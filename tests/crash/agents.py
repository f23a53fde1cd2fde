"""The agents of examples/ as real processes: a parent that has loaded LangGraph once forks one for each run.

An agent can die at every point of `continuity.running.Seams`, each time or the n-th, and at two more: at
``writes.before``, when LangGraph is about to keep what the tools returned, and at ``checkpoint.before``, when it is
about to write the checkpoint after them. ``python -m tests.crash.agents`` is the parent (tests/crash/forks.py).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from examples import local_server
from examples.blind_agent import agent as blind_agent
from examples.blind_agent import printer
from examples.mailing_agent import agent as mailing_agent
from examples.mailing_agent import post_office
from examples.paying_agent import agent as paying_agent
from examples.paying_agent import payments_server
from examples.publishing_agent import agent as publishing_agent
from tests.crash import forks

AGENTS: Mapping[str, ModuleType] = {
    "publishing": publishing_agent, "paying": paying_agent, "mailing": mailing_agent, "blind": blind_agent,
}  # fmt: skip
SERVERS: Mapping[str, ModuleType] = {"paying": payments_server, "mailing": post_office, "blind": printer}
CALLS = 3
"""Tool calls in the one message of each agent."""


class Death:
    """Kills this process at the n-th time that it passes a point."""

    def __init__(self, at: str, time: int) -> None:
        self._at = at
        self._left = time
        self._settled = 0

    def passed(self, point: str) -> None:
        self._settled += point == "outcome.after_reply"
        if point == self._at:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def before(self, point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Pass a point before a method of the saver is run, once every call of the message is settled."""

        def dying(*arguments: Any, **options: Any) -> Any:
            if self._settled == CALLS:
                self.passed(point)
            return method(*arguments, **options)

        return dying


def agent(*, name: str, argv: list[str], environment: Mapping[str, str], die_at: str = "", time: int = 1) -> None:
    """Be one run of an agent, as its command line."""
    os.environ.update(environment)
    death = Death(die_at, time)
    SqliteSaver.put_writes = death.before("writes.before", SqliteSaver.put_writes)
    SqliteSaver.put = death.before("checkpoint.before", SqliteSaver.put)
    sys.exit(AGENTS[name].main(argv, trace=death.passed))


def destination(*, name: str, argv: list[str]) -> None:
    """Be the server that an agent acts at."""
    local_server.serve(SERVERS[name].answer, _parser(SERVERS[name]), argv)


def _parser(server: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.set_defaults(window=getattr(server, "WINDOW_S", 0))
    return parser


if __name__ == "__main__":
    forks.main({"agent": agent, "destination": destination})
