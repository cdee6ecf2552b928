"""The operator's console in a real browser, over a real gateway: who may see it, and what each of its sections shows and does."""

import pytest
from playwright.async_api import expect

from tests.browser.served import Served

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]


async def test_the_demo_signs_an_operator_in_and_nobody_else_sees_anything(served: Served) -> None:
    async with served.console() as olga:
        await olga.context.clear_cookies()
        asked: list[str] = []
        olga.page.on("request", lambda request: asked.append(request.url))
        await olga.open("#runs?state=all")
        await expect(olga.page.get_by_role("heading", name="Sign in")).to_be_visible()
        await olga.shot("console-sign-in")
        await olga.check_access()
        await olga.page.get_by_role("button", name="ben").click()
        await expect(olga.page.get_by_role("heading", name="For operators only")).to_be_visible()
        await olga.shot("console-no-operator")
        await olga.check_access()
        assert not [url for url in asked if "/api/operator" in url]
        await olga.page.get_by_role("button", name="Sign out").click()
        await olga.page.get_by_role("button", name="olga").click()
        await expect(olga.title).to_have_text("Runs")
        await expect(olga.page.get_by_label("State")).to_have_value("all")


async def test_a_session_that_ends_leads_to_the_sign_in_and_back_to_the_same_place(served: Served) -> None:
    async with served.console() as olga:
        # Both lists are here: neither finds the session over before the person does anything.
        async with olga.page.expect_response("**/api/operator/apps*"), olga.page.expect_response("**/api/operator/runs*"):
            await olga.open("#runs?state=all")
        await expect(olga.title).to_have_text("Runs")
        await olga.context.clear_cookies()
        # By script: the list is gone with what it asks for, and a person's choice would be waited for.
        await olga.page.get_by_label("State").evaluate("list => { list.value = 'active'; list.dispatchEvent(new Event('change')) }")
        await expect(olga.page.get_by_text("Your session is over.")).to_be_visible()
        await olga.page.get_by_role("button", name="olga").click()
        await expect(olga.page.get_by_label("State")).to_have_value("active")
