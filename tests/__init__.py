"""The tests, and the import contract type that import-linter loads from here."""

import atexit
import gc

# As the command line does: what is left when a process of the tests has ended is not looked through once more.
atexit.register(gc.freeze)
