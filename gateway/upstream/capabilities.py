"""GET /capabilities: does this service, with this token, serve the configured assistant? And the short memory of a yes (contract B2).

A yes is kept up to 60 s per configuration and token version; a no never. What upstream advertises beyond `Capabilities` is ignored.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.domain.confirmation import Action
from gateway.domain.ids import ApplicationId
from gateway.domain.limits import MAX_REPLY_BODY_BYTES
from gateway.domain.strict_json import Json
from gateway.http_client import HttpClient
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.faults import UpstreamFailed, UpstreamFault, json_object_of

NOT_CAPABLE: Final = "not_capable_of_approval"
"""The assistant is there, and cannot do what human approval needs: a word for logs and operators."""
CACHE_SECONDS: Final = 60.0
"""design.md "From request to POST" 3."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the assistant says it can do. The ordinary profile needs none of it; the native profile needs all (contract E1)."""

    assistant_id: str
    native_interrupt: bool = False
    native_resume: bool = False
    one_task_per_thread: bool = False
    actions: frozenset[str] = frozenset()

    @property
    def serves_approval(self) -> bool:
        """What the native profile needs of an assistant (contract E1)."""
        able = self.native_interrupt and self.native_resume and self.one_task_per_thread
        return able and {action.value for action in Action} <= self.actions


class CapabilitiesKey(NamedTuple):
    """What a remembered yes belongs to. Token versions count per application, so the application is part of it."""

    application_id: ApplicationId
    fingerprint: bytes
    """Of endpoint, assistant and profile."""
    token_version: int


async def fetch_capabilities(client: HttpClient, endpoint: Endpoint, *, deadline_seconds: float) -> Capabilities | UpstreamFailed:
    """Ask once. A failure here is before dispatch: the run is released and the charge returned."""
    reply = await client.get_json(
        endpoint.url("/capabilities"),
        headers={"Authorization": endpoint.authorization},
        deadline_seconds=deadline_seconds,
        max_bytes=MAX_REPLY_BODY_BYTES,
    )
    told = json_object_of(reply, expected=frozenset({200}))
    if isinstance(told, UpstreamFailed):
        return told
    named = _assistant(told, endpoint.assistant_id)
    if named is None:
        return UpstreamFailed(UpstreamFault.OTHER_ASSISTANT, status=200)
    return _capabilities(endpoint.assistant_id, {**told, **named})


def _assistant(told: dict[str, Json], assistant_id: str) -> dict[str, Json] | None:
    """What upstream says of the assistant: our own shape, or its entry in a list under `assistants` (interface.md)."""
    if told.get("assistant_id") == assistant_id:
        return told
    listed = told.get("assistants")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and assistant_id in (entry.get("assistant_id"), entry.get("id")):
            return entry
    return None


def _capabilities(assistant_id: str, told: dict[str, Json]) -> Capabilities:
    actions = told.get("actions")
    return Capabilities(
        assistant_id=assistant_id,
        native_interrupt=told.get("native_interrupt") is True,
        native_resume=told.get("native_resume") is True,
        one_task_per_thread=told.get("one_task_per_thread") is True,
        actions=frozenset(action for action in actions if isinstance(action, str)) if isinstance(actions, list) else frozenset(),
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    capabilities: Capabilities
    asked_at: float


class CapabilitiesCache:
    """Remembers a yes for CACHE_SECONDS from when it was asked for; callers at the same moment share one question.

    `now` is a monotonic clock in seconds. Owns no task: whoever asks first asks for all, and hands the question on if it is cancelled.
    """

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: dict[CapabilitiesKey, _Kept] = {}
        self._asking: dict[CapabilitiesKey, asyncio.Future[Capabilities | UpstreamFailed | None]] = {}

    async def get(self, key: CapabilitiesKey, ask: Callable[[], Awaitable[Capabilities | UpstreamFailed]]) -> Capabilities | UpstreamFailed:
        """The remembered yes of `key`, else the answer of `ask()`; a failure is told to those who wait for it and then forgotten."""
        while True:
            kept = self._kept.get(key)
            if kept is not None and self._now() - kept.asked_at < CACHE_SECONDS:
                return kept.capabilities
            asking = self._asking.get(key)
            if asking is None:
                return await self._ask(key, ask)
            answer = await asyncio.shield(asking)
            if answer is not None:
                return answer

    def drop(self, key: CapabilitiesKey) -> None:
        """Forget `key`: after any 4xx or 5xx of its upstream, and when its configuration changes. An answer under way is not kept."""
        self._kept.pop(key, None)
        self._asking.pop(key, None)

    async def _ask(
        self, key: CapabilitiesKey, ask: Callable[[], Awaitable[Capabilities | UpstreamFailed]]
    ) -> Capabilities | UpstreamFailed:
        asked_at = self._now()
        told: asyncio.Future[Capabilities | UpstreamFailed | None] = asyncio.get_running_loop().create_future()
        self._asking[key] = told
        answer: Capabilities | UpstreamFailed | None = None
        try:
            answer = await ask()
            return answer
        finally:
            # None: this caller gave up, one of the others asks.
            told.set_result(answer)
            if self._asking.get(key) is told:
                del self._asking[key]
                if isinstance(answer, Capabilities):
                    self._keep(key, answer, asked_at)

    def _keep(self, key: CapabilitiesKey, capabilities: Capabilities, asked_at: float) -> None:
        # Versions only rise, so entries of old ones would stay for ever.
        self._kept = {other: kept for other, kept in self._kept.items() if asked_at - kept.asked_at < CACHE_SECONDS}
        self._kept[key] = _Kept(capabilities, asked_at)
