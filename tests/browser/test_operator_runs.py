"""Runs in the operator's console: lists by filters of the address, one run as a time line, and what an operator does about it."""

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Locator, Route, expect

from tests.browser.served import DESKTOP, PATIENCE_MS, PHONE, Console, Served, Visit, beginning
from tests.support.scripted_upstream import event, finished, gate, message, started

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]

INJECTION = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>{{7*7}}"


def block(olga: Console, title: str) -> Locator:
    return olga.page.get_by_role("region", name=title, exact=True)


async def run_of(visit: Visit) -> str:
    query = "select run_id from run r join account a using (account_id) where a.subject = %s order by r.created_at desc limit 1"
    [(run_id,)] = await visit.sql(query, visit.subject)
    return str(run_id)


async def lose(visit: Visit, text: str, *said: str) -> str:
    """A run whose outcome nobody knows: its stream broke, and the service says that it is still at work."""
    visit.served.answer(text, *beginning(*said), ending="reset", ends_as="running")
    await visit.send(text)
    await expect(visit.page.get_by_role("button", name="Refresh status")).to_be_visible()
    return await run_of(visit)


async def unsaved(visit: Visit) -> None:
    """Until the person's run is over, and its answer is not in the history."""
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while await visit.runs() != [("succeeded", "pending")]:
            await asyncio.sleep(0.05)


async def audited(olga: Console, run_id: str) -> list[str]:
    return [act for (act,) in await olga.sql("select act from audit where target_id = %s order by audit_id", run_id)]


async def test_every_state_has_a_name(served: Served) -> None:
    async with served.console() as olga:
        await olga.open("#runs")
        lacking = await olga.page.evaluate(
            """async () => {
              const names = await import("/static/operator-run-words.js");
              const tables = await import("/static/operator-tables.js");
              return [["EXECUTION_NAMES", "EXECUTION"], ["PERSISTENCE_NAMES", "PERSISTENCE"], ["OUTCOME_NAMES", "OUTCOMES"]]
                .filter(([ours, theirs]) => Object.keys(names[ours]).sort().join() !== Object.keys(tables[theirs]).sort().join());
            }"""
        )
        assert lacking == []


async def test_runs_by_filters_of_the_address(served: Served) -> None:
    async with served.visit(name=f"Filtered {INJECTION}") as visit, served.console() as olga:
        await visit.open()
        asked: list[dict[str, list[str]]] = []

        async def one_a_page(route: Route) -> None:
            asked.append(parse_qs(urlsplit(route.request.url).query))
            await route.continue_(url=f"{route.request.url}&limit=1")

        await olga.page.route("**/api/operator/runs?*", one_a_page)
        for text in ("first", "second"):
            visit.served.answer(text, *started(), *message("m1", "Well."), finished())
            await visit.send(text)
            await expect(visit.page.locator(".user").filter(has_text=text)).to_be_visible()
            await visit.ready()
        await olga.open(f"#runs?state=all&app_id={visit.application}&order=oldest")
        rows = olga.page.locator("tbody tr")
        await expect(rows).to_have_count(1)
        assert asked[-1] == {"state": ["all"], "app_id": [str(visit.application)], "order": ["oldest"], "created_within_seconds": ["86400"]}
        await olga.page.get_by_role("button", name="Show more").click()
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("Succeeded, saved succeeded/saved")
        await expect(rows.first).to_contain_text(visit.subject)
        await expect(rows.first).to_contain_text(INJECTION)
        await expect(olga.page.locator("img")).to_have_count(0)
        oldest = await rows.first.get_by_role("link").get_attribute("href")
        await expect(olga.page.get_by_label("Application").locator("option:checked")).to_have_text(f"Filtered {INJECTION}")
        await olga.shot("console-runs")
        await olga.check_access()
        await olga.page.get_by_label("Order").select_option("newest")
        await expect(olga.page).to_have_url(f"{served.base_url}/operator#runs?state=all&app_id={visit.application}&order=newest")
        await expect(rows.first.get_by_role("link")).not_to_have_attribute("href", str(oldest))
        await olga.page.get_by_label("Made").select_option("any")
        await expect(rows).to_have_count(1)
        assert "created_within_seconds" not in asked[-1]
        await olga.page.get_by_label("Older than").select_option("3600")
        await expect(olga.page.get_by_text("No run is like this.")).to_be_visible()
        assert asked[-1]["older_than_seconds"] == ["3600"]
        await olga.open("#runs?state=all&older_than_seconds=120&created_within_seconds=7200")
        await expect(olga.page.get_by_label("Older than").locator("option:checked")).to_have_text("2 minutes")
        await expect(olga.page.get_by_label("Made").locator("option:checked")).to_have_text("In the last 2 hours")


