"""Use cases of the server: each opens its own unit of work on the store, asks the core, applies what it says."""
