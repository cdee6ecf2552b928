"""PostgreSQL, the only package with psycopg: pool and transactions, statements, migrations, embedded server, aggregates."""
