"""A resolution whose answer is lost, or whose commit never came: read again, and the same result, once (design.md "A commit whose …")."""

from collections.abc import Callable

import psycopg
import pytest

from tests.faults.test_lost_answers import FAULTS, once, proxied
from tests.support.scripted_upstream import Answer, Script
from tests.support.stack import text_of
from tests.support.tcp_proxy import Fault

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("statement", [b"COMMIT", b"audit_v1"])
async def test_a_resolution_may_lose_its_answer(database_url: str, statement: bytes, fault: Callable[[bytes], Fault]) -> None:
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(http_status=500)]))
        _, events = await replica.client("ada").ask(application, "s1", "hello")
        assert text_of(events) == ""
        run_id = events[0].data["runId"]
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("update run set fence_at = fence_at - interval '1 hour'")
            olga = replica.client("olga", roles=("operator",))
            path, body = f"/api/operator/runs/{run_id}/resolve", {"outcome": "not_executed", "reason": "not in its log"}
            async with once(proxy, fault(statement), then=lambda: None):
                answer = await olga.http.post(path, json=body, headers=olga.headers)
            if statement != b"COMMIT":
                # Inside the transaction nothing was committed: said so, and the same again does it.
                assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
                answer = await olga.http.post(path, json=body, headers=olga.headers)
            assert (answer.status_code, answer.json()["execution"]) == (200, "closed")
            assert connection.execute("select count(*) from audit where act = 'run_resolve'").fetchone() == (1,)
            assert connection.execute("select count(*) from evidence where kind = 'resolved'").fetchone() == (1,)
