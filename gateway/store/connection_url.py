"""Whether text is a connection URL of PostgreSQL, as the driver reads it. Nothing is connected to."""

import psycopg
from psycopg.conninfo import conninfo_to_dict


def is_connection_url(text: str) -> bool:
    """Every part can be read, and every name after the question mark is known."""
    try:
        parts = conninfo_to_dict(text)
    except psycopg.Error:
        return False
    return all(port.isdecimal() for port in str(parts.get("port", "")).split(",") if port)
