"""Runs: each in a task of its own, its status recorded whoever listens. Not here: HTTP, how a run is told (`voices.py`)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from agent_service.agent_loading import AgentGraph
from agent_service.records import NewRun, RunId, RunStatus
from agent_service.store import Store
from agent_service.voices import Voice

_logger = logging.getLogger("agent_service")
# A listener that is this many frames behind is let go (its stream ends without a terminal event, and it looks the run up),
# so that one that never reads cannot fill the memory.
MAX_FRAMES_BEHIND = 20_000
HEARTBEAT_SECONDS: Final = 5.0


class RunTakenError(Exception):
    """The run is not pending any more: somebody else ended it, so it must not be executed."""


class ThreadWaitsError(Exception):
    """The thread waits for an answer: a message would start the graph anew, and what it waits for would be lost."""


class NotWaitedForError(Exception):
    """The thread does not wait for this answer."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """A user's message. `over_waiting`: also where the thread waits for an answer, as LangGraph would take it."""

    text: str
    over_waiting: bool


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers to interrupts by their ids."""

    by_interrupt: Mapping[str, Any]


Content: TypeAlias = Said | Answers


class Feed:
    """The frames of one run on their way to the one client that started it."""

    def __init__(self, run_id: RunId) -> None:
        self.run_id = run_id
        self._frames: asyncio.Queue[str | None] = asyncio.Queue()
        self._listened_to = True

    def put(self, frames: Sequence[str]) -> None:
        """Never waits: a client that reads slowly does not slow the agent down."""
        if not self._listened_to:
            return
        for frame in frames:
            self._frames.put_nowait(frame)
        if self._frames.qsize() > MAX_FRAMES_BEHIND:
            self.leave()
            self._frames.put_nowait(None)

    def end(self) -> None:
        """No more frames will come."""
        self._frames.put_nowait(None)

    def leave(self) -> None:
        """The client left; what is queued is dropped and nothing is queued any more."""
        self._listened_to = False
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self._frames.get_nowait()

    async def frames(self, *, heartbeat: str | None = None) -> AsyncIterator[str]:
        """The frames as they come; `heartbeat` whenever there was none for a while. When the client leaves, only this ends."""
        try:
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS if heartbeat else None):
                        frame = await self._frames.get()
                except TimeoutError:
                    assert heartbeat is not None
                    yield heartbeat
                    continue
                if frame is None:
                    return
                yield frame
        finally:
            self.leave()


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Starts runs and waits for them at the end."""

    graphs: Mapping[str, AgentGraph]
    """By the assistant's id."""
    store: Store
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, run: NewRun, content: Content, voice: Callable[[RunId], Voice]) -> Feed:
        """Record a run of an existing thread and begin it.

        Raises ThreadBusyError when one is not over there, and, with nothing recorded, ThreadWaitsError and NotWaitedForError.
        """
        run_id = await self.store.begin_run(run)
        try:
            # Only now: while the run has the thread, no other can change what it waits for.
            await self._check(run, content)
        except BaseException:
            await asyncio.shield(self.store.discard_run(run_id))
            raise
        feed = Feed(run_id)
        task = asyncio.create_task(self._run(run, run_id, content, voice(run_id), feed), name=f"run {run_id}")
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

    async def _check(self, run: NewRun, content: Content) -> None:
        if isinstance(content, Said) and content.over_waiting:
            return
        state = await self.graphs[run.assistant].aget_state(_config(run))
        pending = {interrupt.id for interrupt in state.interrupts}
        if isinstance(content, Answers):
            if not content.by_interrupt.keys() <= pending:
                raise NotWaitedForError
        elif pending:
            raise ThreadWaitsError

    async def _run(self, run: NewRun, run_id: RunId, content: Content, voice: Voice, feed: Feed) -> None:
        """One run from beginning to end. The status is on disk before its end is told, so a look-up never lags behind."""
        try:
            if not await self.store.mark_running(run_id):
                raise RunTakenError(run_id)
            feed.put(voice.started())
            run_status, ending = await self._play(run, run_id, content, voice, feed)
            await self.store.finish_run(run_id, run_status)
            feed.put(ending)
        except Exception:  # whatever the graph raises ends its run as an error, and is in the log
            _logger.exception("run %s of thread %s failed", run_id, run.thread_id)
            await self._record_failure(run_id)
            feed.put(voice.failed())
        except asyncio.CancelledError:
            _logger.warning("run %s of thread %s was stopped", run_id, run.thread_id)
            await self._record_failure(run_id)
            feed.put(voice.failed())
            raise
        finally:
            feed.end()

    async def _record_failure(self, run_id: RunId) -> None:
        """When even this fails, the next start of the service records it."""
        try:
            await self.store.finish_run(run_id, RunStatus.ERROR)
        except Exception:  # nobody waits for this answer; the log has it
            _logger.exception("the end of run %s could not be recorded", run_id)

    async def _play(self, run: NewRun, run_id: RunId, content: Content, voice: Voice, feed: Feed) -> tuple[RunStatus, Sequence[str]]:
        """Run the graph on the content; the run's status, and the frames with which it ends."""
        graph, config = self.graphs[run.assistant], _config(run, run_id)
        async for mode, payload in graph.astream(_input(content), config, stream_mode=list(voice.modes)):
            feed.put(voice.feed(mode, payload))
        state = await graph.aget_state(config)
        if state.next or state.interrupts:
            return RunStatus.INTERRUPTED, voice.interrupted(state.next)
        return RunStatus.SUCCESS, voice.finished()


def _config(run: NewRun, run_id: RunId | None = None) -> RunnableConfig:
    """The graph's memory of the thread. The ids become part of every checkpoint: a state tells by whose run it is."""
    names = {"assistant_id": run.assistant, "run_id": run_id} if run_id is not None else {}
    return {"configurable": {"thread_id": run.thread_id}, "metadata": names}


def _input(content: Content) -> dict[str, Any] | Command[Any]:
    if isinstance(content, Answers):
        return Command(resume=dict(content.by_interrupt))
    # The message gets an id of LangGraph's: with the caller's, a repeated id would replace an older message in the memory.
    return {"messages": [HumanMessage(content.text)]}
