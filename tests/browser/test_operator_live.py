"""The operator's console: what needs somebody first, live numbers, and the audit trail with its chain."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from playwright.async_api import expect

from gateway.domain.audit import cli_actor
from gateway.store import admission_gate
from tests.browser.served import PHONE, Console, Served, Visit, beginning, served_over
from tests.support.postgres import PostgresForTests
from tests.support.scripted_upstream import finished, gate
from tests.support.tcp_proxy import BlackHole, Pass

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]

INJECTION = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


async def lose(visit: Visit) -> str:
    """A run that only an operator can settle: nothing is known to look it up by."""
    text = f"lost {uuid4().hex[:6]}"
    visit.served.answer(text, http_status=500)
    await visit.send(text)
    await expect(visit.page.get_by_role("button", name="Refresh status")).to_be_visible()
    [(run_id,)] = await visit.sql(
        "select run_id from run r join account a using (account_id) where a.subject = %s and execution = 'unknown'", visit.subject
    )
    return str(run_id)


async def resolve(olga: Console, run_id: str, reason: str) -> None:
    await olga.sql("update run set fence_at = fence_at - interval '1 hour' where run_id = %s", run_id)
    client = olga.served.replica.client("olga", roles=("operator",))
    answer = await client.http.post(
        f"/api/operator/runs/{run_id}/resolve", json={"outcome": "not_executed", "reason": reason}, headers=client.headers
    )
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def quiet(postgres: PostgresForTests, tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Served]:
    """A gateway of its own, where nothing happened yet; an application has one slot."""
    with postgres.migrated_database() as url:
        async with served_over(url, tmp_path_factory.mktemp("quiet") / "deny.txt", slots=1) as opened:
            yield opened


async def test_it_says_that_nothing_needs_anybody_until_something_does(quiet: Served) -> None:
    async with quiet.visit(name=INJECTION) as visit, quiet.console() as olga:
        await quiet.replica.gateway.heartbeat.beat()
        await visit.open()
        await olga.open()
        await expect(olga.page.get_by_text("Nothing needs you.")).to_be_visible()
        await expect(olga.page.get_by_role("table")).to_have_count(0)
        await olga.shot("console-attention-calm")
        await olga.check_access()
        # An answer that is not saved, a replica with other keys, and an application without a free slot.
        await visit.send("hello")
        await visit.ready()
        await olga.sql(
            "update run set persistence = 'pending', finished_at = now() - interval '2 hours', next_save_at = now() + interval '1 hour'"
        )
        quiet.answer("hold", *beginning("I am "), gate("hold"), finished())
        await visit.page.get_by_role("button", name="New conversation").click()
        await visit.send("hold")
        await expect(visit.page.locator(".assistant")).to_contain_text("I am")
        other = uuid4()
        await olga.sql("insert into replica (replica_id, heartbeat_at, key_ids) values (%s, now() + interval '1 hour', '{other}')", other)
        await olga.open()
        matters = olga.page.get_by_role("list", name="What needs somebody").get_by_role("listitem")
        await expect(matters.first).to_contain_text("Replicas have different keys.")
        saving = matters.filter(has_text="1 answer not saved yet, the oldest for 2 hours.")
        full = matters.filter(has_text=f"All slots of {INJECTION} are held.")
        await expect(full).to_contain_text("People are told to try again shortly.")
        await expect(olga.page.locator("img")).to_have_count(0)
        await olga.shot("console-attention-kinds")
        await olga.check_access()
        # Each leads to where it is seen; by keyboard.
        await saving.get_by_role("link").focus()
        await olga.page.keyboard.press("Enter")
        await expect(olga.title).to_have_text("Runs")
        await expect(olga.title).to_be_focused()
        await expect(olga.page.locator("tbody tr").first).to_contain_text(visit.subject)
        await olga.open("#live")
        row = olga.page.get_by_role("row").filter(has_text=INJECTION)
        await expect(row).to_contain_text("1 of 1")
        meter = row.get_by_role("meter", name=f"Slots of {INJECTION} that are held")
        assert await meter.evaluate("meter => [meter.value, meter.max]") == [1, 1]
        await expect(olga.page.get_by_role("row").filter(has_text=str(other))).to_contain_text("not those of the replica that answers")
        await olga.sql("update replica set heartbeat_at = now() - interval '1 hour' where replica_id = %s", other)
        await expect(olga.page.get_by_role("table", name="Replicas that fell silent")).to_contain_text("1 hour ago")
        await olga.shot("console-live-kinds")
        await olga.check_access()
        quiet.stack.upstream.release("hold")
        await visit.ready()


async def test_numbers_that_nothing_renews_are_called_old(served: Served) -> None:
    async with served.console() as olga:
        await olga.page.clock.install()
        await olga.open("#live")
        await expect(olga.page.get_by_text("As of")).to_be_visible()
        served.way_in.fault = BlackHole()
        try:
            async with olga.page.expect_request("**/api/operator/overview"):
                await olga.page.clock.run_for(5_000)
            await olga.page.clock.run_for(60_000)
            await expect(olga.page.get_by_text("This is old: it was read 1 minute ago.")).to_be_visible()
            await olga.shot("console-live-old")
            await olga.check_access()
        finally:
            served.way_in.fault = Pass()


async def test_what_needs_an_operator_comes_first_with_its_next_step(served: Served) -> None:
    async with served.visit(name=INJECTION) as visit, served.console() as olga:
        await visit.open()
        run_id = await lose(visit)
        await olga.sql("update run set unknown_at = unknown_at - interval '9 days' where run_id = %s", run_id)
        lost = uuid4()
        await olga.sql("insert into replica (replica_id, heartbeat_at, key_ids) values (%s, now() - interval '1 hour', '{other}')", lost)
        await admission_gate.close(served.stack.database, actor=cli_actor("olga"), reason=INJECTION)
        try:
            await olga.open()
            await expect(olga.title).to_have_text("Attention")
            matters = olga.page.get_by_role("list", name="What needs somebody")
            await expect(matters.get_by_role("listitem").first).to_contain_text("Admission is closed")
            await expect(matters).to_contain_text(INJECTION)
            await expect(matters).to_contain_text("fell silent without leaving")
            first = olga.page.locator("tbody tr").first
            await expect(first).to_contain_text(run_id[:8])
            await expect(first).to_contain_text("9 days ago")
            await expect(first).to_contain_text(INJECTION)
            await expect(first).to_contain_text("it can be resolved in")
            await olga.shot("console-attention")
            await olga.check_access()
        finally:
            await admission_gate.reopen(served.stack.database, actor=cli_actor("olga"), reason="reviewed")
            await olga.sql("delete from replica where replica_id = %s", lost)
        # The page follows by itself.
        await expect(matters).not_to_contain_text("Admission is closed")
        await resolve(olga, run_id, INJECTION)
        await expect(olga.page.get_by_role("cell", name=run_id[:8])).to_have_count(0)
        assert await olga.page.title() == "Attention · Operator's console"


async def test_live_numbers_rest_in_a_hidden_tab(served: Served) -> None:
    async with served.visit(name="Numbers desk") as visit, served.console() as olga:
        await visit.open()
        await visit.send("hello")
        await visit.ready()
        await served.replica.gateway.heartbeat.beat()
        asked: list[str] = []
        olga.page.on("request", lambda request: asked.append(request.url))
        await olga.open("#live")
        await expect(olga.page.get_by_role("cell", name=str(served.replica.gateway.heartbeat.replica_id))).to_be_visible()
        await expect(olga.page.get_by_text(served.replica.gateway.vault.key_ids[0])).to_be_visible()
        await expect(olga.page.get_by_role("row", name="Numbers desk")).to_contain_text("0 of 20")
        await expect(olga.page.get_by_role("row", name="Admitted")).to_be_visible()
        await olga.shot("console-live")
        await olga.check_access()
        # Hidden: the pause of the page's own clock is over, and it asks for nothing. Seen again: it asks at once.
        await olga.page.clock.install()
        await olga.open("#live")
        await expect(olga.page.get_by_role("row", name="Numbers desk")).to_be_visible()
        before = len(asked)
        see = (
            "state => { Object.defineProperty(document, 'visibilityState', {value: state, configurable: true});"
            " document.dispatchEvent(new Event('visibilitychange')) }"
        )
        await olga.page.evaluate(see, "hidden")
        await olga.page.clock.run_for(60_000)
        assert len(asked) == before
        async with olga.page.expect_response("**/api/operator/overview"):
            await olga.page.evaluate(see, "visible")


async def test_the_trail_is_verified_and_shows_where_it_breaks(served: Served) -> None:
    async with served.visit() as visit, served.console(viewport=PHONE, color_scheme="dark") as olga:
        await visit.open()
        run_id = await lose(visit)
        await resolve(olga, run_id, INJECTION)
        await olga.open("#audit")
        newest = olga.page.locator("tbody tr").first
        await expect(newest).to_contain_text("run resolve")
        await expect(newest).to_contain_text(INJECTION)
        await expect(newest.get_by_role("link")).to_have_attribute("href", f"#run/{run_id}")
        assert await olga.page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
        await olga.page.get_by_role("button", name="Verify the chain").focus()
        await olga.page.keyboard.press("Enter")
        await expect(olga.page.get_by_text("Yes: all")).to_be_visible()
        await olga.shot("console-audit-phone")
        await olga.check_access()
        [(audit_id, reason)] = await olga.sql("select audit_id, reason from audit order by audit_id desc limit 1")
        change = "update audit set reason = %s where audit_id = %s"
        await olga.sql("alter table audit disable trigger all")
        try:
            await olga.sql(change, "nothing happened", audit_id)
            await olga.page.get_by_role("button", name="Verify again").click()
            await expect(olga.page.get_by_text(f"No: entry {audit_id} is the first that is not.")).to_be_visible()
            await olga.shot("console-audit-broken")
            await olga.check_access()
        finally:
            await olga.sql(change, reason, audit_id)
            await olga.sql("alter table audit enable trigger all")


async def test_the_trail_comes_in_pages_and_leads_to_what_was_acted_on(served: Served) -> None:
    async with served.console() as olga:
        acts = 'select audit_v1(%s, %s, %s, %s, %s, \'{"names": ["one", "two"]}\') from generate_series(1, %s)'
        await olga.sql(acts, f"web:{INJECTION}", "app_set", "application", INJECTION, INJECTION, 60)
        await olga.sql(acts, "cli:olga", "admission_open", "gateway", "admission", "reviewed", 1)
        [(entries, last)] = await olga.sql("select count(*), (array_agg(encode(sha256, 'hex') order by audit_id desc))[1] from audit")
        await olga.open("#audit")
        rows = olga.page.locator("tbody tr")
        await expect(rows).to_have_count(50)
        await expect(rows.first.get_by_role("link", name="gateway")).to_have_attribute("href", "#attention")
        await expect(rows.nth(1)).to_contain_text(f"web:{INJECTION}")
        await expect(rows.nth(1)).to_contain_text('names: ["one","two"]')
        await expect(olga.page.locator("img")).to_have_count(0)
        await olga.shot("console-audit")
        await olga.check_access()
        await olga.page.get_by_role("button", name="Show more").click()
        await expect(rows).to_have_count(min(entries, 100))
        await olga.page.get_by_role("button", name="Verify the chain").click()
        await expect(olga.page.get_by_text(f"Yes: all {entries} entries are.")).to_be_visible()
        await expect(olga.page.get_by_role("region", name="Is the trail as it was written?").locator("code")).to_have_text(last)
        await rows.nth(1).get_by_role("link", name="application").click()
        await expect(olga.title).to_have_text("Applications")
