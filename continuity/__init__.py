"""AtMem Continuity: governed operations for agents, server ring and SDK ring over one pure core.

Import what you need from its module (``continuity.client``, ``continuity.tools``); this package itself
imports nothing, so that the SDK works where only ``requests`` is installed.
"""
