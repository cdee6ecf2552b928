"""What every profile's probe asks with: the small calls and the messages of one service, and where findings go."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from gateway.domain.evidence import LookupStatus
from gateway.domain.ids import NativeRunId, ThreadId
from gateway.domain.limits import MAX_REPLY_BODY_BYTES
from gateway.http_client import CallFault, Reply
from gateway.probe.clauses import Clause
from gateway.probe.findings import Ledger
from gateway.probe.watched import Body, Target, Watched, watch
from gateway.probe.words import REPLY_FAULTS, of_failed
from gateway.upstream.endpoint import Endpoint, endpoint_of
from gateway.upstream.faults import UpstreamFailed, UpstreamFault
from gateway.upstream.lookup import fetch_run_status

_TOKEN_REFUSED: Final = frozenset({401, 403})
_LOOKUP_PAUSE_SECONDS: Final = 0.2


class Asking:
    """One probe on its way: whom it asks, what it found so far. `reply_bytes` bounds a run look-up, which echoes much in one profile."""

    def __init__(self, target: Target, ledger: Ledger, *, reply_bytes: int = MAX_REPLY_BODY_BYTES) -> None:
        self.target = target
        self.ledger = ledger
        self._reply_bytes = reply_bytes

    def told(self, clause: Clause, call: str, answer: object) -> None:
        """The finding of a small call that had to bring something: UpstreamFailed says that it did not, and may break another clause."""
        if not isinstance(answer, UpstreamFailed):
            self.ledger.ok(clause)
        elif answer.fault is UpstreamFault.REDIRECT:
            self.ledger.broken(Clause.NO_REDIRECT, of_failed(call, answer))
        elif answer.call in REPLY_FAULTS:
            self.ledger.broken(Clause.REPLIES, of_failed(call, answer))
        else:
            self.ledger.broken(clause, of_failed(call, answer))

    async def get_refused(self, clause: Clause, path: str, *, wrong_token: bool = False) -> None:
        """GET without a token, or with a wrong one: it has to be refused."""
        headers = {"Authorization": self.stranger().authorization} if wrong_token else {}
        url, seconds = self.target.endpoint.url(path), self.target.call_seconds
        reply = await self.target.client.get_json(url, headers=headers, deadline_seconds=seconds, max_bytes=MAX_REPLY_BODY_BYTES)
        self._refused(clause, f"GET {path}", reply)

    async def post_refused(self, clause: Clause, path: str, body: bytes) -> None:
        """POST without a token: it has to be refused. For calls that run nothing."""
        url, seconds = self.target.endpoint.url(path), self.target.call_seconds
        reply = await self.target.client.post_json(url, body=body, deadline_seconds=seconds, max_bytes=MAX_REPLY_BODY_BYTES)
        self._refused(clause, f"POST {path}", reply)

    async def look_up(self, thread_id: ThreadId, native_run_id: NativeRunId) -> LookupStatus | UpstreamFailed:
        """One run look-up."""
        client, endpoint, seconds = self.target.client, self.target.endpoint, self.target.call_seconds
        max_bytes = self._reply_bytes
        return await fetch_run_status(client, endpoint, thread_id, native_run_id, deadline_seconds=seconds, max_bytes=max_bytes)

    async def look_up_settled(self, thread_id: ThreadId, native_run_id: NativeRunId) -> tuple[LookupStatus | UpstreamFailed, int]:
        """Look-ups until the run is not active any more, or `settle_seconds` are over: the last answer, and how many were asked for it."""
        loop = asyncio.get_running_loop()
        until, asked = loop.time() + self.target.settle_seconds, 1
        while (answer := await self.look_up(thread_id, native_run_id)) is LookupStatus.ACTIVE and loop.time() < until:
            await asyncio.sleep(_LOOKUP_PAUSE_SECONDS)
            asked += 1
        return answer, asked

    def conclude(self) -> None:
        """Everything was asked: what no answer broke is kept."""
        for clause in (Clause.NO_REDIRECT, Clause.REPLIES, Clause.TOKEN_HIDDEN):
            self.ledger.ok(clause)

    async def message(
        self,
        body: Body,
        *,
        endpoint: Endpoint | None = None,
        on_native: Callable[[NativeRunId], None] = lambda _: None,
        to_be_refused: bool = False,
    ) -> Watched:
        """`watched.watch`, with what ran counted."""
        seen = await watch(self.target, body, endpoint=endpoint, on_native=on_native, to_be_refused=to_be_refused)
        self.ledger.agent_runs += seen.executed
        return seen

    def stranger(self) -> Endpoint:
        """The same service with a token that nobody gave out."""
        known = self.target.endpoint
        made = endpoint_of(base_url=known.base_url, assistant_id=known.assistant_id, token=secrets.token_urlsafe(32))
        assert isinstance(made, Endpoint), "only the token is another"
        return made

    def _refused(self, clause: Clause, call: str, reply: Reply | CallFault) -> None:
        if isinstance(reply, CallFault):
            self.ledger.advise(clause, of_failed(call, UpstreamFailed(UpstreamFault.NO_REPLY, call=reply)))
        elif reply.status in _TOKEN_REFUSED:
            self.ledger.ok(clause)
        elif 300 <= reply.status < 400:
            self.ledger.broken(Clause.NO_REDIRECT, f"{call}: status {reply.status}")
        elif reply.status < 300:
            self.ledger.broken(clause, f"{call}: status {reply.status}")
        else:
            self.ledger.advise(clause, f"{call}: status {reply.status}: not let in, and not told why")
