"""The gateway behind an open page is killed, and comes back, or another replica takes its place: the page finds its way by itself."""

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from playwright.async_api import Request, expect

from tests.browser.served import COOKIE, Served, Visit, beginning
from tests.support.faulty_replica import QUICK
from tests.support.postgres import PostgresForTests
from tests.support.processes import replica_process
from tests.support.scripted_upstream import Answer, Script, finished, gate
from tests.support.stack import Stack
from tests.support.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_a_killed_server_is_followed_by_the_next(served: Served, postgres: PostgresForTests, replicas: int) -> None:
    """With one, the page waits until it is started again; with two, the other one answers at once. Nothing is sent twice."""
    async with AsyncExitStack() as opened:
        url = opened.enter_context(postgres.migrated_database())
        stack = await opened.enter_async_context(Stack.over(url))
        way_in = await opened.enter_async_context(TcpProxy("127.0.0.1", 0))
        settings = {
            **QUICK,
            "GATEWAY_PAGES": "on",
            "GATEWAY_SESSION_COOKIE": COOKIE,
            "GATEWAY_ALLOWED_ORIGINS": f"http://127.0.0.1:{way_in.port}",
        }
        running = [await opened.enter_async_context(replica_process(url, changes=settings)) for _ in range(replicas)]
        way_in.lead_to(running[0].port)
        hold = Answer(frames=[*beginning("What was seen"), gate("rest"), finished()])
        stack.upstream.use(Script(ag_ui_by_text={"hello": [hold]}, lookup_status={"*": "success"}))
        visit = await opened.enter_async_context(replace(served, stack=stack, way_in=way_in).visit(name="Travel desk"))
        sent: list[str] = []
        visit.page.on("request", lambda request: _note(request, sent))
        await visit.open()
        await visit.send("hello")
        await expect(visit.page.locator(".assistant.live .body")).to_have_text("What was seen")
        await _until_checkpointed(visit)
        running[0].kill()
        await running[0].ended()
        if replicas == 1:
            await expect(visit.page.locator("#notice")).to_contain_text("interrupted")
            await expect(visit.page.locator(".assistant .body")).to_have_text("What was seen")
            running.append(await opened.enter_async_context(replica_process(url, changes=settings)))
        way_in.lead_to(running[1].port)
        # Upstream says that it succeeded, and nobody has its whole answer: told so, and accepted.
        accept = visit.page.get_by_role("button", name="Accept it and go on")
        await expect(accept).to_be_visible()
        await expect(visit.page.locator("#notice")).to_contain_text("incomplete")
        await expect(visit.page.locator("#transcript .body")).to_have_text(["hello", "What was seen"])
        await visit.shot(f"server-back-{replicas}")
        await accept.click()
        await visit.ready()
        await visit.send("and now?")
        await expect(visit.page.locator(".message.user .body")).to_have_text(["hello", "and now?"])
        await visit.ready()
        await visit.page.reload()
        await expect(visit.page.locator(".message.user .body")).to_have_text(["hello", "and now?"])
        await expect(visit.page.locator(".assistant .body").first).to_have_text("What was seen")
        assert await visit.runs() == [("succeeded", "incomplete"), ("succeeded", "saved")]
        assert (len(sent), stack.upstream.counts().executions) == (2, 2)
        stack.upstream.release("rest")


def _note(request: Request, sent: list[str]) -> None:
    if request.method == "POST" and request.url.endswith("/runs"):
        sent.append(request.url)


async def _until_checkpointed(visit: Visit) -> None:
    """What was shown is where another replica finds it."""
    while not await visit.sql("select 1 from snapshot"):
        await visit.page.wait_for_timeout(50)
