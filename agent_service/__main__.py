"""`python -m agent_service`: the same as the command `agent-service`."""

import sys

from agent_service.cli import main

if __name__ == "__main__":
    sys.exit(main())
