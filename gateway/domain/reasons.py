"""Why a run ended as it did, or why a conversation takes no new task: one closed list (interface.md).

It serves `Run.reason`, `Conversation.blocked` and RUN_ERROR's `code`. The public message of each is here and nowhere else, and so is the
note to operators; docs/reasons.md is generated from these tables, and the pages get them served.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Codes of the closed list; what each means to a person is in REASON_MESSAGES."""

    THREAD_GONE = "thread_gone"
    THREAD_BUSY = "thread_busy"
    THREAD_NOT_FRESH = "thread_not_fresh"
    INTERRUPT_UNSUPPORTED = "interrupt_unsupported"
    CANCELLED_UPSTREAM = "cancelled_upstream"
    DECISION_NOT_APPLIED = "decision_not_applied"
    UPSTREAM_REJECTED = "upstream_rejected"
    UPSTREAM_ERROR = "upstream_error"
    CAPABILITIES_FAILED = "capabilities_failed"
    THREAD_FAILED = "thread_failed"
    NOT_SENT = "not_sent"
    LEASE_LOST = "lease_lost"
    STREAM_ENDED = "stream_ended"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    BOUND_EXCEEDED = "bound_exceeded"
    BAD_FRAME = "bad_frame"
    ID_MISMATCH = "id_mismatch"
    BAD_RESPONSE = "bad_response"
    SAVE_FAILED = "save_failed"
    DRAINED = "drained"
    RIGHTS_CHANGED = "rights_changed"
    BINDING_INVALIDATED = "binding_invalidated"
    TASK_ALREADY_DONE = "task_already_done"
    APP_DISABLED = "app_disabled"
    CONFIGURATION_CHANGED = "configuration_changed"
    CONVERSATION_DELETED = "conversation_deleted"
    INTERRUPT_PENDING = "interrupt_pending"
    INTERRUPT_CHANGED = "interrupt_changed"
    INTERRUPT_EXPIRED = "interrupt_expired"
    OUTCOME_UNRECOGNISED = "outcome_unrecognised"
    # RUN_ERROR only
    DETACHED = "detached"
    # Conversation.blocked only
    RUN_ACTIVE = "run_active"
    SAVE_PENDING = "save_pending"
    INCOMPLETE_ANSWER = "incomplete_answer"
    WAITING_FOR_DECISION = "waiting_for_decision"


REASON_MESSAGES: Final[Mapping[Reason, str]] = {
    Reason.THREAD_GONE: "The agent service no longer knows this conversation. Start a new conversation to go on.",
    Reason.THREAD_BUSY: "The agent service says that this conversation is still being worked on. Check again in a moment.",
    Reason.THREAD_NOT_FRESH: "The agent service handed out a conversation that is already in use. Nothing was sent; try again.",
    Reason.INTERRUPT_UNSUPPORTED: "The agent asked for something that cannot be answered here. Start a new conversation.",
    Reason.CANCELLED_UPSTREAM: "The agent service stopped this task before it was done. You can send a new message.",
    Reason.DECISION_NOT_APPLIED: "The agent service does not show that your decision arrived. An operator has to look into it.",
    Reason.UPSTREAM_REJECTED: "The agent service refused this message. You can send a new one; if it happens again, tell an operator.",
    Reason.UPSTREAM_ERROR: "The agent reported an error and stopped. What it said so far is kept. You can send a new message.",
    Reason.CAPABILITIES_FAILED: "The agent service could not be checked, so nothing was sent. Try again in a moment.",
    Reason.THREAD_FAILED: "The agent service could not open a conversation, so nothing was sent. Try again in a moment.",
    Reason.NOT_SENT: "Your message was not sent to the agent. Try again in a moment.",
    Reason.LEASE_LOST: "The connection to the running task was lost. Its outcome is being looked up.",
    Reason.STREAM_ENDED: "The answer broke off. Its outcome is being looked up.",
    Reason.IDLE_TIMEOUT: "The agent said nothing for too long. Its outcome is being looked up.",
    Reason.TOTAL_TIMEOUT: "The agent took longer than allowed. Its outcome is being looked up.",
    Reason.BOUND_EXCEEDED: "The answer grew beyond what is allowed. Its outcome is being looked up.",
    Reason.BAD_FRAME: "The agent service sent something that could not be read. The outcome is being looked up.",
    Reason.ID_MISMATCH: "The agent service answered for another task. The outcome is being looked up.",
    Reason.BAD_RESPONSE: "The agent service gave no usable answer. The outcome is being looked up.",
    Reason.SAVE_FAILED: "The answer is complete but is not saved yet. Saving goes on; check again in a moment.",
    Reason.DRAINED: "The server was restarted while the task ran. Its outcome is being looked up.",
    Reason.RIGHTS_CHANGED: "You may no longer use this application or account, so nothing was sent.",
    Reason.BINDING_INVALIDATED: "This application's service was changed. This conversation stays readable; start a new one to go on.",
    Reason.TASK_ALREADY_DONE: "This conversation's one task is done. Start a new conversation for another.",
    Reason.APP_DISABLED: "This application was switched off, so nothing was sent.",
    Reason.CONFIGURATION_CHANGED: "This application was changed at that moment, so nothing was sent. Send the message again.",
    Reason.CONVERSATION_DELETED: "This conversation was deleted, so nothing was sent.",
    Reason.INTERRUPT_PENDING: "The agent waits for a decision in this conversation, so nothing was sent.",
    Reason.INTERRUPT_CHANGED: "The agent no longer asks the question that you answered, so nothing was sent.",
    Reason.INTERRUPT_EXPIRED: "The time to decide is over, so nothing was sent.",
    Reason.OUTCOME_UNRECOGNISED: "The agent service reported an outcome that is not known here. An operator has to look into it.",
    Reason.DETACHED: "The task goes on without this connection. Ask for its state to see how it ends.",
    Reason.RUN_ACTIVE: "A message is still being answered in this conversation.",
    Reason.SAVE_PENDING: "The last answer is still being saved.",
    Reason.INCOMPLETE_ANSWER: "The last answer is incomplete. Accept it to go on, or start a new conversation.",
    Reason.WAITING_FOR_DECISION: "The agent waits for your decision.",
}

