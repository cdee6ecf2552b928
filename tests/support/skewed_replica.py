"""A replica whose own clock is wrong: `gateway serve` with the wall clock of its process set off by GATEWAY_TEST_CLOCK_SECONDS."""

import os
import sys
import time

CLOCK = "GATEWAY_TEST_CLOCK_SECONDS"


def main() -> int:
    """Set the clock off, then serve: whatever is imported from here on sees it."""
    seconds, real, real_ns = float(os.environ[CLOCK]), time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    from gateway.cli import main as command

    return command(["serve"])


if __name__ == "__main__":
    sys.exit(main())
