"""Threads: conversations with agents that survive a reconnect, a restart and a worker that dies.

With requests alone::

    ThreadClient(url, token, *, subject=None)          # for those who talk; `follow` gives every record once
    AsyncThreadClient(url, token, *, subject=None)     # the same for event loops
"""

from __future__ import annotations
