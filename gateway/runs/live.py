"""The runs that this process executes now: their view, their channel, and the registry that finds them. No decisions here."""

from dataclasses import replace
from datetime import datetime

from gateway.admission.admitting import Admitted
from gateway.domain.ids import AttemptToken, RunId
from gateway.domain.reasons import Reason
from gateway.domain.states import Attention, Execution, Persistence
from gateway.runs.fanout import Channel
from gateway.runs.frames import Frames
from gateway.runs.read import POLL_SECONDS, Interrupt, RunView, poll_after


class LiveRun:
    """A run whose attempt token this process holds. `view` is what the database last confirmed; every change of it is published."""

    __slots__ = ("admitted", "channel", "frames", "held", "view")

    def __init__(self, admitted: Admitted) -> None:
        self.admitted = admitted
        self.channel = Channel()
        self.frames = Frames(admitted.run_id, admitted.conversation_id)
        self.held = True
        """Whether the lease is renewed: until the end is known to be committed."""
        self.view = RunView(
            run_id=admitted.run_id,
            conversation_id=admitted.conversation_id,
            submission_id=admitted.submission.submission_id,
            kind=admitted.submission.kind,
            execution=Execution.RESERVED,
            persistence=Persistence.NONE,
            reason=None,
            resolution=None,
            answered_by=None,
            native_status=None,
            attention=None,
            poll_after_seconds=POLL_SECONDS,
            created_at=admitted.created_at,
            updated_at=admitted.created_at,
            finished_at=None,
            snapshot=None,
        )
        self.channel.publish(self.frames.started() + self.frames.status(self.view))

    def moved(self, execution: Execution, updated_at: datetime) -> None:
        """The database confirmed a state on the way."""
        self.view = replace(self.view, execution=execution, updated_at=updated_at)
        self.channel.publish(self.frames.status(self.view))

    def ended(
        self,
        execution: Execution,
        persistence: Persistence,
        reason: Reason | None,
        attention: Attention | None,
        updated_at: datetime,
        finished_at: datetime | None,
        interrupt: Interrupt | None = None,
    ) -> None:
        """The database confirmed how the run ended, that it waits or that nobody knows: the last frames, and the streams are over."""
        view = replace(
            self.view,
            execution=execution,
            persistence=persistence,
            reason=reason,
            attention=attention,
            updated_at=updated_at,
            finished_at=finished_at,
            poll_after_seconds=poll_after(execution, persistence, attention),
            interrupt=interrupt,
        )
        self.ended_as(view)

    def ended_as(self, view: RunView) -> None:
        """The same, where somebody else brought the end: the run as it was read."""
        self.held = False
        self.view = view
        self.channel.publish(self.frames.status(view) + self.frames.ending(view))
        self.channel.close()

    def not_confirmed(self, reason: Reason) -> None:
        """Upstream is done and the database did not say so in time: the watchers are told, saving goes on (interface.md "The stream")."""
        self.channel.publish(self.frames.failed(reason))
        self.channel.close()

    def detach(self) -> None:
        """End the streams while the run goes on (draining): a last status and no terminal frame."""
        self.channel.publish(self.frames.status(self.view))
        self.channel.close()


class LiveRuns:
    """The live runs of this process by id."""

    def __init__(self) -> None:
        self._runs: dict[RunId, LiveRun] = {}

    def add(self, live: LiveRun) -> None:
        self._runs[live.admitted.run_id] = live

    def remove(self, run_id: RunId) -> None:
        self._runs.pop(run_id, None)

    def get(self, run_id: RunId) -> LiveRun | None:
        return self._runs.get(run_id)

    def held(self) -> list[tuple[RunId, AttemptToken]]:
        """The pairs that a heartbeat renews."""
        return [(live.admitted.run_id, live.admitted.attempt_token) for live in self._runs.values() if live.held]

    def all(self) -> tuple[LiveRun, ...]:
        return tuple(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)
