"""A reference upstream: any LangGraph agent behind the gateway's upstream contract (bridge profile).

Nothing is imported here, so that `agent-service --help` is quick and the package costs nothing without its extra `[agent]`.
The gateway never imports this package, nor this package the gateway.
"""
