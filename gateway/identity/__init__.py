"""Who is calling: verified tokens (`tokens`), accounts and visibility (`accounts`). Nothing that a browser sends grants ownership."""