REASON_NOTES: Final[Mapping[Reason, str]] = {
    Reason.THREAD_GONE: "Upstream answered 404 for a thread that it had given us. The conversation is blocked for good.",
    Reason.THREAD_BUSY: "Upstream says that the thread is at work: another copy of our POST may be what runs. Slots stay held.",
    Reason.THREAD_NOT_FRESH: "POST /threads gave a thread that another conversation has. Report it to whoever runs the service.",
    Reason.INTERRUPT_UNSUPPORTED: "The agent asked in a form that is not served, or without human_input. The conversation is blocked.",
    Reason.CANCELLED_UPSTREAM: "Somebody or something at the service cancelled the run.",
    Reason.DECISION_NOT_APPLIED: "The thread's state does not show the decision. Look at the thread at the service, then resolve the run.",
    Reason.UPSTREAM_REJECTED: "A documented 3xx or 4xx before any stream byte; the status is in the evidence. The charge is kept.",
    Reason.UPSTREAM_ERROR: "RUN_ERROR, or a look-up that said error or timeout. Its message is not kept; see the service's own log.",
    Reason.CAPABILITIES_FAILED: "GET /capabilities failed or names another assistant: `gateway check`. The charge came back.",
    Reason.THREAD_FAILED: "POST /threads failed. The charge came back.",
    Reason.NOT_SENT: "Proven not sent: no connection, or the send window passed. The charge came back.",
    Reason.LEASE_LOST: "The replica that ran it died or could not reach the database for a whole lease.",
    Reason.STREAM_ENDED: "The stream ended without RUN_FINISHED or RUN_ERROR.",
    Reason.IDLE_TIMEOUT: "No event for GATEWAY_STREAM_IDLE_SECONDS.",
    Reason.TOTAL_TIMEOUT: "The stream took GATEWAY_STREAM_TOTAL_SECONDS.",
    Reason.BOUND_EXCEEDED: "One of the GATEWAY_MAX_… bounds; the evidence names it.",
    Reason.BAD_FRAME: "A frame was no strict JSON, no UTF-8 or against the protocol; the evidence names the fault.",
    Reason.ID_MISMATCH: "Thread or run id of the stream are not those that we sent.",
    Reason.BAD_RESPONSE: "No response, an undocumented status, or no event stream; the evidence names which.",
    Reason.SAVE_FAILED: "The snapshot is stored, its items are not yet. Any replica retries; nothing is executed again.",
    Reason.DRAINED: "The drain budget (GATEWAY_DRAIN_SECONDS) was spent while it ran.",
    Reason.RIGHTS_CHANGED: "The account was suspended between admission and fence. The charge came back.",
    Reason.BINDING_INVALIDATED: "Endpoint, assistant or profile was changed. Setting it back does not revive the conversation.",
    Reason.TASK_ALREADY_DONE: "Human approval: a conversation has one task.",
    Reason.APP_DISABLED: "Application or provider disabled, or no token that opens: `gateway apps list`. The charge came back.",
    Reason.CONFIGURATION_CHANGED: "Configuration or token changed between admission and fence. The charge came back.",
    Reason.CONVERSATION_DELETED: "Deleted between admission and fence. The charge came back.",
    Reason.INTERRUPT_PENDING: "The thread's state shows a prompt that nobody answered.",
    Reason.INTERRUPT_CHANGED: "The prompt at the service is not the one that was shown.",
    Reason.INTERRUPT_EXPIRED: "The prompt's own expires_at has passed.",
    Reason.OUTCOME_UNRECOGNISED: "RUN_FINISHED with an outcome that this build does not know. Look at the service, then resolve the run.",
    Reason.DETACHED: "Only in RUN_ERROR on `POST /ag-ui`: the stream ended, the run did not.",
    Reason.RUN_ACTIVE: "Only in Conversation.blocked: a run of it holds a slot.",
    Reason.SAVE_PENDING: "Only in Conversation.blocked: a run of it is pending.",
    Reason.INCOMPLETE_ANSWER: "Only in Conversation.blocked: succeeded, incomplete, and neither acknowledged nor resolved.",
    Reason.WAITING_FOR_DECISION: "Only in Conversation.blocked: a run of it is waiting and unanswered.",
}
"""What an operator needs to know beside; none of it is for users."""
