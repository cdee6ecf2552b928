"""Hypothesis profiles: no deadlines (shared machines), bounded examples; in CI the same examples each time.

HYPOTHESIS_PROFILE=thorough searches for minutes, for whoever changes the parser.
"""

import os

from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow]
settings.register_profile("quick", deadline=None, max_examples=100, suppress_health_check=_QUIET)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, database=None, suppress_health_check=_QUIET)
settings.register_profile("thorough", deadline=None, max_examples=3_000, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))
