"""The decision core: pure functions from stored facts to decisions. No I/O, no clock, no randomness.

Where things live:

* ``states``       the words and the transition table of an operation
* ``model``        what is known: `Workflow`, `Operation`, `Attempt`, `LateReceipt`, `VaultFacts`
* ``receipts``     what a receipt means for the attempt that reports it
* ``beginning``    the decision table of begin, row by row
* ``outcomes``     outcome, renew and late receipts
* ``controls``     enable, pause, stop, confirm, delete
* ``coordinators`` admission of coordinators against their counters
* ``clocks``       the high-water rule and forward steps
* ``phases``       what a person sees a workflow as, and when that changes by itself
* ``events``       what happened, as values, and `evolve`, the one function that changes state
* ``records``      events and state as JSON and back

A decision never changes anything. It answers with a value; when something is to happen the value
holds an event, and `evolve` of the state and that event is the next state. The event log of a workflow
therefore replays to its stored state.

Source: operations.md.
"""