async def test_an_operator_settles_an_unknown_run_by_keyboard_and_the_owner_sees_it(served: Served) -> None:
    async with served.visit() as visit, served.console() as olga:
        await visit.open()
        run_id = await lose(visit, INJECTION, "I have ", INJECTION)
        await olga.open("#runs?state=unresolved")
        await expect(olga.page.get_by_role("row").filter(has_text=visit.subject)).to_contain_text("The stream ended without")
        await olga.shot("console-runs-unresolved")
        await olga.page.get_by_role("row").filter(has_text=visit.subject).get_by_role("link").click()
        verdict, evidence = block(olga, "What is known"), block(olga, "Evidence, oldest first")
        await expect(verdict).to_contain_text("Outcome not known")
        await expect(verdict).to_contain_text("The stream ended without RUN_FINISHED or RUN_ERROR.")
        await expect(block(olga, "What is blocked by it")).to_contain_text("the service is asked again")
        await expect(evidence.get_by_role("listitem").first).to_contain_text("A moderator judged the text before it was taken.")
        kinds = await evidence.locator("li > p > code").all_inner_texts()
        assert [kind for kind in kinds if kind in ("moderated", "fence", "started", "stream_broken")] == [
            "moderated", "fence", "started", "stream_broken",
        ]  # fmt: skip
        await expect(evidence).to_contain_text("messages 1, text_bytes")
        await evidence.evaluate("element => element.scrollIntoView()")
        await olga.shot("console-run-evidence")
        # What is hidden from sight in a section scrolls with it, and does not make the page longer.
        assert await olga.page.evaluate("() => document.documentElement.scrollHeight") == DESKTOP["height"]
        await expect(block(olga, "What you can do")).to_contain_text("Not possible: What is confirmed about the run says otherwise.")
        await olga.shot("console-run-unknown")
        await olga.check_access()
        await look_up(olga, run_id)
        await read_text(olga, run_id)
        await resolve_by_keyboard(olga)
        await expect(verdict).to_contain_text("Closed by an operator")
        await expect(verdict).to_contain_text(f"“{INJECTION}”")
        await expect(block(olga, "What is blocked by it")).to_contain_text("Nothing.")
        await expect(evidence.get_by_role("listitem").last).to_contain_text("An operator said what became of it.")
        await expect(block(olga, "What you can do")).to_contain_text("Not possible: It is resolved already")
        await expect(olga.page.locator("img")).to_have_count(0)
        await olga.shot("console-run-resolved")
        await olga.check_access()
        # Nobody reloads the owner's page.
        await expect(visit.page.locator("#notice")).to_contain_text("An operator closed this task")
        await expect(visit.page.locator("#notice")).to_contain_text(f"“{INJECTION}”")
        await expect(visit.page.locator("#conversations .mark")).to_have_count(0)
        await visit.ready()
        assert await audited(olga, run_id) == ["run_lookup", "run_text_read", "run_resolve"]
        await olga.page.locator("main .notice").get_by_role("link", name="the trail").click()
        await expect(olga.page.get_by_role("row").filter(has_text=run_id[:8])).to_have_count(3)


async def look_up(olga: Console, run_id: str) -> None:
    await olga.page.get_by_role("button", name="Ask the service").click()
    await olga.shot("console-run-lookup")
    await olga.page.get_by_role("button", name="Ask now").click()
    await expect(olga.page.locator("main .notice")).to_contain_text("The service was asked. It says: active.")
    assert await audited(olga, run_id) == ["run_lookup"]


