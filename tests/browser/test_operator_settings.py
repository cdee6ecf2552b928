"""The configuration in the operator's console: what each section shows and does, over a real gateway with real runs in the way."""

from uuid import uuid4

import pytest
from playwright.async_api import Locator, Request, expect

from tests.browser.served import PHONE, Console, Served, beginning
from tests.support.scripted_upstream import finished, gate
from tests.support.stack import Client

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]

INJECTION = "<img src=x onerror=\"document.title='taken'\">{{7*7}}"


def fresh(what: str) -> str:
    return f"{what} {uuid4().hex[:6]}"


def card(olga: Console, title: str) -> Locator:
    return olga.page.get_by_role("article", name=title, exact=True)


async def do(olga: Console, act: str, of: str, label: str, **fields: str) -> None:
    """Open a dialog of a card, fill it in, and do it."""
    await card(olga, of).get_by_role("button", name=act).click()
    await fill(olga, label, **fields)


async def fill(olga: Console, label: str, **fields: str) -> None:
    for name, value in fields.items():
        field = olga.page.locator(f"dialog [name={name}]")
        if await field.evaluate("field => field.tagName") == "SELECT":
            await field.select_option(value)
        else:
            await field.fill(value)
    dialog = olga.page.locator("dialog")
    assert await dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
    await dialog.get_by_role("button", name=label, exact=True).click()


async def done(olga: Console) -> None:
    await expect(olga.page.locator("dialog")).to_have_count(0)


async def test_providers(served: Served) -> None:
    async with served.console() as olga:
        await olga.open("#providers")
        name = fresh("Rail")
        await olga.page.get_by_role("button", name="New provider").click()
        await fill(olga, "Make it", name=name, base_url="http://agents.example")
        await expect(olga.page.locator("dialog")).to_contain_text("base_url")
        await olga.shot("console-provider-refused")
        await olga.check_access()
        sent: list[Request] = []
        olga.page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
        await olga.page.locator("dialog [name=base_url]").fill("https://agents.example")
        await olga.page.locator("dialog form").evaluate("form => { form.requestSubmit(); form.requestSubmit(); }")  # a double Enter
        await done(olga)
        assert len(sent) == 1
        await expect(card(olga, name)).to_contain_text("https://agents.example")
        await do(olga, "Move", name, "Move it", base_url="https://others.example/base")
        await done(olga)
        await expect(card(olga, name)).to_contain_text("https://others.example/base")
        await do(olga, "Switch off", name, "Switch it off")
        await done(olga)
        await expect(card(olga, name)).to_contain_text("Switched off")
        await do(olga, "Switch on", name, "Switch it on")
        await done(olga)
        taken = f"{INJECTION} {name}"
        await do(olga, "Rename", name, "Save", name=taken)
        await done(olga)
        await expect(card(olga, taken)).to_be_visible()
        await expect(olga.page.locator("img")).to_have_count(0)
        await olga.shot("console-providers")
        await olga.check_access()


