"""`gateway serve`: one API replica. Everything it is made of is put together in gateway.wiring."""

from argparse import Namespace

from gateway.app import serve as serve_replica
from gateway.cli.output import Output
from gateway.parts import faults_of_parts
from gateway.settings import load_settings


def serve(args: Namespace, output: Output) -> int:
    """Serve until told to stop. Raises SettingsInvalid before anything is opened."""
    return serve_replica(load_settings(output.environ, serving=True, also=faults_of_parts))
