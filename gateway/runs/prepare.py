"""Before the fence: a usable application, capabilities, a thread, and in the native profile its state (design.md "From request to POST" 3).

Whatever fails here is proven not sent.
"""

from dataclasses import dataclass, replace

from gateway.admission.admitting import Admitted
from gateway.bindings.fingerprint import Profile
from gateway.bindings.resolve import UsableApplication
from gateway.domain.evidence import NotSent, NotSentProof
from gateway.domain.fault_points import Step, through
from gateway.domain.ids import ThreadId
from gateway.domain.native import Answered, obstacle
from gateway.domain.reasons import Reason
from gateway.domain.states import RunKind
from gateway.runs.means import Means
from gateway.store import approval as store
from gateway.store.errors import DatabaseTrouble
from gateway.upstream.protocol import Preflight


@dataclass(frozen=True, slots=True)
class Prepared:
    """All from one frozen read of configuration and token. `thread_bound`: the conversation used this thread before.

    Native profile: `answered` is the question that a resume answers, `known_messages` the ids of the messages that the thread has already.
    """

    application: UsableApplication
    thread_id: ThreadId
    thread_bound: bool
    answered: Answered | None = None
    known_messages: frozenset[str | None] = frozenset()

    @property
    def native(self) -> bool:
        """Whether the application speaks the native profile."""
        return self.application.profile is Profile.NATIVE


async def prepare(means: Means, admitted: Admitted) -> Prepared | NotSent:
    """What the fence needs, or why the run is released."""
    try:
        application = await (
            means.resolve.opened(admitted.usable)
            if admitted.usable is not None
            else means.resolve.usable(admitted.application_id, admitted.conversation_id)
        )
    except DatabaseTrouble:
        return before_fence(Reason.NOT_SENT)
    if application is None or not application.enabled:
        return before_fence(Reason.APP_DISABLED)
    if (application.config_version, application.token_version) != (admitted.config_version, admitted.token_version):
        return before_fence(Reason.CONFIGURATION_CHANGED)
    if not application.binding_valid:
        return before_fence(Reason.BINDING_INVALIDATED)
    native = application.profile is Profile.NATIVE
    upstream: Preflight = means.native if native else means.upstream
    endpoint, key = application.endpoint, application.capabilities_key
    if await through(means.at, Step.CAPABILITIES, upstream.check_capabilities(endpoint, key)) is None:
        return before_fence(Reason.CAPABILITIES_FAILED)
    thread_bound = application.thread_id is not None
    thread_id = application.thread_id or await through(means.at, Step.THREAD, upstream.create_thread(endpoint, key))
    if thread_id is None:
        return before_fence(Reason.THREAD_FAILED)
    prepared = Prepared(application, thread_id, thread_bound)
    return await _with_state(means, admitted, prepared) if native else prepared


async def _with_state(means: Means, admitted: Admitted, prepared: Prepared) -> Prepared | NotSent:
    """The thread's state before each dispatch: an input would destroy a pending question, and an answer needs just that question."""
    answered = None
    if admitted.submission.kind is RunKind.RESUME:
        try:
            row = await store.answered(means.database, admitted.run_id)
        except DatabaseTrouble:
            return before_fence(Reason.NOT_SENT)
        assert row is not None, "a resume is admitted with its decision"
        answered = Answered(row.native_id, row.digest, frozenset(row.earlier_native_run_ids))
    asked = means.native_reads.state(prepared.application.endpoint, prepared.thread_id)
    state = await through(means.at, Step.STATE, asked)
    if state is None:
        return before_fence(Reason.THREAD_FAILED)
    against = obstacle(state, answered)
    if against is not None:
        return before_fence(against)
    return replace(prepared, answered=answered, known_messages=frozenset(message.native_id for message in state.messages))


def before_fence(reason: Reason) -> NotSent:
    """Not sent, since no fence of this run was committed."""
    return NotSent(NotSentProof.BEFORE_FENCE, reason)