async def test_an_application_from_its_making_to_its_end_by_keyboard(served: Served) -> None:
    async with served.console() as olga:
        application = await served.stack.application()
        [(provider,)] = await olga.sql(
            "select p.name from provider p join application a using (provider_id) where a.application_id = %s", application
        )
        await olga.open("#apps")
        name, token = fresh("Desk"), served.stack.upstream.token
        await expect(olga.page.get_by_role("article").first).to_be_visible()
        await olga.page.get_by_role("button", name="New application").focus()
        await olga.page.keyboard.press("Enter")
        await olga.page.keyboard.type(name)
        await olga.page.keyboard.press("Tab")
        await olga.page.keyboard.type(INJECTION)
        await olga.page.locator("dialog [name=provider_id]").select_option(label=provider)
        await olga.page.locator("dialog [name=assistant]").fill("agent")
        await olga.shot("console-application-new")
        await olga.check_access()
        await olga.page.locator("dialog [name=users]").fill("ada\nben")
        await olga.page.keyboard.press("Tab")
        await olga.page.keyboard.press("Tab")
        await olga.page.keyboard.press("Tab")
        await olga.page.keyboard.press("Enter")
        await done(olga)
        made = card(olga, name)
        await expect(made).to_contain_text("ada, ben")
        await expect(made).to_contain_text("It has no token.")
        await expect(made).to_contain_text(INJECTION)
        await expect(olga.page.locator("img")).to_have_count(0)
        # A token goes in, is tried, and never comes out.
        await do(olga, "Set token", name, "Replace it", token="wrong")
        await expect(olga.page.locator("dialog")).to_contain_text("did not accept the new token")
        await olga.shot("console-token-refused")
        await fill(olga, "Replace it", token=token)
        await done(olga)
        await expect(made).to_contain_text("is set; key")
        await expect(made).not_to_contain_text("Not available")
        assert token not in await olga.page.content()
        await do(olga, "Edit", name, "Save", visibility="private", owner="ada", description="Trips.")
        await done(olga)
        await expect(made).to_contain_text("Its owner and its users")
        await olga.shot("console-applications")
        await olga.check_access()
        await do(olga, "Switch off", name, "Switch it off")
        await done(olga)
        await expect(made).to_contain_text("Not available")


async def test_a_change_that_is_blocked_leads_to_the_runs_in_the_way(served: Served) -> None:
    name = fresh("Busy")
    async with served.visit(name=name) as visit, served.console() as olga:
        await visit.open()
        served.answer("hold", *beginning("I am "), gate("hold"), finished())
        await visit.send("hold")
        await expect(visit.page.locator(".assistant")).to_contain_text("I am")
        await olga.open("#apps")
        await do(olga, "Service", name, "Save", assistant="another")
        blocked = olga.page.locator("dialog").get_by_role("alert")
        await expect(blocked).to_contain_text("Runs of this application are active")
        await olga.shot("console-change-blocked")
        await olga.check_access()
        await blocked.get_by_role("link").click()
        await done(olga)
        [(run_id,)] = await visit.sql("select run_id from run where application_id = %s", visit.application)
        await expect(olga.page).to_have_url(f"{served.base_url}/operator#run/{run_id}")
        served.stack.upstream.release("hold")
        await visit.ready()
        await olga.page.go_back()
        await do(olga, "Service", name, "Save", assistant="another")
        await done(olga)
        await expect(card(olga, name)).to_contain_text("another")
        await visit.page.reload()
        await expect(visit.page.locator("#notice")).to_be_visible()


async def test_accounts(served: Served) -> None:
    async with served.console() as olga:
        await olga.open("#accounts")
        subject = fresh("carl").replace(" ", "-")
        await olga.page.get_by_role("button", name="New account").click()
        await fill(olga, "Make it", subject=subject, groups="travel\nsales")
        await done(olga)
        await expect(card(olga, subject)).to_contain_text("sales, travel")
        await olga.page.get_by_label("From subject").fill(f"{subject}0")
        await olga.page.keyboard.press("Enter")
        await expect(card(olga, subject)).to_have_count(0)
        await olga.page.get_by_label("From subject").fill(subject[:-1])
        await olga.page.get_by_role("button", name="Find").click()
        await expect(olga.page.get_by_role("article").first).to_have_attribute("aria-label", subject)
        carl: Client = served.replica.client(subject)
        assert (await carl.get("/api/internal/me")).json()["groups"] == ["sales", "travel"]
        await do(olga, "Suspend", subject, "Suspend")
        await done(olga)
        assert (await carl.get("/api/internal/me")).json()["code"] == "account_inactive"
        await olga.shot("console-accounts")
        await olga.check_access()
        await do(olga, "Activate", subject, "Activate")
        await done(olga)
        await card(olga, subject).get_by_role("button", name="Groups and roles").click()
        await olga.page.get_by_label("Operator", exact=True).check()
        await fill(olga, "Save", groups=INJECTION)
        await done(olga)
        assert (await carl.get("/api/internal/me")).json()["operator"] is True
        await expect(card(olga, subject)).to_contain_text(INJECTION)
        await expect(olga.page.locator("img")).to_have_count(0)
        await olga.open("#accounts?from=olga")
        await card(olga, "olga").get_by_role("button", name="Suspend").click()
        await expect(olga.page.locator("dialog")).to_contain_text("you lock yourself out")
        await olga.page.keyboard.press("Escape")
        await done(olga)


