"""What the tests of the pages share: a replica with its pages behind a way in that can break, a scripted agent, one browser, and visits."""

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize, async_playwright, expect

from gateway.bindings.applications import Visibility
from gateway.domain.ids import ApplicationId
from gateway.web.services import Demo, DemoUser
from tests.support.native_upstream import TOKEN, NativeUpstream, native_upstream
from tests.support.require import missing
from tests.support.scripted_upstream import Answer, Frame, Script, event, finished, gate, message, started, tool
from tests.support.stack import Replica, Stack, token
from tests.support.tcp_proxy import TcpProxy

CHROMIUM: Final = "/usr/bin/chromium"
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
COOKIE: Final = "session"
OLGA: Final = "olga"
"""The operator."""
PATIENCE_MS: Final = 20_000
"""For what a page has to show; much, for machines that do other things as well."""
FOLDER: Final = Path(__file__).parent
AXE: Final = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
SHOTS: Final = FOLDER / "screenshots"
"""Where a picture of each state goes; not kept in the repository. GATEWAY_TEST_SHOTS=phone,dark takes them so, too."""
EXTRA_SHOTS: Final = frozenset(filter(None, os.environ.get("GATEWAY_TEST_SHOTS", "").split(",")))
PHONE: Final[ViewportSize] = {"width": 390, "height": 780}
DESKTOP: Final[ViewportSize] = {"width": 1200, "height": 760}


@dataclass
class Complaints:
    """What the pages should not do: console errors, uncaught faults, requests to other hosts, whatever the policy forbids."""

    base_url: str
    found: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.found.append(str(error)))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        # The browser itself reports each answer that is no success; the page has to deal with them, and tests look at that.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.found.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.base_url):
            self.found.append(request.url)


@dataclass
class Opened:
    """A person with an open page."""

    served: "Served"
    context: BrowserContext
    page: Page
    subject: str
    complaints: Complaints

    async def shot(self, name: str) -> None:
        """A picture of how it looks now."""
        SHOTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=SHOTS / f"{name}.png")
        if "phone" in EXTRA_SHOTS and (size := self.page.viewport_size):
            await self.page.set_viewport_size(PHONE)
            await self.page.screenshot(path=SHOTS / f"{name}-phone.png")
            await self.page.set_viewport_size(size)
        if "dark" in EXTRA_SHOTS and not await self.page.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches"):
            await self.page.emulate_media(color_scheme="dark")
            await self.page.screenshot(path=SHOTS / f"{name}-dark.png")
            await self.page.emulate_media(color_scheme="light")

    async def check_access(self) -> None:
        """axe-core finds nothing serious."""
        if not AXE.exists():
            missing("axe-core", "`make clients` (npm) gives it")
        await self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = await self.page.evaluate(
            "async () => (await axe.run()).violations.map(({id, impact, nodes}) => [impact, id, nodes[0].html])"
        )
        assert [one for one in found if one[0] in ("serious", "critical")] == []

    async def sql(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.served.stack.database_url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []


@dataclass
class Console(Opened):
    """An operator at the console."""

    @property
    def title(self) -> Any:
        return self.page.locator("#title")

    async def open(self, place: str = "") -> None:
        """A section by its address, read anew."""
        await self.page.goto("about:blank")
        await self.page.goto(f"{self.served.base_url}/operator{place}")


@dataclass
class Visit(Opened):
    """A person at the chat page, with an application of their own."""

    application: ApplicationId

    @property
    def text(self) -> Any:
        return self.page.get_by_label("Message", exact=True)

    @property
    def shown(self) -> Any:
        return self.page.locator("#transcript > li")

    async def open(self) -> None:
        await self.page.goto(f"{self.served.base_url}/#app/{self.application}")
        await self.ready()

    async def ready(self) -> None:
        await expect(self.page.get_by_role("button", name="Send", exact=True)).to_be_enabled()

    async def send(self, text: str) -> None:
        await self.text.fill(text)
        await self.page.keyboard.press("Enter")

    async def another_tab(self) -> "Visit":
        page = await self.context.new_page()
        self.complaints.watch(page)
        return Visit(self.served, self.context, page, self.subject, self.complaints, self.application)

    async def runs(self) -> list[tuple[Any, ...]]:
        """Execution and persistence of each run of this person, oldest first."""
        query = "select r.execution, r.persistence from run r join account a using (account_id) where a.subject = %s order by r.created_at"
        return await self.sql(query, self.subject)


@dataclass(frozen=True)
class Served:
    """One replica, its agents and one browser for all tests of a module."""

    stack: Stack
    replica: Replica
    way_in: TcpProxy
    native: NativeUpstream
    browser: Browser
    answers: dict[str, list[Answer]]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.way_in.port}"

    def answer(self, text: str, *frames: Frame, **changes: Any) -> None:
        """What the agent does when it is asked `text`."""
        self.answers[text] = [Answer(frames=frames, **changes)]
        self.stack.upstream.use(Script(ag_ui_by_text=self.answers))

    @asynccontextmanager
    async def visit(self, *, name: str | None = None, human_input: bool = False, **context: Any) -> AsyncIterator[Visit]:
        """A person who is signed in through the web app's cookie; at the end the page must have nothing to complain about."""
        subject, name = f"ada-{uuid4().hex[:6]}", name or f"Travel desk {uuid4().hex[:4]}"
        audience: dict[str, Any] = {
            "description": "Weather, times and trips of any city.",
            "visibility": Visibility.PRIVATE,
            "users": (subject,),
        }
        agent = (self.native.base_url, TOKEN) if human_input else (self.stack.upstream.base_url, self.stack.upstream.token)
        application = await self.stack.application_of(*agent, human_input=human_input, name=name, **audience)
        async with self._page(token(subject), **context) as (opened, page, complaints):
            yield Visit(self, opened, page, subject, complaints, application)

    @asynccontextmanager
    async def console(self, subject: str = OLGA, *, roles: tuple[str, ...] = ("operator",), **context: Any) -> AsyncIterator[Console]:
        """An operator who is signed in, as `visit`; nothing is open yet."""
        async with self._page(token(subject, roles=roles), **context) as (opened, page, complaints):
            yield Console(self, opened, page, subject, complaints)

    @asynccontextmanager
    async def _page(self, session: str, **context: Any) -> AsyncIterator[tuple[BrowserContext, Page, Complaints]]:
        opened = await self.browser.new_context(**({"viewport": DESKTOP, "color_scheme": "light"} | context))
        await opened.add_cookies([{"name": COOKIE, "value": session, "url": self.base_url}])
        complaints = Complaints(self.base_url)
        page = await opened.new_page()
        complaints.watch(page)
        yield opened, page, complaints
        await opened.close()
        assert complaints.found == []


