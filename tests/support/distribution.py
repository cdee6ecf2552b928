"""How pytest-xdist spreads the tests over processes: each alone, but those of one native server together, so that it starts once.

A scheduler of our own, because `--dist loadgroup` of xdist 3.8 marks groups in the text of test ids, which pytest 9.2 no longer reads.
"""

import re
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from tests.support.native_servers import NATIVE_SERVERS

_SERVER: Final = re.compile(rf"\[(?P<server>{'|'.join(NATIVE_SERVERS)})\b")


def group_of(test_id: str) -> str:
    """What a test has to run together with: its server's tests, or itself."""
    found = _SERVER.search(test_id)
    return found["server"] if found else test_id


class TogetherByServer(LoadScopeScheduling):
    """One unit of work for each native server, and one for each other test."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
