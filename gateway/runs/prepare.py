"""Before the fence: a usable application, capabilities, a thread (design.md "From request to POST" 3).

Whatever fails here is proven not sent.
"""

from dataclasses import dataclass

from gateway.admission.gate import Admitted
from gateway.bindings.resolve import UsableApplication
from gateway.domain.evidence import NotSent, NotSentProof
from gateway.domain.fault_points import Step, through
from gateway.domain.ids import ThreadId
from gateway.domain.reasons import Reason
from gateway.runs.means import Means
from gateway.store.errors import DatabaseTrouble


@dataclass(frozen=True, slots=True)
class Prepared:
    """All from one frozen read of configuration and token. `thread_bound`: the conversation used this thread before."""

    application: UsableApplication
    thread_id: ThreadId
    thread_bound: bool


async def prepare(means: Means, admitted: Admitted) -> Prepared | NotSent:
    """What the fence needs, or why the run is released."""
    try:
        application = await means.resolve.usable(admitted.application_id, admitted.conversation_id)
    except DatabaseTrouble:
        return before_fence(Reason.NOT_SENT)
    if application is None or not application.enabled:
        return before_fence(Reason.APP_DISABLED)
    if (application.config_version, application.token_version) != (admitted.config_version, admitted.token_version):
        return before_fence(Reason.CONFIGURATION_CHANGED)
    if not application.binding_valid:
        return before_fence(Reason.BINDING_INVALIDATED)
    endpoint, key = application.endpoint, application.capabilities_key
    if await through(means.at, Step.CAPABILITIES, means.upstream.check_capabilities(endpoint, key)) is None:
        return before_fence(Reason.CAPABILITIES_FAILED)
    if application.thread_id is not None:
        return Prepared(application, application.thread_id, thread_bound=True)
    thread_id = await through(means.at, Step.THREAD, means.upstream.create_thread(endpoint, key))
    if thread_id is None:
        return before_fence(Reason.THREAD_FAILED)
    return Prepared(application, thread_id, thread_bound=False)


def before_fence(reason: Reason) -> NotSent:
    """Not sent, since no fence of this run was committed."""
    return NotSent(NotSentProof.BEFORE_FENCE, reason)
