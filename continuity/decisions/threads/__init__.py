"""The decision core of threads: pure functions from a thread's head to what follows. No I/O, no clock, no randomness.

Where things live:

* ``states``      the words and the one table of situation and event
* ``bounds``      every number
* ``model``       what is known: `Head`, `Run`, `Claim`, `Ask`, `Queued`, and `Change`, what a decision answers with
* ``controls``    message, steer, follow-up, stop, resume, reply, delete
* ``work``        claim, heartbeat, append, wait, settle, fail, and what happens when a claim runs out
* ``entries``     what a worker may write into a journal
* ``transcript``  what entries do to messages and tool calls, on the server and in a client
* ``schemas``     what a reply must be: a strict part of JSON Schema
* ``records``     the head as JSON and back

A decision never changes anything. It answers with a `Change`: the next head, and the records, runs and requests that
are written with it in one transaction. A refusal is an error with a stable code; nothing has happened then.

Source: threads.md.
"""
