"""SQLAlchemy Core over SQLite and PostgreSQL: tables, engine, and the one seam of all writing (`store.Store`).

Knows no plaintext: it cannot import the vault. Decides nothing: services bring the statements.
"""
