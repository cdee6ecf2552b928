"""The JSON of GET /threads/{thread}/state as what we read of it (wire-contract.md 5.3). Pure; texts of errors are passed over unread.

Interrupts are counted, not tasks: a task that failed has none, and real servers list an interrupt both in its task and at the top.
"""

from collections.abc import Iterator

from gateway.domain.confirmation import parse_prompt
from gateway.domain.ids import is_opaque_id
from gateway.domain.native import AssistantMessage, PendingInterrupt, ThreadState
from gateway.domain.strict_json import Json
from gateway.domain.text import clean

ASSISTANT_TYPES = frozenset({"ai", "AIMessageChunk"})
"""What LangChain calls messages of the assistant's: whole ones, and the pieces of a streamed one."""


def parse_state(told: dict[str, Json]) -> ThreadState | None:
    """What the state says; None when it is not of the known form: then it proves nothing."""
    values, tasks, following, listed = told.get("values"), told.get("tasks"), told.get("next"), told.get("interrupts", [])
    if not (isinstance(tasks, list) and isinstance(following, list) and isinstance(listed, list) and isinstance(values, dict | None)):
        return None
    messages = (values or {}).get("messages", [])
    metadata = told.get("metadata")
    run_id = metadata.get("run_id") if isinstance(metadata, dict) else None
    return ThreadState(
        run_id=run_id if isinstance(run_id, str) else None,
        interrupts=_pending([*_of_tasks(tasks), *listed]),
        more_to_do=bool(following),
        messages=tuple(_messages(messages)) if isinstance(messages, list) else (),
    )


def _pending(interrupts: list[Json]) -> tuple[PendingInterrupt, ...]:
    """Each interrupt once. One without a usable id, or that is told in two ways, is one that nobody can answer."""
    pending: dict[str, Json] = {}
    odd = 0
    for interrupt in interrupts:
        native_id, value = (interrupt.get("id"), interrupt.get("value")) if isinstance(interrupt, dict) else (None, None)
        told_before = isinstance(native_id, str) and native_id in pending
        if not isinstance(native_id, str) or not is_opaque_id(native_id) or (told_before and pending[native_id] != value):
            odd += 1
        else:
            pending[native_id] = value
    return (*(PendingInterrupt(known, parse_prompt(value)) for known, value in pending.items()), *([PendingInterrupt(None, None)] * odd))


def text_of(content: Json) -> str:
    """The text of a message's content: a string, or parts of which those of type text count. Cleaned of what cannot be stored."""
    if isinstance(content, list):
        return clean("".join(map(_text_of_part, content)))
    return clean(content) if isinstance(content, str) else ""


def _text_of_part(part: Json) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
    return text if isinstance(text, str) else ""


def _of_tasks(tasks: list[Json]) -> Iterator[Json]:
    for task in tasks:
        interrupts = task.get("interrupts") if isinstance(task, dict) else None
        if isinstance(interrupts, list):
            yield from interrupts


def _messages(messages: list[Json]) -> Iterator[AssistantMessage]:
    for message in messages:
        if isinstance(message, dict) and message.get("type") in ASSISTANT_TYPES:
            native_id = message.get("id")
            yield AssistantMessage(native_id if isinstance(native_id, str) else None, text_of(message.get("content")))
