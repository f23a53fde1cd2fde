"""A PostgreSQL database whose ``clock_timestamp()`` is ahead by the seconds that a file holds."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql


def follow_clock(url: str, clock_file: Path) -> None:
    """Let every later connection to the database find a clock of ours before the built-in one."""
    function = f"""
        CREATE SCHEMA ahead;
        CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
            SELECT pg_catalog.clock_timestamp()
                + pg_catalog.pg_read_file('{clock_file}')::float8 * interval '1 second'
        $$
    """
    with psycopg.connect(url, autocommit=True) as connection:
        clock_file.write_text("0")
        clock_file.chmod(0o644)
        connection.execute(function)
        name = connection.execute("SELECT current_database()").fetchone()[0]
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = ahead, pg_catalog, public").format(sql.Identifier(name))
        )
