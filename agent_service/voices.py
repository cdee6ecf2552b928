"""How a run is told to the client that started it: frames of the bridge profile (AG-UI) or of the native one, without any IO."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ag_ui.core import BaseEvent
from ag_ui.encoder import EventEncoder
from langgraph.types import StreamMode

from agent_service.events import ERROR_TEXT, EventMapper
from agent_service.plain import compact_json
from agent_service.records import RunId

ERROR_NAME: Final = "AgentError"
HEARTBEAT: Final = ": heartbeat\r\n\r\n"
_GRAPH_MODES: Final[Mapping[str, StreamMode]] = {"messages-tuple": "messages", "updates": "updates", "values": "values"}
"""What may be asked for in the native profile. The graph's own names for it are those of the events."""


class Voice(Protocol):
    """Frames of one run, in order: `started`, `feed` for each item of the graph's stream, then one ending."""

    @property
    def modes(self) -> Sequence[StreamMode]:
        """What the graph has to stream."""

    def started(self) -> Sequence[str]:
        """The run is on its way."""

    def feed(self, mode: str, payload: Any) -> Sequence[str]:
        """One item of the graph's stream."""

    def finished(self) -> Sequence[str]:
        """The graph came to its end."""

    def interrupted(self, waiting_nodes: Sequence[str]) -> Sequence[str]:
        """The graph waits."""

    def failed(self) -> Sequence[str]:
        """The graph raised, or was stopped. Never in its own words: they may hold prompts, keys, paths."""


class BridgeVoice:
    """AG-UI events."""

    modes: Sequence[StreamMode] = ("messages", "updates")

    def __init__(self, mapper: EventMapper) -> None:
        self._mapper = mapper
        self._encoder = EventEncoder()

    def started(self) -> list[str]:
        return self._encoded(self._mapper.started())

    def feed(self, mode: str, payload: Any) -> list[str]:
        return self._encoded(self._mapper.feed(mode, payload))

    def finished(self) -> list[str]:
        return self._encoded(self._mapper.finished())

    def interrupted(self, waiting_nodes: Sequence[str]) -> list[str]:
        return self._encoded(self._mapper.interrupted(waiting_nodes))

    def failed(self) -> list[str]:
        return self._encoded(self._mapper.failed())

    def _encoded(self, events: Sequence[BaseEvent]) -> list[str]:
        return [self._encoder.encode(event) for event in events]


class NativeVoice:
    """Named events as LangGraph Agent Server sends them: CRLF, no event at the end, the same silence for an end and for an interrupt."""

    def __init__(self, run_id: RunId, asked: Sequence[str]) -> None:
        """`asked`: stream modes, each of `NativeVoice.known()`."""
        self._run_id = run_id
        self.modes: Sequence[StreamMode] = [_GRAPH_MODES[mode] for mode in asked]

    @staticmethod
    def known() -> frozenset[str]:
        """The stream modes that may be asked for."""
        return frozenset(_GRAPH_MODES)

    def started(self) -> list[str]:
        return [_frame("metadata", {"run_id": self._run_id, "attempt": 1})]

    def feed(self, mode: str, payload: Any) -> list[str]:
        return [_frame(mode, payload)]

    def finished(self) -> list[str]:
        return []

    def interrupted(self, waiting_nodes: Sequence[str]) -> list[str]:
        return []

    def failed(self) -> list[str]:
        return [_frame("error", {"error": ERROR_NAME, "message": ERROR_TEXT})]


def _frame(name: str, payload: object) -> str:
    return f"event: {name}\r\ndata: {compact_json(payload)}\r\n\r\n"
