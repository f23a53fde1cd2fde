"""SQLAlchemy Core over SQLite and PostgreSQL: tables, engine, and the one seam of all writing (`store.Store`).

Knows no plaintext: it cannot import the vault. Decides nothing: services bring the statements.
"""

# Tables register themselves when their module is read: whoever asks for the metadata must find all of them.
from continuity.store import threads_schema as threads_schema
