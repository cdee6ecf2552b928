"""A commit whose answer is lost, at each commit of a run: the same error before and after it, and never a second POST (design.md)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.scripted_upstream import Answer, Script, gate, good_run
from tests.support.stack import Replica, Stack, parse_events
from tests.support.tcp_proxy import CutAfterAnswer, CutBeforeQuery, Fault, Pass, TcpProxy, WithholdAnswer

pytestmark = pytest.mark.anyio

FAULTS: list[Callable[[bytes], Fault]] = [CutBeforeQuery, CutAfterAnswer]
COMMITS = {
    # a text that only the message of that commit holds
    "admission": b"COMMIT",
    "fence": b"fence_v2",
    "native id": b"start_v1",
    "settle": b"settle_v1",
}


@asynccontextmanager
async def proxied(database_url: str) -> AsyncIterator[tuple[Stack, TcpProxy, Replica]]:
    """A stack whose one replica reaches the database through a proxy; the stack itself reaches it directly."""
    parts = psycopg.conninfo.conninfo_to_dict(database_url)
    async with TcpProxy(str(Path(str(parts["host"])) / ".s.PGSQL.5432")) as proxy, Stack.over(database_url) as stack:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        replica = await stack.replica(stack.settings(DATABASE_URL=url))
        yield stack, proxy, replica


@asynccontextmanager
async def once(proxy: TcpProxy, fault: Fault, then: Callable[[], None]) -> AsyncIterator[None]:
    """`fault` strikes one time; afterwards everything passes, and `then` is called."""
    proxy.fault = fault
    struck = False

    async def heal() -> None:
        nonlocal struck
        await proxy.struck.wait()
        struck = True
        proxy.fault = Pass()
        then()

    healing = asyncio.create_task(heal())
    yield
    healing.cancel()
    assert struck, "the fault never struck: the test tested nothing"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("commit", COMMITS)
async def test_each_commit_of_a_run_may_lose_its_answer(database_url: str, commit: str, fault: Callable[[bytes], Fault]) -> None:
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        ada = replica.client("ada")
        *before, end = good_run()
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*before, gate("end"), end])]))
        if commit == "settle":
            stack.upstream.release("end")
        # The run ends after the fault: the end writes the native id too, and a start that comes later is not written any more.
        async with once(proxy, fault(COMMITS[commit]), then=lambda: stack.upstream.release("end")):
            response, events = await ada.ask(application, "s1", "hello")
        assert response.status_code == 200
        assert events[-1].type == "RUN_FINISHED"
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["persistence"]) == ("succeeded", "saved")
        items = await ada.items(application, run["conversation_id"])
        assert [item["position"] for item in items] == [0, 1, 2, 3]
        assert stack.upstream.counts().ag_ui == 1
        assert await slots(database_url) == 0
        again, _ = await ada.ask(application, "s1", "hello")
        assert again.headers["idempotent-replayed"] == "true"
        assert stack.upstream.counts().ag_ui == 1


async def test_admission_whose_database_stays_away_is_refused_and_runs_nothing(database_url: str) -> None:
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        ada = replica.client("ada")
        assert (await ada.get("/api/internal/me")).status_code == 200
        proxy.fault = CutBeforeQuery(b"admit_v3")
        response = await ada.submit(application, "s1", "hello")
        assert (response.status_code, response.json()["code"]) == (503, "admission_unavailable")
        assert response.json()["retry"] == "same-submission"
        assert "retry-after" in response.headers
        proxy.fault = Pass()
        response, events = await ada.ask(application, "s1", "hello")
        assert events[-1].type == "RUN_FINISHED"
        assert stack.upstream.counts().ag_ui == 1


async def test_a_fence_that_cannot_be_read_back_is_not_sent(database_url: str) -> None:
    """The fence is committed, and its answer withheld until the window is over: nothing is sent, and the run is released."""
    async with proxied(database_url) as (stack, proxy, _):
        application = await stack.application()
        settings = stack.settings(DATABASE_URL=_proxied_url(database_url, proxy), GATEWAY_SEND_WINDOW_SECONDS="0.5")
        ada = (await stack.replica(settings)).client("ada")
        proxy.fault = WithholdAnswer(b"fence_v2")
        async with ada.stream(application, "s1", "hello") as response:
            await proxy.struck.wait()
            proxy.fault = Pass()
            events = parse_events(await response.aread())
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["reason"]) == ("released", "not_sent")
        assert stack.upstream.counts().ag_ui == 0
        assert await slots(database_url) == 0


async def test_a_send_window_that_passed_sends_nothing(database_url: str) -> None:
    """The sender's clock starts before the fence and is read last, with the connection up: a slow sender gives up with proof."""
    ticks = itertools.count(0.0, 4.0)  # each look at the clock is four seconds after the one before; the window is 5 s

    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(clock=lambda: next(ticks))
        ada = replica.client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["reason"]) == ("released", "not_sent")
        assert stack.upstream.counts().ag_ui == 0
        assert await slots(database_url) == 0


async def test_an_outage_while_an_answer_is_settled_loses_nothing(database_url: str) -> None:
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        ada = replica.client("ada")
        proxy.fault = CutBeforeQuery(b"settle_v1")
        submitted = asyncio.create_task(ada.ask(application, "s1", "hello"))
        await proxy.struck.wait()
        refusals_before = proxy.connections
        await _until(lambda: proxy.connections > refusals_before)  # it tries again, and is cut again
        proxy.fault = Pass()
        _, events = await submitted
        assert events[-1].type == "RUN_FINISHED"
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["persistence"]) == ("succeeded", "saved")


def _proxied_url(database_url: str, proxy: TcpProxy) -> str:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable&gssencmode=disable"


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.01)


async def slots(database_url: str) -> int:
    """How many slots are held."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        row = await (await connection.execute("select count(*) from run where user_slot is not null")).fetchone()
    assert row is not None
    return int(row[0])
