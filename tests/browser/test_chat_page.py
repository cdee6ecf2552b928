"""The chat page in a real browser: it loads under its policy, signs in, sends, shows the answer arriving, and finds it again.

Runs are played by the test over real admission, streams and history (tests/http/world.py).
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, Route, async_playwright, expect

from gateway.domain.ids import RunId
from gateway.domain.snapshot import MessageItem, Snapshot, ToolItem, ToolStatus, sha256
from gateway.domain.states import Execution, Persistence
from gateway.domain.submission import Submission
from gateway.runs.live import LiveRun
from gateway.sse_parser.projection import Change, MessageEnded, MessageStarted, TextAppended, ToolCalled, ToolReturned, ToolStarted
from tests.http.world import World, demo, open_world
from tests.support.postgres import PostgresForTests
from tests.support.require import missing

pytestmark = pytest.mark.anyio

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
ANSWER = (MessageItem(1, "Before the tool.", True), ToolItem(2, "search", ToolStatus.RETURNED, 1), MessageItem(3, "After <b>it</b>.", True))


@dataclass
class Complaints:
    """What the page should not do: console errors, uncaught faults, requests to other hosts."""

    base_url: str
    found: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.found.append(str(error)))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.base_url):
            self.found.append(request.url)


@dataclass(frozen=True)
class Visit:
    """An open page of a world."""

    world: World
    page: Page
    complaints: Complaints

    async def sign_in(self) -> None:
        await self.page.goto(self.world.base_url)
        await self.page.get_by_role("button", name="ada").click()
        await expect(self.page.get_by_label("Message", exact=True)).to_be_visible()
        await expect(self.page.get_by_role("button", name="Send")).to_be_enabled()

    async def send(self, text: str) -> LiveRun:
        """Send a message; the run that it made."""
        await self.page.get_by_label("Message", exact=True).fill(text)
        await self.page.keyboard.press("Enter")
        await expect(self.page.locator("#notice")).to_contain_text("on its way")
        live = self.world.begun.latest
        assert live is not None
        return live


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    if not Path(CHROMIUM).exists():
        missing("chromium", f"there is no {CHROMIUM}")
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        await opened.close()


@pytest.fixture
async def visit(browser: Browser, postgres: PostgresForTests) -> AsyncIterator[Visit]:
    """A page of the demo, which must have nothing to complain about when the test is over."""
    with postgres.migrated_database() as url:
        async with open_world(url, demo=demo()) as world:
            world.application("Research")
            context = await browser.new_context(viewport={"width": 360, "height": 740})
            page = await context.new_page()
            complaints = Complaints(world.base_url)
            complaints.watch(page)
            yield Visit(world, page, complaints)
            await context.close()
        assert complaints.found == []


def publish(live: LiveRun, *changes: Change) -> None:
    live.channel.publish(live.frames.changes(changes))


async def test_it_loads_signs_in_and_fits_a_small_screen(visit: Visit) -> None:
    await visit.page.goto(visit.world.base_url)
    await expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()
    await expect(visit.page.get_by_role("button", name="grace")).to_be_visible()
    await visit.sign_in()
    await expect(visit.page.locator("#app option")).to_have_text(["Research"])
    assert await visit.page.evaluate("() => document.documentElement.scrollWidth") == 360
    assert "session" not in await visit.page.evaluate("() => document.cookie")


async def test_nothing_can_be_sent_before_the_place_is_open(visit: Visit) -> None:
    """What opens late would wipe the message off the screen and stop watching its run."""
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        await held.wait()
        await route.continue_()

    await visit.page.route("**/agent/conversations*", hold)
    await visit.page.goto(visit.world.base_url)
    await visit.page.get_by_role("button", name="ada").click()
    await visit.page.get_by_label("Message", exact=True).fill("Too early")
    await expect(visit.page.get_by_role("button", name="Send")).to_be_disabled()
    await visit.page.keyboard.press("Enter")
    assert visit.world.begun.latest is None
    held.set()
    await expect(visit.page.get_by_role("button", name="Send")).to_be_enabled()
    await expect(visit.page.get_by_label("Message", exact=True)).to_have_value("Too early")


async def test_an_answer_arrives_survives_a_reload_and_is_found_in_order(visit: Visit) -> None:
    await visit.sign_in()
    live = await visit.send("A question")
    live.moved(Execution.DISPATCHED, datetime.now(UTC))
    live.moved(Execution.RUNNING, datetime.now(UTC))
    publish(live, MessageStarted(1), TextAppended(1, "Before the "))
    await expect(visit.page.locator(".assistant.live .body")).to_have_text("Before the ")
    await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_disabled()

    await visit.page.reload()
    await expect(visit.page.locator(".assistant.live .body")).to_have_text("Before the ")
    publish(live, TextAppended(1, "tool."), MessageEnded(1), ToolStarted(2, "search", 1), ToolCalled(2))
    await expect(visit.page.locator(".tool")).to_contain_text("is at work")
    publish(live, ToolReturned(2), MessageStarted(3), TextAppended(3, "After <b>it</b>."), MessageEnded(3))
    save(visit.world, live)
    live.ended(Execution.SUCCEEDED, Persistence.SAVED, None, None, datetime.now(UTC), datetime.now(UTC))
    visit.world.begun.live_runs.remove(live.view.run_id)

    shown = ["You: A question", "Agent: Before the tool.", "Tool search is done", "Agent: After <b>it</b>."]
    await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    await expect(visit.page.locator("#transcript > li")).to_have_text(shown)
    await visit.page.reload()
    await expect(visit.page.locator("#transcript > li")).to_have_text(shown)
    await expect(visit.page.locator("#notice")).to_be_hidden()


async def test_a_message_is_sent_again_under_its_one_id_when_the_network_fails(visit: Visit) -> None:
    await visit.sign_in()
    bodies: list[str | None] = []

    async def break_the_first(route: Route) -> None:
        bodies.append(route.request.post_data)
        if len(bodies) == 1:
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await visit.page.route("**/agent/runs", break_the_first)
    live = await visit.send("Only once")
    assert len(bodies) == 2
    assert len(set(bodies)) == 1
    assert visit.world.sql("select count(*) from run") == [(1,)]
    assert isinstance(live.admitted.submission, Submission)
    assert live.admitted.submission.text == "Only once"
    (complaint,) = visit.complaints.found
    assert "ERR_CONNECTION_RESET" in complaint
    visit.complaints.found.clear()


async def test_a_stream_that_just_ends_is_watched_again(visit: Visit) -> None:
    await visit.sign_in()
    live = await visit.send("A question")
    publish(live, MessageStarted(1), TextAppended(1, "Before the "))
    await expect(visit.page.locator(".assistant.live .body")).to_have_text("Before the ")
    # The replica stops: its streams end without a terminal frame. Another one saves, and serves from the database.
    visit.world.begun.live_runs.remove(live.view.run_id)
    save(visit.world, live)
    live.detach()
    await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    await expect(visit.page.locator("#transcript > li")).to_have_count(4)
    assert visit.world.sql("select count(*) from run") == [(1,)]


def save(world: World, live: LiveRun) -> None:
    """What saving writes: items from the snapshot, shown here through `pending`."""
    run_id: RunId = live.view.run_id
    body = Snapshot(ANSWER, True).canonical()
    world.sql("insert into snapshot (run_id, revision, complete, body, sha256) values (%s, 1, true, %s, %s)", run_id, body, sha256(body))
    world.sql(
        "insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete, name, status, parent_position)"
        " select r.run_id, e.position, r.conversation_id, r.sequence, gen_random_uuid(), e.type,"
        " case e.type when 'message' then 'assistant' end, e.text, e.complete, e.name, e.status, e.parent"
        " from run r join snapshot s using (run_id) cross join lateral jsonb_to_recordset(convert_from(s.body, 'UTF8')::jsonb -> 'items')"
        " as e (position integer, type text, text text, complete boolean, name text, status text, parent integer) where r.run_id = %s",
        run_id,
    )
    world.sql(
        "update run set execution = 'succeeded', persistence = 'saved', fence_at = now(), user_slot = null, application_slot = null,"
        " finished_at = now() where run_id = %s",
        run_id,
    )
