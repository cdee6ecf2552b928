"""`gateway probe --human-input` against the real servers: each keeps the contract; what one is advised of is known."""

import pytest

from gateway.domain.limits import StreamBounds
from gateway.http_client import HttpClient
from gateway.probe.clauses import Clause
from gateway.probe.findings import Result
from gateway.probe.native import probe_native
from gateway.probe.watched import Target
from gateway.upstream.endpoint import Endpoint, endpoint_of
from tests.support.native_servers import ASSISTANT, NativeServer

ADVISED = {"aegra-api": [Clause.UNKNOWN_THREAD_REFUSED]}
"""It makes up a thread that it does not know, and runs the message there."""


@pytest.mark.anyio
async def test_a_real_server_keeps_the_native_contract(native_server: NativeServer) -> None:
    endpoint = endpoint_of(base_url=native_server.base_url, assistant_id=ASSISTANT, token=native_server.token)
    assert isinstance(endpoint, Endpoint)
    async with HttpClient(connect_seconds=5, trusted_hosts=["127.0.0.1"]) as client:
        report = await probe_native(Target(client, endpoint, StreamBounds(), "ask"), once=False, tell=lambda _: None)
    assert report.first_broken is None
    assert [finding.clause for finding in report.of(Result.ADVICE)] == ADVISED.get(native_server.name, [])
