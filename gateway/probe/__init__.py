"""`gateway probe`: does a service keep the upstream contract? It asks what a run would ask, with the code that serves runs.

What lives here: the order of the questions, and what an answer says about which clause. What does not: the rules themselves (`upstream`,
`sse_parser`), and anything of a run. A probe has no run, no fence and no database, and no replica can reach it (docs/decisions).
"""
