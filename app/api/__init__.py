"""JSON over HTTP: one module and blueprint a kind of caller. A view parses, calls one method, and answers."""
