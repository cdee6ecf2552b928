"""What the description of the API says in words: `/openapi.json` and docs/api.md have it from here. What tables can say is not here."""

from typing import Final

OVERVIEW: Final = """\
JSON unless an event stream is asked for. Our own JSON is snake_case; AG-UI frames are camelCase, as that protocol has it. Ids are
UUIDs, times RFC 3339 in UTC. Every answer carries `X-Request-Id` (yours, if you sent a sane one). Lists come in pages: `next` is an
opaque cursor for the following page of the same list, or null. `HEAD` comes with each `GET` that is no stream; `OPTIONS` tells the
methods, and any other method is refused with 405 `method_not_allowed`. No address answers with permission for other origins (CORS):
browsers call the API from its own origin. What a query holds besides is ignored."""

CALLING: Final = """\
`Authorization: Bearer <JWT>`, or the same token in the session cookie that `GATEWAY_SESSION_COOKIE` names. With the cookie, a request
that changes something needs an `Origin` from `GATEWAY_ALLOWED_ORIGINS`. Claims: `sub`, `groups`, `roles`, `exp` (required); how
to use your identity provider is in [identity.md](identity.md). What you may not see is 404, exactly like what does not exist."""

SUBMITTING: Final = """\
- `submission_id`: made up by the client for this message, 1 to 200 visible ASCII characters. It is what makes a repeated request
  harmless.
- `text`: 1 to 16,000 characters, not only blanks.
- `conversation_id`: leave it away, or null, to begin a conversation.

With `Accept: text/event-stream` the answer is 200 and the run's stream. Otherwise it is 202 and the Run; poll it as
`poll_after_seconds` says.

The same id with the same content again gives the run that exists: 200, and the header `Idempotent-Replayed: true`. With other content
it is 409 `submission_conflict`. So when a connection breaks before you know, send the same request again.

Once a run is admitted, nothing is a problem any more: a message that could not be sent is a Run with `execution: released` and its
reason. To try again, use a new submission id."""

STREAM: Final = """\
`Content-Type: text/event-stream`. AG-UI frames, in this order:

1. `RUN_STARTED`: `threadId` is the conversation's id, `runId` the run's.
2. `CUSTOM`, name `gateway.run`: the Run without its snapshot, at the start and whenever its state changes.
3. `TEXT_MESSAGE_START`, `TEXT_MESSAGE_CONTENT`, `TEXT_MESSAGE_END`; `TOOL_CALL_START`, `TOOL_CALL_END`, and `TOOL_CALL_RESULT` with
   empty content.
4. One of: `RUN_FINISHED`, the answer is over and saved; `RUN_FINISHED` with `outcome: {"type": "interrupt", "interrupts": [...]}`, the run
   waits for a decision (`metadata.interrupt` of the one entry is the [Interrupt](#interrupt)); `RUN_ERROR`, with a reason as `code` and
   a fixed message.

A comment line comes every 15 seconds. A stream may also just end: this replica stops, the reader was too slow, or may no longer read.
The run is not touched by that: `GET` it. When saving is not confirmed 10 seconds after the agent finished, the stream ends with
`save_failed`, and saving goes on. There are no event ids; open `…/events` again and it begins at the beginning."""

REFUSALS: Final = """\
`application/problem+json` with `type`, `title`, `status`, `code`, `detail`, `instance`, `retry`, and `run_id` where a run is in the
way. All codes: [problems.md](problems.md). `retry` says what a client may do:

| `retry` | do this |
| --- | --- |
| `never` | correct the request |
| `later` | try again later |
| `same-submission` | send the same request again, with the same submission id |
| `new-submission` | change the message and give it a new submission id |
| `poll-run` | wait for the run named by `run_id` |
| `operator` | a person has to act |

429 and 503 carry `Retry-After`."""
