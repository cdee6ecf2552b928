"""What the routes need, as one frozen value: use cases, checks and the few settings that concern HTTP.

`gateway.wiring` fills it; a route reaches nothing that is not here.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from gateway.admission.operator_chains import OperatorChains
from gateway.admission.quota import Usage
from gateway.bindings.administration import Administration
from gateway.bindings.visible import VisibleApplications
from gateway.domain.trace_context import Record
from gateway.identity.accounts import AccessCheck
from gateway.identity.tokens import Identity
from gateway.metrics import Metrics
from gateway.runs.audit_trail import Trail
from gateway.runs.history import History
from gateway.runs.operator_reads import OperatorReads
from gateway.runs.overview import Overview
from gateway.runs.read import Reads
from gateway.runs.refresh import Refresh
from gateway.runs.resolve import OperatorActs
from gateway.runs.streams import Streams
from gateway.runs.submit import Submissions


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this replica may take new work, and each condition by name (database, schema, keys, not draining).

    `warnings`: what somebody should look at, by name, and what does not stop new work.
    """

    ready: bool
    checks: Mapping[str, bool] = field(default_factory=dict)
    warnings: Sequence[str] = ()


async def _nothing() -> bytes:
    return b""


async def _first(check_id: UUID) -> int:
    return 1


class Health(Protocol):
    """The truth about this replica; never raises, and answers within a probe's patience (about a second)."""

    async def readiness(self) -> Readiness: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The settings that concern HTTP. `session_cookie` None: no cookie is read. Origins in lower case, as browsers send them."""

    session_cookie: str | None = None
    allowed_origins: frozenset[str] = frozenset()
    heartbeat_seconds: float = 15.0
    pages: bool = True


@dataclass(frozen=True, slots=True)
class DemoUser:
    """A person that the demo lets a visitor be. `about`: one line for the sign-in form."""

    subject: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The demo's sign-in: its users, and who makes a token for one of them (the local key). Never set by `serve`."""

    users: tuple[DemoUser, ...]
    token_for: Callable[[str], str]
    session_seconds: int = 12 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that routes call. `demo` is set in the demo only, and mounts its two routes.

    `scrape`: what GET /metrics answers. `record`: takes the spans of requests; None where nobody traces.
    `arrived`: counts arrivals of a request of `gateway check --through`.
    """

    identity: Identity
    access: AccessCheck
    submissions: Submissions
    streams: Streams
    reads: Reads
    refresh: Refresh
    history: History
    applications: VisibleApplications
    operator_reads: OperatorReads
    operator_acts: OperatorActs
    trail: Trail
    overview: Overview
    administration: Administration
    chains: OperatorChains
    usage: Usage
    health: Health
    metrics: Metrics = field(default_factory=Metrics)
    scrape: Callable[[], Awaitable[bytes]] = _nothing
    record: Record | None = None
    arrived: Callable[[UUID], Awaitable[int]] = _first
    settings: WebSettings = field(default_factory=WebSettings)
    demo: Demo | None = None
