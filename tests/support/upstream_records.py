"""What a scripted upstream remembers of what reached it: requests, posts, runs, counts. Not here: sockets, scripts, signals."""

import base64
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from tests.support.upstream_script import Script


@dataclass(frozen=True)
class Request:
    """One request that was read whole, whatever it was answered. Header names are lower case, in order of arrival."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        """The first header of that name, or None."""
        return next((value for key, value in self.headers if key == name.lower()), None)


@dataclass
class Post:
    """One POST /ag-ui: what arrived, and how far its answer came. Numbers count from 1."""

    number: int
    request: Request
    thread_id: str = ""
    run_id: str = ""
    message_id: str = ""
    text: str = ""
    execution: int | None = None
    native_run_id: str | None = None
    http_status: int | None = None  # None: no answer was begun
    frames_written: int = 0
    bytes_written: int = 0
    client_gone: bool = False
    ended: bool = False

    @property
    def body(self) -> bytes:
        """The body as received."""
        return self.request.body

    def shown(self) -> dict[str, object]:
        """As JSON; a body that is no UTF-8 comes as base64."""
        told = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "request"}
        try:
            body = self.body.decode()
        except UnicodeDecodeError:
            body = base64.b64encode(self.body).decode("ascii")
        return {**told, "headers": [list(pair) for pair in self.request.headers], "body": body}


@dataclass
class Run:
    """One execution, as a look-up tells it."""

    native_run_id: str
    run_id: str
    thread_id: str
    run_status: str = "running"


@dataclass(frozen=True)
class Counts:
    """What reached the server since it started or was reset. Mappings have only keys that occurred."""

    connections: int
    capabilities: int
    threads: int
    ag_ui: int
    lookups: int
    executions: int
    overlapping_executions: int  # executions that began while another one of the same thread was going
    ag_ui_by_run_id: Mapping[str, int]
    ag_ui_by_thread_id: Mapping[str, int]
    ag_ui_by_text: Mapping[str, int]
    ag_ui_by_message_id: Mapping[str, int]
    executions_by_run_id: Mapping[str, int]
    executions_by_thread_id: Mapping[str, int]
    executions_by_text: Mapping[str, int]
    executions_by_message_id: Mapping[str, int]
    lookups_by_native_run_id: Mapping[str, int]


@dataclass
class Records:
    """Everything that POST /_reset forgets."""

    script: Script = field(default_factory=Script)
    taken: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    connections_of_script: int = 0
    requests: list[Request] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    threads: set[str] = field(default_factory=set)
    endpoint_calls: Counter[str] = field(default_factory=Counter)
    lookups: Counter[str] = field(default_factory=Counter)
    executions: int = 0
    overlapping: int = 0

    def counts(self) -> Counts:
        """A picture of now."""
        executed = [post for post in self.posts if post.execution is not None]
        return Counts(
            connections=self.connections,
            capabilities=self.endpoint_calls["capabilities"],
            threads=self.endpoint_calls["threads"],
            ag_ui=len(self.posts),
            lookups=self.endpoint_calls["lookup"],
            executions=self.executions,
            overlapping_executions=self.overlapping,
            ag_ui_by_run_id=dict(Counter(post.run_id for post in self.posts)),
            ag_ui_by_thread_id=dict(Counter(post.thread_id for post in self.posts)),
            ag_ui_by_text=dict(Counter(post.text for post in self.posts)),
            ag_ui_by_message_id=dict(Counter(post.message_id for post in self.posts)),
            executions_by_run_id=dict(Counter(post.run_id for post in executed)),
            executions_by_thread_id=dict(Counter(post.thread_id for post in executed)),
            executions_by_text=dict(Counter(post.text for post in executed)),
            executions_by_message_id=dict(Counter(post.message_id for post in executed)),
            lookups_by_native_run_id=dict(self.lookups),
        )

    def busy(self, thread_id: str) -> bool:
        """Whether an execution of this thread goes on."""
        active = {post.native_run_id for post in self.posts if not post.ended}
        return any(run.thread_id == thread_id and run.native_run_id in active for run in self.runs.values())


def read_input(body: bytes) -> tuple[str, str, str, str]:
    """Thread id, run id, id and text of the last message of a RunAgentInput; empty strings for what is not there."""
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = {}
    sent = sent if isinstance(sent, dict) else {}
    messages = sent.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages and isinstance(messages[-1], dict) else {}
    found = (sent.get("threadId"), sent.get("runId"), last.get("id"), last.get("content"))
    thread_id, run_id, message_id, text = (value if isinstance(value, str) else "" for value in found)
    return thread_id, run_id, message_id, text
