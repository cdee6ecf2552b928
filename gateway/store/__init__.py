"""PostgreSQL: the only package with psycopg. Pool and transactions, statements, migrations, the embedded server, one module per aggregate."""
