"""Runs: each in a task of its own, its status recorded whoever listens. Not here: HTTP, the mapping of events."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from ag_ui.core import BaseEvent
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from agent_service.agent_loading import AgentGraph
from agent_service.events import EventMapper
from agent_service.records import CorrelationId, RunStatus, ThreadId
from agent_service.store import Store

_logger = logging.getLogger("agent_service")
# A listener that is this many events behind is let go (its stream ends without a terminal event, and it looks the run up),
# so that one that never reads cannot fill the memory.
MAX_EVENTS_BEHIND = 20_000


class RunTakenError(Exception):
    """The run is not pending any more: somebody else ended it, so it must not be executed."""


class Feed:
    """The events of one run on their way to the one client that started it."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[BaseEvent | None] = asyncio.Queue()
        self._listened_to = True

    def put(self, events: Sequence[BaseEvent]) -> None:
        """Never waits: a client that reads slowly does not slow the agent down."""
        if not self._listened_to:
            return
        for event in events:
            self._events.put_nowait(event)
        if self._events.qsize() > MAX_EVENTS_BEHIND:
            self.leave()
            self._events.put_nowait(None)

    def end(self) -> None:
        """No more events will come."""
        self._events.put_nowait(None)

    def leave(self) -> None:
        """The client left; what is queued is dropped and nothing is queued any more."""
        self._listened_to = False
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self._events.get_nowait()

    async def __aiter__(self) -> AsyncIterator[BaseEvent]:
        try:
            while (event := await self._events.get()) is not None:
                yield event
        finally:
            self.leave()


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Starts runs and waits for them at the end."""

    graph: AgentGraph
    store: Store
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, *, thread_id: ThreadId, correlation_id: CorrelationId, text: str) -> Feed:
        """Record a run of an existing thread and begin it. Raises ThreadBusyError when one is not over there."""
        run_id = await self.store.begin_run(thread_id=thread_id, correlation_id=correlation_id)
        feed = Feed()
        mapper = EventMapper(thread_id=thread_id, correlation_id=correlation_id, run_id=run_id)
        task = asyncio.create_task(self._run(mapper, text, feed), name=f"run {run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return feed

    async def aclose(self, *, grace_seconds: float) -> None:
        """Let runs end by themselves for so long, then stop them; their status becomes `error`."""
        if self._tasks:
            _logger.info("waiting up to %s s for %s runs", grace_seconds, len(self._tasks))
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, mapper: EventMapper, text: str, feed: Feed) -> None:
        """One run from beginning to end. The status is on disk before the terminal event is told, so a look-up never lags behind."""
        try:
            if not await self.store.mark_running(mapper.run_id):
                raise RunTakenError(mapper.run_id)
            feed.put(mapper.started())
            run_status, ending = await self._play(mapper, text, feed)
            await self.store.finish_run(mapper.run_id, run_status)
            feed.put(ending)
        except Exception:  # whatever the graph raises ends its run as an error, and is in the log
            _logger.exception("run %s of thread %s failed", mapper.run_id, mapper.thread_id)
            await self._record_failure(mapper)
            feed.put(mapper.failed())
        except asyncio.CancelledError:
            _logger.warning("run %s of thread %s was stopped", mapper.run_id, mapper.thread_id)
            await self._record_failure(mapper)
            feed.put(mapper.failed())
            raise
        finally:
            feed.end()

    async def _record_failure(self, mapper: EventMapper) -> None:
        """When even this fails, the next start of the service records it."""
        try:
            await self.store.finish_run(mapper.run_id, RunStatus.ERROR)
        except Exception:  # nobody waits for this answer; the log has it
            _logger.exception("the end of run %s could not be recorded", mapper.run_id)

    async def _play(self, mapper: EventMapper, text: str, feed: Feed) -> tuple[RunStatus, Sequence[BaseEvent]]:
        """Run the graph on the message; its status, and the events with which it ends."""
        config: RunnableConfig = {"configurable": {"thread_id": mapper.thread_id}}
        # The message gets an id of LangGraph's: with the caller's, a repeated id would replace an older message in the memory.
        said = {"messages": [HumanMessage(text)]}
        async for mode, payload in self.graph.astream(said, config, stream_mode=["messages", "updates"]):
            feed.put(mapper.feed(mode, payload))
        state = await self.graph.aget_state(config)
        if state.next or state.interrupts:
            return RunStatus.INTERRUPTED, mapper.interrupted(state.next)
        return RunStatus.SUCCESS, mapper.finished()
