"""Why a run ended as it did, or why a conversation takes no new task: one closed list (interface.md).

It serves `Run.reason`, `Conversation.blocked` and RUN_ERROR's `code`. The public message of each is here and nowhere else;
docs/reasons.md is generated from this table.
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