@asynccontextmanager
async def served_over(database_url: str, deny_file: Path, *, slots: int = 20) -> AsyncIterator[Served]:
    """The stack over a migrated database. `deny_file` is written: nobody may say `contraband`. `slots`: of each application."""
    if not Path(CHROMIUM).exists():
        missing("chromium", f"there is no {CHROMIUM}")
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    deny_file.write_text("contraband\n", encoding="utf-8")
    async with (
        native_upstream() as native,
        Stack.over(database_url) as stack,
        TcpProxy("127.0.0.1", listener.getsockname()[1]) as way_in,
        async_playwright() as playwright,
    ):
        settings = stack.settings(
            GATEWAY_PAGES="on",
            GATEWAY_MODERATION="local",
            GATEWAY_MODERATION_DENY_FILE=str(deny_file),
            GATEWAY_SESSION_COOKIE=COOKIE,
            GATEWAY_ALLOWED_ORIGINS=f"http://127.0.0.1:{way_in.port}",
            GATEWAY_RECONCILE_SECONDS="0.3",
            GATEWAY_LOOKUP_FIRST_SECONDS="0.2",
            AGENT_MAX_ACTIVE_PER_APP=str(slots),
        )
        users = (DemoUser("ada", "sees both applications"), DemoUser("ben", "sees the public application only"), DemoUser(OLGA, "operator"))
        replica = await stack.replica(settings, listener, demo=Demo(users=users, token_for=_token_for))
        expect.set_options(timeout=PATIENCE_MS)
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Served(stack, replica, way_in, native, browser, {})
        await browser.close()


def _token_for(subject: str) -> str:
    return token(subject, roles=("operator",) if subject == OLGA else ())


def beginning(*deltas: str, native: bool = True) -> list[Frame]:
    """A run that begins to answer, and has not ended its message. `native`: it says the service's own id of the run."""
    pieces = [event("TEXT_MESSAGE_CONTENT", messageId="m1", delta=delta) for delta in deltas]
    return [*(started() if native else started()[:1]), event("TEXT_MESSAGE_START", messageId="m1", role="assistant"), *pieces]


def in_three_parts(*, stop: str) -> list[Frame]:
    """Text, a tool step, text; between the step's beginning and its end there is a gate of the name `stop`."""
    step = tool("t1", "get_weather", parent="m1")
    return [
        *started(),
        *message("m1", "Let me look ", "that up."),
        *step[:-1],
        gate(stop),
        step[-1],
        *message("m2", "It is 13 °C."),
        finished(),
    ]


def body_of(request: Request) -> Any:
    return json.loads(request.post_data or "null")
