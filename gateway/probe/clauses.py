"""The clauses of the upstream contract that a probe can see, in the order in which they are told. Data only; the rules are those of
docs/rules.md.

Both profiles share the list; `BRIDGE` and `NATIVE` at its end say what is asked in which. Longer than most modules: it is one table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.domain.limits import MAX_REPLY_BODY_BYTES, MAX_UPSTREAM_BODY_BYTES


class Clause(StrEnum):
    """One thing that a service does or does not. The value is its name in `--json` and in docs/probe.md."""

    REACHABLE = "reachable"
    TOKEN_TAKEN = "token_taken"
    CAPABILITIES = "capabilities"
    CAPABLE = "capable"
    TOKEN_REQUIRED = "token_required"
    TOKEN_COMPARED = "token_compared"
    THREAD = "thread"
    THREAD_FRESH = "thread_fresh"
    THREAD_NEEDS_TOKEN = "thread_needs_token"
    STATE = "state"
    STATE_UNKNOWN = "state_unknown"
    STATE_NEEDS_TOKEN = "state_needs_token"
    POST_NEEDS_TOKEN = "post_needs_token"
    NO_JSON_REFUSED = "no_json_refused"
    NO_MESSAGE_REFUSED = "no_message_refused"
    UNKNOWN_THREAD_REFUSED = "unknown_thread_refused"
    LARGEST_BODY = "largest_body"
    MESSAGE_TAKEN = "message_taken"
    EVENT_STREAM = "event_stream"
    RUN_LOCATION = "run_location"
    FRAMES = "frames"
    ORDER = "order"
    RUN_IDS = "run_ids"
    ITEM_IDS = "item_ids"
    CHUNKS = "chunks"
    BOUNDS = "bounds"
    NATIVE_RUN = "native_run"
    NATIVE_DIFFERS = "native_differs"
    NATIVE_SOON = "native_soon"
    TERMINAL = "terminal"
    SUCCESS = "success"
    TEXT = "text"
    TIDY = "tidy"
    BODY_END = "body_end"
    RAW_OFF = "raw_off"
    LOOKUP_DURING = "lookup_during"
    LOOKUP_AFTER = "lookup_after"
    VERDICT = "verdict"
    ANSWER_VERIFIED = "answer_verified"
    PROMPT = "prompt"
    RUN_LISTED = "run_listed"
    LOOKUP_UNKNOWN = "lookup_unknown"
    LOOKUP_OTHER_THREAD = "lookup_other_thread"
    LOOKUP_NEEDS_TOKEN = "lookup_needs_token"
    DECISION_TAKEN = "decision_taken"
    DECISION_APPLIED = "decision_applied"
    NEXT_MESSAGE = "next_message"
    NATIVE_FRESH = "native_fresh"
    TWO_AT_ONCE = "two_at_once"
    NO_REDIRECT = "no_redirect"
    REPLIES = "replies"
    TOKEN_HIDDEN = "token_hidden"


@dataclass(frozen=True, slots=True)
class Wording:
    """What is said of a clause. `advice`: the contract does not ask for it, so it is never broken."""

    rule: str
    keeps: str
    """What a service that keeps it does: the line for people."""
    expected: str
    remedy: str
    advice: bool = False


_REFUSE_TOKEN: Final = "401, and nothing done"
_CHECK_TOKEN: Final = "Compare the Authorization header with the token before anything else, on every route, and answer 401."

WORDINGS: Final[Mapping[Clause, Wording]] = {
    Clause.REACHABLE: Wording(
        "A1",
        "the service answers",
        "an HTTP response to GET /capabilities within 10 seconds",
        "Check that the service is up, that the address and port are right, and that this machine may reach it.",
    ),
    Clause.TOKEN_TAKEN: Wording(
        "B1",
        "the token of --token-file is taken",
        "anything but 401 and 403 for Authorization: Bearer and the token",
        "Check that the file holds the token that the service expects, and nothing else.",
    ),
    Clause.CAPABILITIES: Wording(
        "B2",
        "GET /capabilities names the assistant",
        'status 200 and strict JSON with "assistant_id" as given by --assistant, or a list "assistants" that holds it',
        "Serve GET /capabilities below the base URL, and check the spelling of --assistant.",
    ),
    Clause.CAPABLE: Wording(
        "E1",
        "the assistant can ask, be answered, and keeps to one task a thread",
        '"native_interrupt", "native_resume" and "one_task_per_thread" true, and "actions" with "approve" and "reject"',
        "Say so in GET /capabilities, where it is so. Without it an application with human_input sends nothing.",
    ),
    Clause.TOKEN_REQUIRED: Wording("B1", "GET /capabilities is refused without a token", _REFUSE_TOKEN, _CHECK_TOKEN),
    Clause.TOKEN_COMPARED: Wording("B1", "GET /capabilities is refused with a wrong token", _REFUSE_TOKEN, _CHECK_TOKEN),
    Clause.THREAD: Wording(
        "B3",
        "POST /threads gives a thread id",
        'status 200 or 201 and JSON with "thread_id", 1 to 200 visible ASCII characters, neither . nor ..',
        "Make up an id for each call (a UUID is fine), store it, and answer it.",
    ),
    Clause.THREAD_FRESH: Wording(
        "B3",
        "each POST /threads gives another thread id",
        "two calls, two ids",
        "Make a new thread for each call: the gateway refuses an id that it was given before.",
    ),
    Clause.THREAD_NEEDS_TOKEN: Wording("B1", "POST /threads is refused without a token", _REFUSE_TOKEN, _CHECK_TOKEN),
    Clause.STATE: Wording(
        "E1",
        "the state of a fresh thread can be read, and nothing is pending in it",
        'GET /threads/{thread_id}/state: 200 and JSON with the lists "tasks", "next" and "interrupts"',
        "Serve the state as LangGraph Agent Server does; for a thread without a run the lists are empty.",
    ),
    Clause.STATE_UNKNOWN: Wording(
        "E1",
        "a thread that was never handed out has no state",
        "404",
        "Answer 404: the gateway reads the state before it sends, and so notices a thread that the service lost.",
    ),
    Clause.STATE_NEEDS_TOKEN: Wording("B1", "the state of a thread is refused without a token", _REFUSE_TOKEN, _CHECK_TOKEN),
    Clause.POST_NEEDS_TOKEN: Wording("B1", "a message with a wrong token is refused", _REFUSE_TOKEN, _CHECK_TOKEN),
    Clause.NO_JSON_REFUSED: Wording(
        "B4",
        "a body that is not JSON is refused",
        "400 or 422, and nothing run",
        "Validate the body before anything runs. Any other status than the listed refusals leaves a run unknown and its user waiting.",
    ),
    Clause.NO_MESSAGE_REFUSED: Wording(
        "B4",
        "a body without a message is refused",
        "400 or 422, and nothing run",
        "There is exactly one user message in each body. Refuse any other number before anything runs.",
    ),
    Clause.UNKNOWN_THREAD_REFUSED: Wording(
        "B3",
        "a message for a thread that was never handed out is refused",
        "404, and nothing run",
        "Look the thread up first. A service that makes up a thread that it lost answers without memory, and nobody notices.",
    ),
    Clause.LARGEST_BODY: Wording(
        "B5",
        f"a body of nearly {MAX_UPSTREAM_BODY_BYTES // 1024} KiB is read",
        "the answer that a small body gets (it is sent to the unknown thread, so that nothing runs)",
        f"Raise the limits of the service and of the proxy in front of it: {MAX_UPSTREAM_BODY_BYTES} bytes, 16,000 characters.",
    ),
    Clause.MESSAGE_TAKEN: Wording(
        "B4",
        "a message is taken",
        "status 200 for one user message, in the body that docs/upstream-contract.md describes",
        "See what the service logs for this request.",
    ),
    Clause.EVENT_STREAM: Wording(
        "B7",
        "the answer is an event stream in UTF-8",
        "one Content-Type: text/event-stream, charset absent or utf-8, no Content-Encoding",
        "Set the header so, and switch off compression for this route, in the proxy too.",
    ),
    Clause.RUN_LOCATION: Wording(
        "E1",
        "the response's head names the run, and the stream agrees",
        "Content-Location: /threads/{thread_id}/runs/{run_id} of the thread, and the same run_id in the metadata event",
        "Send the header before the first event: the gateway finds a run by it whose stream breaks.",
    ),
    Clause.FRAMES: Wording(
        "B7",
        "each frame is JSON that can be read in one way",
        'UTF-8; one object with a text "type" and the fields of that event; no key twice',
        "Write frames with a JSON encoder, one `data:` line and a blank line each.",
    ),
    Clause.ORDER: Wording(
        "B7",
        "events come in an order that can be believed",
        "RUN_STARTED first and once; text only between the start and the end of its message",
        "Send RUN_STARTED before anything else, and open each message before its text.",
    ),
    Clause.RUN_IDS: Wording(
        "B7",
        "RUN_STARTED and RUN_FINISHED carry the ids that were sent",
        "threadId and runId of the request, as they are",
        "Copy both from the request. The service's own id of the run belongs into native_run.",
    ),
    Clause.ITEM_IDS: Wording(
        "D4",
        "the id of a message or a tool call is used once",
        "a new id for each message and each tool call of a run",
        "Give each message that you start an id of its own, also when the model goes on after a tool.",
    ),
    Clause.CHUNKS: Wording(
        "B13",
        "chunk events can be expanded",
        "an id on the first chunk of an item, a name on that of a tool call",
        "Send messageId, or toolCallId and toolCallName, with the first chunk; or use START, CONTENT and END.",
    ),
    Clause.BOUNDS: Wording(
        "B10",
        "the stream stays within the bounds",
        "frames, bytes, events, text, items, silence and time within the GATEWAY_MAX_… and GATEWAY_STREAM_… settings (docs/settings.md)",
        "Send less (no raw events, no snapshots that grow), and say something at least every two minutes; or raise the setting.",
    ),
    Clause.NATIVE_RUN: Wording(
        "B7",
        "CUSTOM native_run tells the service's own id of the run",
        '{"type": "CUSTOM", "name": "native_run", "value": {"run_id": "…"}}, 1 to 200 visible ASCII characters, one id',
        "Send it right after RUN_STARTED: without it the gateway cannot look a broken run up, and each one waits for an operator.",
    ),
    Clause.NATIVE_DIFFERS: Wording(
        "B8",
        "the native run id is not the runId that was sent",
        "an id that the service made up",
        "Make up an id of your own for each run: ours is only for correlation.",
    ),
    Clause.NATIVE_SOON: Wording(
        "B7",
        "native_run comes before anything visible",
        "native_run right after RUN_STARTED",
        "Send it as the second event: what breaks before it can be settled by an operator only.",
        advice=True,
    ),
    Clause.TERMINAL: Wording(
        "B9",
        "the stream says how the run ended",
        "RUN_FINISHED or RUN_ERROR as a whole frame before the body ends",
        "Send a terminal event for every run, RUN_ERROR when the agent fails, with the blank line that ends a frame.",
    ),
    Clause.SUCCESS: Wording(
        "B9",
        "the run succeeds",
        'RUN_FINISHED with outcome absent, null or {"type": "success"}, and no on_interrupt before it',
        "See what the agent logs for this message, or try another with --text. An agent that asks people needs the native profile.",
    ),
    Clause.TEXT: Wording(
        "B7",
        "the answer has text that people see",
        "TEXT_MESSAGE_… events of the role assistant",
        "Nothing is wrong if your agent has nothing to say; otherwise see which role the messages have.",
        advice=True,
    ),
    Clause.TIDY: Wording(
        "B13",
        "nothing is left open, comes twice or refers to nothing",
        "each item ended once before RUN_FINISHED, nothing after it",
        "The gateway copes with it, other AG-UI clients refuse it: end items before the run, and send nothing after its end.",
        advice=True,
    ),
    Clause.BODY_END: Wording(
        "B9",
        "the body ends in order soon after the terminal event",
        "the last chunk within seconds",
        "Close the response after the terminal event. A body that is cut there looks to a proxy like a broken service.",
        advice=True,
    ),
    Clause.RAW_OFF: Wording(
        "B10",
        "no RAW events are sent",
        "only events of the protocol",
        "Switch them off: they are skipped here, and make a stream ten times as large, towards its bounds.",
        advice=True,
    ),
    Clause.LOOKUP_DURING: Wording(
        "B6",
        "a run can be looked up as soon as its id is known",
        "status 200, both ids of the address, and pending or running until the run is over",
        "Store the run before native_run is sent, and tell its state as it is at that moment.",
    ),
    Clause.LOOKUP_AFTER: Wording(
        "B6",
        "the look-up agrees with the end of the stream",
        'status 200, both ids of the address, and "success" after RUN_FINISHED, "error" after RUN_ERROR',
        "Store the state before the terminal event is sent: the gateway settles broken runs by this answer.",
    ),
    Clause.VERDICT: Wording(
        "E4",
        "run and state agree on what became of the run",
        "success or interrupted, and a state that this run wrote: a question is pending, or nothing is left to do",
        "See what the agent logs for this message. metadata.run_id of the state must name the run, also while a question is pending.",
    ),
    Clause.ANSWER_VERIFIED: Wording(
        "D4",
        "the state has what was streamed, message for message",
        "the body read to its own end, and each streamed message in values.messages with the same id and text, and no other",
        "Send stream_mode messages-tuple whole, keep ids of messages from stream to state, and end the body in order.",
    ),
    Clause.PROMPT: Wording(
        "E3",
        "the agent asks one question, of the form that people can answer here",
        "exactly one interrupt, version 1 of agentifui.acceptance.confirmation (docs/approval-schemas.md)",
        "Call interrupt() with a value of that form, once at a time.",
    ),
    Clause.RUN_LISTED: Wording(
        "E1",
        "the run is found in the list of the thread's runs",
        "GET /threads/{thread_id}/runs: an array that holds the run, with its metadata or as the only run without",
        "List the runs of the thread, and give each back the metadata that it came with.",
    ),
    Clause.LOOKUP_UNKNOWN: Wording(
        "B6",
        "a run that does not exist is not found",
        "404",
        "Look runs up by thread and run id, and answer 404 where there is none: never another run's state.",
    ),
    Clause.LOOKUP_OTHER_THREAD: Wording(
        "B6",
        "a run is not found under another thread",
        "404",
        "Look runs up by thread and run id together.",
    ),
    Clause.LOOKUP_NEEDS_TOKEN: Wording("B1", "a run look-up is refused without a token", _REFUSE_TOKEN, _CHECK_TOKEN),
    Clause.DECISION_TAKEN: Wording(
        "E2",
        "a decision is taken",
        'status 200 and an event stream for "command": {"resume": {the interrupt\'s id: {"action": "reject"}}}',
        "Take the map form of resume on the thread whose question is pending.",
    ),
    Clause.DECISION_APPLIED: Wording(
        "E7",
        "after a decision its question is no longer pending",
        "a state written by the new run, without the question that was answered",
        "A decision that is taken must reach interrupt(): the gateway never sends it again.",
    ),
    Clause.NEXT_MESSAGE: Wording(
        "B4",
        "a thread takes another message once its run is over",
        "status 200 and RUN_FINISHED again",
        "Free the thread before the terminal event is sent: the user's next message may come at once.",
    ),
    Clause.NATIVE_FRESH: Wording(
        "B8",
        "each run has a native run id of its own",
        "another id than those of the runs before",
        "Make up a new id for each run, not for each thread.",
    ),
    Clause.TWO_AT_ONCE: Wording(
        "C7",
        "of two messages at once on a thread, one waits or is refused",
        "409 for one of them, or one after the other",
        "Not asked for: the gateway sends one at a time. It protects a thread from whatever else may call the service.",
        advice=True,
    ),
    Clause.NO_REDIRECT: Wording(
        "B1",
        "no call is answered by a redirect",
        "an answer at the address itself",
        "Redirects are never followed: give the final base URL, and make no slash at the end a redirect.",
    ),
    Clause.REPLIES: Wording(
        "B10",
        "small replies are small, whole and not compressed",
        f"at most {MAX_REPLY_BODY_BYTES // 1024} KiB within 10 seconds, with no Content-Encoding",
        "Switch off compression, and answer ids and states only.",
    ),
    Clause.TOKEN_HIDDEN: Wording(
        "A4",
        "the service token is not in the stream",
        "events without the token",
        "Whatever the agent can read it can say: keep the token out of prompts, tools and errors.",
    ),
}

_BRIDGE_ONLY: Final = frozenset(
    {
        Clause.NO_MESSAGE_REFUSED,
        Clause.ORDER,
        Clause.RUN_IDS,
        Clause.ITEM_IDS,
        Clause.CHUNKS,
        Clause.NATIVE_RUN,
        Clause.NATIVE_DIFFERS,
        Clause.NATIVE_SOON,
        Clause.TERMINAL,
        Clause.SUCCESS,
        Clause.TEXT,
        Clause.TIDY,
        Clause.BODY_END,
        Clause.RAW_OFF,
        Clause.LOOKUP_AFTER,
        Clause.NEXT_MESSAGE,
        Clause.TWO_AT_ONCE,
    }
)
_NATIVE_ONLY: Final = frozenset(
    {
        Clause.CAPABLE,
        Clause.STATE,
        Clause.STATE_UNKNOWN,
        Clause.STATE_NEEDS_TOKEN,
        Clause.RUN_LOCATION,
        Clause.VERDICT,
        Clause.ANSWER_VERIFIED,
        Clause.PROMPT,
        Clause.RUN_LISTED,
        Clause.DECISION_TAKEN,
        Clause.DECISION_APPLIED,
    }
)
BRIDGE: Final = tuple(clause for clause in Clause if clause not in _NATIVE_ONLY)
NATIVE: Final = tuple(clause for clause in Clause if clause not in _BRIDGE_ONLY)