async def test_quotas(served: Served) -> None:
    name = fresh("Counted")
    async with served.visit(name=name) as visit, served.console() as olga:
        await visit.open()
        await olga.open("#quotas")
        await olga.page.get_by_role("button", name="New rule").click()
        await fill(olga, "Set it", scope="user", limit="3", window="fortnight", app_id=str(visit.application))
        await expect(olga.page.locator("dialog")).to_contain_text("window")
        await fill(olga, "Set it", window="day")
        await done(olga)
        row = olga.page.get_by_role("row").filter(has_text=name)
        await expect(row).to_contain_text("Each person")
        await expect(row.get_by_role("cell").nth(3)).to_have_text("3")
        await row.get_by_role("button", name="Change").click()
        await fill(olga, "Save", limit="5")
        await done(olga)
        await expect(row.get_by_role("cell").nth(3)).to_have_text("5")
        await olga.shot("console-quotas")
        await olga.check_access()
        await visit.page.reload()
        await expect(visit.page.locator("#quota")).to_contain_text("5 of 5 tasks left today")
        await row.get_by_role("button", name="End").click()
        await fill(olga, "End it")
        await done(olga)
        await expect(row).to_have_count(0)


async def test_moderation(served: Served) -> None:
    name = fresh("Watched")
    async with served.visit(name=name), served.console() as olga:
        await olga.open("#moderation")
        await expect(card(olga, "From the settings")).to_contain_text("local")
        await olga.page.get_by_role("button", name="Set a chain").click()
        await olga.page.get_by_label("Of which application").select_option(label=name)
        await olga.page.get_by_role("button", name="Add a moderator").click()
        await fill(olga, "Set it", **{"url-1": "https://moderator.example/v1", "token-1": "secret-of-the-moderator"})
        await done(olga)
        await expect(card(olga, name)).to_contain_text("webhook:https://moderator.example/v1 (token is set)")
        await olga.shot("console-moderation")
        await olga.check_access()
        await card(olga, name).get_by_role("button", name="Change").click()
        await expect(olga.page.locator("dialog [name=token-1]")).to_have_value("")
        await olga.shot("console-moderation-chain")
        await olga.check_access()
        await fill(olga, "Set it", **{"url-1": "ftp://moderator.example"})
        await expect(olga.page.locator("dialog").get_by_role("alert")).to_be_visible()
        await fill(olga, "Set it", what="none")
        await done(olga)
        await expect(card(olga, name)).to_contain_text("Nobody: every message passes.")
        await do(olga, "Change", name, "Set it", what="default")
        await done(olga)
        await expect(card(olga, name)).to_have_count(0)
        assert "secret-of-the-moderator" not in await olga.page.content()


async def test_the_sections_on_a_phone(served: Served) -> None:
    async with served.console(viewport=PHONE, color_scheme="dark", reduced_motion="reduce") as olga:
        for section in ("apps", "providers", "accounts", "quotas", "moderation"):
            await olga.open(f"#{section}")
            await expect(olga.page.locator("main .actions button").first).to_be_visible()
            await expect(olga.page.get_by_text("One moment")).to_have_count(0)
            assert await olga.page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
            await olga.shot(f"console-{section}-on-a-phone")
            await olga.check_access()