async def read_text(olga: Console, run_id: str) -> None:
    texts = block(olga, "Message and answer")
    await expect(texts).to_contain_text("That you read it is recorded")
    assert "run_text_read" not in await audited(olga, run_id)
    await texts.get_by_role("button").click()
    await expect(texts.locator("pre")).to_have_text([INJECTION, f"I have {INJECTION}"])
    await expect(olga.page.locator("img")).to_have_count(0)
    await texts.scroll_into_view_if_needed()
    await olga.shot("console-run-text")


async def resolve_by_keyboard(olga: Console) -> None:
    keyboard = olga.page.keyboard
    await olga.page.get_by_role("button", name="Ask the service").focus()
    for _ in range(2):
        await keyboard.press("Tab")
    await expect(olga.page.get_by_role("button", name="Resolve: failed")).to_be_focused()
    await keyboard.press("Enter")
    dialog = olga.page.locator("dialog")
    await expect(dialog).to_contain_text("The charge stays.")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await keyboard.type(INJECTION)
    await olga.shot("console-run-resolve")
    await olga.check_access()
    for _ in range(2):
        await keyboard.press("Tab")
    await keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await expect(olga.page.locator("main .notice")).to_contain_text("Resolved: failed. It is now: Closed by an operator.")
    await expect(olga.title).to_be_focused()


async def test_what_is_not_possible_says_why_and_from_when_on(served: Served) -> None:
    async with served.visit() as visit, served.console(viewport=PHONE, color_scheme="dark") as olga:
        await visit.open()
        visit.served.answer("odd", http_status=500, json={"detail": INJECTION})
        await visit.send("odd")
        await expect(visit.page.locator("#notice.warn")).to_be_visible()
        await olga.open(f"#run/{await run_of(visit)}")
        acts = block(olga, "What you can do")
        not_executed = acts.get_by_role("listitem").filter(has_text="Resolve: not executed")
        await expect(not_executed).to_contain_text("Not yet: The message may still be on its way to the service. It is possible in 1")
        await expect(acts.get_by_role("listitem").first).to_contain_text("The service's own id of the run is not known")
        await expect(acts.get_by_role("button")).to_have_count(0)
        await expect(block(olga, "What is blocked by it")).to_contain_text("It does not end by itself.")
        assert await olga.page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
        await acts.scroll_into_view_if_needed()
        await olga.shot("console-run-obstacles-on-a-phone")
        await olga.check_access()
        await olga.open("#run/00000000-0000-0000-0000-000000000000")
        await expect(olga.page.get_by_role("alert")).to_be_visible()


async def test_a_run_that_moves_is_followed_and_a_save_is_tried_again(served: Served) -> None:
    async with served.visit() as visit, served.console() as olga:
        await visit.open()
        await visit.sql(
            "create function refuse_kept() returns trigger language plpgsql as $$ begin"
            " if new.text = 'Not to be kept.' then raise exception 'refused' using errcode = 'check_violation'; end if; return new; end $$"
        )
        await visit.sql("create trigger refuse_kept before insert on item for each row execute function refuse_kept()")
        end = event("TEXT_MESSAGE_END", messageId="m1")
        visit.served.answer("keep", *beginning("Not to be kept."), gate("keep"), end, finished())
        await visit.send("keep")
        await expect(visit.page.locator(".assistant")).to_contain_text("Not to be kept.")
        await olga.page.clock.install()
        await olga.open(f"#run/{await run_of(visit)}")
        await expect(block(olga, "What is known")).to_contain_text("Running")
        await expect(block(olga, "What you can do")).to_contain_text("Not possible: The run does not wait for an operator.")
        looked = looks(olga)
        await see(olga, "hidden")
        served.stack.upstream.release("keep")
        await unsaved(visit)
        before = len(looked)
        await olga.page.clock.fast_forward(60_000)
        await olga.page.evaluate("() => fetch('/healthz')")  # answered after whatever the page asked before
        assert len(looked) == before
        await see(olga, "visible")
        await expect(block(olga, "What is known")).to_contain_text("Succeeded, answer not saved yet")
        await olga.page.get_by_role("button", name="Save now").click()
        await olga.page.locator("dialog").get_by_role("button", name="Save now").click()
        await expect(olga.page.locator("main .notice")).to_contain_text("It could not be saved yet")
        await olga.shot("console-run-pending")
        await visit.sql("drop trigger refuse_kept on item")
        await visit.sql("drop function refuse_kept()")
        await visit.sql("update run set next_save_at = now() where application_id = %s", visit.application)
        await expect(block(olga, "What is known")).to_contain_text("Succeeded, saved")
        await expect(block(olga, "What is blocked by it")).to_contain_text("Nothing.")


