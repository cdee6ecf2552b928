"""Reads a file of deploy/ as the types of the program that it is for; exit status 1, and what is wrong, when it is not of them.

Run by an environment of its own (`make upstreams`): .upstreams/validators/bin/python validate_deployed.py compose|envoy < DOCUMENT.json
"""

import importlib
import json
import sys


def compose(document: object) -> None:
    importlib.import_module("compose_spec").PyCompose.from_json(json.dumps(document)).validate()


def envoy(document: object) -> None:
    for name in ("filters.network.http_connection_manager", "filters.http.router", "upstreams.http"):
        importlib.import_module(f"envoy_data_plane.envoy.extensions.{name}.v3")  # registers the types that are named by their URL
    bytes(importlib.import_module("envoy_data_plane.envoy.config.bootstrap.v3").Bootstrap.from_dict(document))


if __name__ == "__main__":
    try:
        {"compose": compose, "envoy": envoy}[sys.argv[1]](json.load(sys.stdin))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
