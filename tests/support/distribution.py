"""How pytest-xdist spreads the tests over processes: each alone, but those of one native server together, so that it starts once, and
those of a module that fills the machine by itself one after the other.

A scheduler of our own, because `--dist loadgroup` of xdist 3.8 marks groups in the text of test ids, which pytest 9.2 no longer reads.
"""

import re
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from tests.support.native_servers import NATIVE_SERVERS

_SERVER: Final = re.compile(rf"\[(?P<server>{'|'.join(NATIVE_SERVERS)})\b")
_ONE_AFTER_THE_OTHER: Final = ("tests/replicas/test_rolling.py",)
"""Fifty people before three replicas each; and the program of before is made once."""


def group_of(test_id: str) -> str:
    """What a test has to run together with: its server's tests, its module's, or itself."""
    found = _SERVER.search(test_id)
    if found is not None:
        return found["server"]
    module = test_id.partition("::")[0]
    return module if module in _ONE_AFTER_THE_OTHER else test_id


class InGroups(LoadScopeScheduling):
    """One unit of work for each group."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
