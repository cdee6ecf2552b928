"""From an AG-UI client's RunAgentInput to a Submission: the last user message is the text, and what we do not offer is refused (B12).

Such clients send the whole conversation again with each message. Ours is the history that counts: what comes before is not read.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from gateway.admission.validation import checked_answer, checked_text
from gateway.domain.confirmation import Action, Answer
from gateway.domain.ids import OPAQUE_ID, ClientThread, InterruptId, SubmissionId
from gateway.domain.limits import MAX_CLIENT_THREAD_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.submission import Submission
from gateway.domain.text import is_storable
from gateway.json_shapes import AnyText, Body, Id, body_of

_EMPTY: Final[tuple[object, ...]] = (None, {}, [], "")
_AS_AG_UI: Final = ConfigDict(extra="ignore", alias_generator=AliasGenerator(alias=to_camel))
"""The protocol's names; and later versions of it may say more, as they may in streams (B13)."""


class AgUiMessageBody(BaseModel):
    """A message of the protocol. `content`: a text, or a list of one text part."""

    model_config = _AS_AG_UI

    role: str
    content: object = None


class RunAgentInputBody(Body):
    """AG-UI's RunAgentInput. `threadId`: your name for the conversation. `runId`: the submission id, visible ASCII characters. The last
    message is the user's, and is the text; those before it are not read. `state`, `tools`, `context` and `forwardedProps` must be empty.
    `resume`: one entry, of the question that you were asked, with `status` `resolved` and a `payload` of `decision` (`approve` or
    `reject`) and, if you like, `comment`.
    """

    model_config = _AS_AG_UI

    thread_id: Annotated[str, Field(min_length=1, max_length=MAX_CLIENT_THREAD_CHARACTERS)]
    run_id: Annotated[str, Field(pattern=f"^{OPAQUE_ID}$")]
    messages: list[AgUiMessageBody] = Field(default_factory=list)
    state: object = None
    tools: object = None
    context: object = None
    forwarded_props: object = None
    resume: object = None


class _PayloadBody(Body):
    decision: Annotated[Action, Field(strict=False)]
    comment: Annotated[str, AnyText] | None = None


class _ResumeBody(BaseModel):
    model_config = _AS_AG_UI

    interrupt_id: Id
    status: Literal["resolved"]
    payload: _PayloadBody


_RESUME: Final = TypeAdapter(tuple[_ResumeBody])


@dataclass(frozen=True, slots=True)
class NamedAnswer:
    """An answer to a question whose run the client did not name."""

    interrupt_id: InterruptId
    answer: Answer


@dataclass(frozen=True, slots=True)
class RunAgentInput:
    """What an AG-UI client asks for, under the two ids that its stream has to tell it."""

    client_thread: ClientThread
    submission_id: SubmissionId
    submission: Submission | NamedAnswer


def parse_run_agent_input(raw: bytes) -> RunAgentInput:
    """What is in a RunAgentInput. Raises Refused: malformed_request, unsupported_input, text_too_long, invalid_text."""
    body = body_of(raw, RunAgentInputBody)
    if not is_storable(body.thread_id):
        raise Refused(Code.MALFORMED_REQUEST)
    for name, value in (("state", body.state), ("tools", body.tools), ("context", body.context), ("forwardedProps", body.forwarded_props)):
        if value not in _EMPTY:
            raise _unsupported(name)
    client_thread, submission_id = ClientThread(body.thread_id), SubmissionId(body.run_id)
    if body.resume not in (None, []):
        return RunAgentInput(client_thread, submission_id, _named_answer(body.resume))
    text = checked_text(_last_text(body.messages))
    return RunAgentInput(client_thread, submission_id, Submission(submission_id, text, None, client_thread))


def _named_answer(resume: object) -> NamedAnswer:
    try:
        (entry,) = _RESUME.validate_python(resume)
    except ValidationError:
        raise _unsupported("resume") from None
    return NamedAnswer(InterruptId(entry.interrupt_id), checked_answer(entry.payload.decision, entry.payload.comment))


def _last_text(messages: list[AgUiMessageBody]) -> str:
    """The text of the last message. One of somebody else's there would mean to run an old message again, or a tool that is not offered."""
    if not messages:
        raise Refused(Code.INVALID_TEXT)
    last = messages[-1]
    if last.role != "user":
        raise _unsupported("messages")
    match last.content:
        case str():
            return last.content
        case [{"type": "text", "text": str(text)}]:
            return text
        case _:
            raise _unsupported("messages")


def _unsupported(name: str) -> Refused:
    return Refused(Code.UNSUPPORTED_INPUT, extra={"field": name})
