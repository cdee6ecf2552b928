"""The native profile where a test has no application of it: whoever speaks to it is a fault."""

from typing import NoReturn


class NoNative:
    """NativeUpstream and NativeReads."""

    async def check_capabilities(self, *_: object) -> NoReturn:
        raise AssertionError("no application of the native profile")

    create_thread = run = state = run_status = find_run = check_capabilities
