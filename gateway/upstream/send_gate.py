"""The gate before the first byte of the one POST, and the witness of whether that byte may have left.

What lives here: the send window's last check and the proof that `NotSent` needs (design.md "From request to POST" 5, failure table).
What does not: clocks and windows (the caller's callable), sockets (`one_post`).
"""

from collections.abc import Callable
from enum import StrEnum
from typing import assert_never

from gateway.domain.evidence import NotSentProof


class _Position(StrEnum):
    SHUT = "shut"
    OPENED = "opened"
    REFUSED = "refused"
    SEALED = "sealed"


class SendGate:
    """One gate for one POST. Its four positions know no way back: shut → opened | refused | sealed.

    `may_send` is asked once, by the transport, with the connection up and nothing between its answer and the write of the first byte.
    Because the transport may write only after `open()` returned True, a gate that is not opened proves that no request byte left.
    """

    __slots__ = ("_may_send", "_position")

    def __init__(self, may_send: Callable[[], bool]) -> None:
        self._may_send = may_send
        self._position = _Position.SHUT

    def open(self) -> bool:
        """True exactly once, and only while `may_send` says yes: write now. For the transport alone.

        A `may_send` that raises counts as no: its exception passes, the gate stays refused.
        """
        if self._position is not _Position.SHUT:
            return False
        self._position = _Position.REFUSED
        if self._may_send():
            self._position = _Position.OPENED
        return self._position is _Position.OPENED

    def seal(self) -> NotSentProof | None:
        """The proof that nothing was sent and, from now on, never will be; None when bytes may have left.

        Whoever gives up on a POST asks here, a cancelled task too: asking shuts the gate for good, so that the answer stays true.
        """
        match self._position:
            case _Position.SHUT | _Position.SEALED:
                self._position = _Position.SEALED
                return NotSentProof.CONNECTION_NOT_MADE
            case _Position.REFUSED:
                return NotSentProof.WINDOW_PASSED
            case _Position.OPENED:
                return None
            case _:
                assert_never(self._position)
