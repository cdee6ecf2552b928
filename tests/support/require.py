"""Named skips: what a machine lacks skips a test by name, and fails it where GATEWAY_TEST_REQUIRE names it (CI does)."""

import os

import pytest


def missing(name: str, why: str) -> None:
    """Skip the current test because `name` is not here; fail when GATEWAY_TEST_REQUIRE (comma-separated) names it."""
    required = {part.strip() for part in os.environ.get("GATEWAY_TEST_REQUIRE", "").split(",")}
    if name in required:
        pytest.fail(f"{name} is required here but missing: {why}")
    pytest.skip(f"{name} is missing: {why}")