def looks(olga: Console) -> list[Any]:
    """The requests from here on."""
    seen: list[Any] = []
    olga.page.on("request", lambda request: seen.append(request) if "/api/operator/runs/" in request.url else None)
    return seen


async def see(olga: Console, seen: str) -> None:
    await olga.page.evaluate(
        """seen => {
          Object.defineProperty(document, "visibilityState", { value: seen, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        seen,
    )


async def test_of_two_operators_the_second_sees_what_the_first_said(served: Served) -> None:
    async with served.visit() as visit, served.console() as olga, served.console("otto") as otto:
        await visit.open()
        # Nothing to ask by: so the page does not look again for half a minute, and what it shows is what the acts left.
        visit.served.answer("two", *beginning("So ", native=False), ending="reset", ends_as="running")
        await visit.send("two")
        await expect(visit.page.locator("#notice")).to_contain_text("An operator has to settle it")
        run_id = await run_of(visit)
        await olga.open(f"#run/{run_id}")
        await olga.page.get_by_role("button", name="Resolve: failed").click()
        await olga.page.get_by_label("Reason").fill("It is not there.")
        await otto.open(f"#run/{run_id}")
        await otto.page.get_by_role("button", name="Resolve: succeeded").click()
        await otto.page.get_by_label("Reason").fill("It is in the log.")
        await otto.page.get_by_role("button", name="Resolve as succeeded").click()
        await expect(otto.page.locator("main .notice")).to_contain_text("Resolved: succeeded.")
        await olga.page.get_by_role("button", name="Resolve as failed").click()
        dialog = olga.page.locator("dialog")
        await expect(dialog.get_by_role("alert")).to_contain_text("resolved")
        await expect(dialog.get_by_label("Reason")).to_have_value("It is not there.")
        await olga.shot("console-run-resolved-by-another")
        await olga.page.keyboard.press("Escape")
        await expect(block(olga, "What is known")).to_contain_text("Succeeded, said web:otto")
        await expect(olga.page.locator("main .notice")).to_have_count(0)


async def test_a_run_that_waits_for_a_decision(served: Served) -> None:
    async with served.visit(name="Reports to be sent", human_input=True) as visit, served.console() as olga:
        await visit.open()
        await visit.send("Send the report of June to finance, please.")
        await expect(visit.page.locator("#question").get_by_role("button", name="Approve")).to_be_enabled()
        await olga.open(f"#runs?state=waiting&app_id={visit.application}")
        await olga.page.locator("tbody").get_by_role("link").click()
        await expect(block(olga, "What is known")).to_contain_text("Waits for a decision")
        await expect(block(olga, "What is blocked by it")).to_contain_text("It ends when its owner decides.")
        await expect(block(olga, "Evidence, oldest first")).to_contain_text("what the run and its thread's state say together")
        not_executed = block(olga, "What you can do").get_by_role("listitem").filter(has_text="Resolve: not executed")
        await expect(not_executed).to_contain_text("Not possible: What is confirmed about the run says otherwise.")
        await expect(olga.page.get_by_role("button", name="Resolve: succeeded")).to_be_visible()
        await olga.shot("console-run-waiting")
        await olga.check_access()
        await visit.page.locator("#question").get_by_role("button", name="Approve").click()
        await expect(visit.page.locator(".assistant").last).to_contain_text("Done: approve")
        # Decided: nobody is waited for any more, and no list says so.
        await olga.open(f"#runs?state=waiting&app_id={visit.application}")
        await expect(olga.page.get_by_text("No run is like this.")).to_be_visible()
        await olga.open(f"#runs?state=all&app_id={visit.application}")
        await expect(olga.page.get_by_role("cell", name="Decided")).to_be_visible()
