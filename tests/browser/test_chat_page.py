"""The chat page in a real browser, over a real gateway with a scripted agent: each state that a person can meet, and what they do then."""

import asyncio
from uuid import uuid4

import pytest
from playwright.async_api import Request, Route, expect

from tests.browser.served import COOKIE, PHONE, Served, Visit, beginning, body_of, in_three_parts
from tests.support.scripted_upstream import event, failed, finished, gate, message, started
from tests.support.stack import token

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]

MARKDOWN = """# Trains to Paris
Use the **fast** one, *not* the slow one: see [the plan](https://trains.example/plan?a=1) or https://trains.example.

- first `06:10`
- then 08:40

```
<script>alert("code")</script>
```
[no link](javascript:alert(1)) <img src=x onerror=alert(2)>"""
QUESTION = "What is the weather in Paris?"
INJECTION = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>{{7*7}}"


async def operator(visit: Visit, outcome: str) -> None:
    """An operator settles the person's only run."""
    client = visit.served.replica.client("olga", roles=("operator",))
    [(run_id,)] = await visit.sql("select run_id from run r join account a using (account_id) where a.subject = %s", visit.subject)
    answer = await client.http.post(
        f"/api/operator/runs/{run_id}/resolve", json={"outcome": outcome, "reason": "Looked at by hand."}, headers=client.headers
    )
    assert answer.status_code == 200, answer.text


async def test_the_demo_signs_in_and_out(served: Served) -> None:
    async with served.visit() as visit:
        await visit.context.clear_cookies()
        await visit.page.goto(served.base_url)
        await expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()
        await visit.shot("sign-in")
        await visit.check_access()
        await visit.page.get_by_role("button", name="ada").click()
        await expect(visit.text).to_be_visible()
        assert "session" not in await visit.page.evaluate("() => document.cookie")
        await expect(visit.page.get_by_role("link", name="Console")).to_have_count(0)
        await visit.page.get_by_role("button", name="Sign out").click()
        await expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()
        await expect(visit.page).to_have_url(f"{served.base_url}/#")
        await visit.page.get_by_role("button", name="olga").click()
        await expect(visit.page.get_by_role("link", name="Console")).to_be_visible()
        await visit.page.set_viewport_size(PHONE)
        assert await visit.page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
        await visit.page.get_by_role("link", name="Console").click()
        await expect(visit.page).to_have_url(f"{served.base_url}/operator")


async def test_o03_a_reload_and_a_second_tab_pick_up_the_live_answer(served: Served) -> None:
    """Field case O-03: the answer so far, then the rest, once; history is what was streamed."""
    async with served.visit(name="Travel desk") as visit:
        await visit.open()
        await o03(visit)


async def o03(visit: Visit) -> None:
    visit.served.answer(QUESTION, *in_three_parts(stop="weather"))
    await visit.shot("empty")
    await visit.send(QUESTION)
    await expect(visit.page.locator(".tool")).to_contain_text("is at work")
    await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    await visit.shot("tool-step")
    await visit.check_access()
    await visit.page.reload()
    await expect(visit.page.locator(".assistant .body")).to_have_text("Let me look that up.")
    other = await visit.another_tab()
    await other.page.goto(visit.page.url)
    await expect(other.page.locator(".tool")).to_contain_text("is at work")
    visit.served.stack.upstream.release("weather")
    for page in (visit.page, other.page):
        await expect(page.locator(".message .body")).to_have_text([QUESTION, "Let me look that up.", "It is 13 °C."])
        await expect(page.locator(".tool")).to_contain_text("is done")
        await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    await visit.shot("answer")
    # A tab that is open hears of what the other one sends.
    await other.page.bring_to_front()
    visit.served.answer("more", *beginning("So "), gate("more"), event("TEXT_MESSAGE_END", messageId="m1"), finished())
    await other.send("more")
    await expect(visit.page.locator(".assistant.live .body")).to_have_text("So")
    # The tab that sent it is closed, and come back to.
    place = other.page.url
    await other.page.close()
    back = await visit.another_tab()
    await back.page.goto(place)
    await expect(back.page.locator(".assistant.live .body")).to_have_text("So")
    visit.served.stack.upstream.release("more")
    await expect(back.page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    await back.page.close()
    await expect(visit.shown).to_have_count(6)
    await visit.page.reload()
    await expect(visit.page.locator("#transcript .body")).to_have_text([QUESTION, "Let me look that up.", "It is 13 °C.", "more", "So"])
    assert await visit.runs() == [("succeeded", "saved")] * 2


async def test_o06_o07_a_double_enter_and_a_broken_connection_send_once(visit: Visit) -> None:
    """Field cases O-06 and O-07: two Enters, a hidden tab, a request that is repeated: one submission id, one run."""
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST":
            sent.append(body_of(request)["submission_id"])

    visit.page.on("request", note)
    visit.served.answer("once", *beginning("It goes "), gate("once"), event("TEXT_MESSAGE_END", messageId="m1"), finished())
    await visit.text.fill("once")
    await visit.text.evaluate(
        """field => { for (let n = 0; n < 2; n += 1) field.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true})) }"""
    )
    await expect(visit.page.locator(".assistant .body")).to_have_text("It goes")
    assert len(sent) == 1
    for seen in ("hidden", "visible", "hidden", "visible"):
        await visit.page.evaluate(
            """seen => {
              Object.defineProperty(document, "visibilityState", { value: seen, configurable: true });
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            seen,
        )
    await visit.text.fill("another")
    await visit.page.keyboard.press("Enter")  # while the first is being answered
    await expect(visit.text).to_have_value("another")
    await visit.text.fill("")
    assert len(sent) == 1
    # The way in breaks, and comes back: the stream is opened again, nothing is sent again.
    await visit.served.way_in.refuse()
    await visit.served.way_in.reset()
    await expect(visit.page.locator("#notice")).to_contain_text("interrupted")
    await visit.shot("interrupted")
    await visit.served.way_in.listen_again()
    visit.served.stack.upstream.release("once")
    await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    await expect(visit.shown).to_have_count(2)
    assert len(sent) == 1
    assert await visit.runs() == [("succeeded", "saved")]
    # A message that could not be sent goes out again under its id, also after a reload.
    await visit.served.way_in.refuse()
    await visit.served.way_in.reset()
    await visit.send("again")
    await expect(visit.page.locator("#notice")).to_contain_text("nothing is sent twice")
    await visit.served.way_in.listen_again()
    await visit.page.reload()
    await expect(visit.shown).to_have_count(6)
    assert len(set(sent)) == 2
    assert await visit.runs() == [("succeeded", "saved")] * 2


async def test_an_unanswered_message_is_never_sent_as_somebody_elses(visit: Visit) -> None:
    """One browser, two people after each other: what the first could not send is not the second's."""
    await visit.sql("update application set visibility = 'public' where application_id = %s", visit.application)
    await visit.served.way_in.refuse()
    await visit.served.way_in.reset()
    await visit.send("mine alone")
    await expect(visit.page.locator("#notice")).to_contain_text("nothing is sent twice")
    await visit.page.goto("about:blank")
    await visit.served.way_in.listen_again()
    await visit.context.add_cookies([{"name": COOKIE, "value": token("eve"), "url": visit.served.base_url}])
    await visit.open()
    await expect(visit.page.locator("#who")).to_have_text("eve")
    await expect(visit.shown).to_have_count(0)
    assert await visit.page.evaluate("() => sessionStorage.length") == 0
    assert await visit.sql("select 1 from run where application_id = %s", visit.application) == []


async def test_what_the_policy_forbids_is_seen_by_these_tests(visit: Visit) -> None:
    """That they would fail: an inline script, a picture of another host, and HTML."""
    forbidden = (
        "document.head.append(Object.assign(document.createElement('script'), { text: '1' }))",
        "document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.2/x.png' }))",
        "document.body.innerHTML = '<b>x</b>'",
    )
    for act in forbidden:
        await visit.page.evaluate(f"() => {{ try {{ {act} }} catch {{}} }}")
        async with asyncio.timeout(20):
            while not visit.complaints.found:
                await visit.page.wait_for_timeout(20)
        await visit.page.reload()
        await visit.ready()
        visit.complaints.found.clear()


async def test_text_from_anybody_stays_text(visit: Visit) -> None:
    visit.served.answer("plan", *started(), *message("m1", MARKDOWN), finished())
    visit.served.answer(INJECTION, *started(), *message("m1", INJECTION), finished())
    await visit.send("plan")
    await visit.ready()
    answer = visit.page.locator(".assistant .body")
    assert [await link.get_attribute("href") for link in await answer.locator("a").all()] == [
        "https://trains.example/plan?a=1",
        "https://trains.example/",
    ]
    await expect(answer.locator("strong")).to_have_text("fast")
    await expect(answer.locator("pre")).to_have_text('<script>alert("code")</script>')
    await expect(answer.locator("li")).to_have_text(["first 06:10", "then 08:40"])
    await expect(answer).to_contain_text("[no link](javascript:alert(1)) <img src=x onerror=alert(2)>")
    await visit.shot("markdown")
    await visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await visit.page.get_by_role("button", name="Copy").click()
    await expect(visit.page.get_by_role("button", name="Copied")).to_be_visible()
    assert await visit.page.evaluate("() => navigator.clipboard.readText()") == MARKDOWN
    await visit.send(INJECTION)
    await visit.ready()
    await visit.page.get_by_role("button", name="Rename").click()
    await visit.page.get_by_label("Title").fill(INJECTION)
    await visit.shot("rename")
    await visit.check_access()
    await visit.page.get_by_role("button", name="Save").click()
    await expect(visit.page.locator("#title")).to_have_text(INJECTION)
    await expect(visit.page.locator(".message .body").last).to_have_text(INJECTION)
    assert await visit.page.locator(".body img, .body script, #title img, .name img").count() == 0
    # On plain HTTP a page has no clipboard: then the text is selected.
    await visit.page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    await visit.page.get_by_role("button", name="Copy").last.click()
    await expect(visit.page.locator("#announcer")).to_contain_text("is selected")
    assert await visit.page.evaluate("() => String(getSelection())") == INJECTION
    assert await visit.page.title() != "taken"
    await visit.page.get_by_role("button", name="Delete").click()
    await visit.page.locator("#delete-dialog").get_by_role("button", name="Delete").click()
    await expect(visit.page.locator("#notice")).to_contain_text("What the agent service remembers of this conversation is not deleted")
    await visit.shot("deleted")
    await expect(visit.page.locator("#conversations li")).to_have_count(0)


async def test_refusals_say_what_to_do_and_give_the_message_back(visit: Visit) -> None:
    await visit.sql(
        "insert into quota_rule (quota_rule_id, scope, application_id, task_limit, calendar_window) values (%s, 'app', %s, 1, 'day')",
        uuid4(),
        visit.application,
    )
    await visit.page.reload()
    await expect(visit.page.locator("#quota")).to_contain_text("1 of 1 tasks left today")
    await visit.send("hello")
    await expect(visit.page.locator("#quota")).to_contain_text("0 of 1 tasks left")
    await visit.ready()
    await visit.send("one more")
    await expect(visit.page.locator("#notice")).to_contain_text("Your quota is used up. You can send again")
    await expect(visit.text).to_have_value("one more")
    await visit.shot("quota-used-up")
    await visit.check_access()


async def test_busy_elsewhere_leads_to_what_is_being_answered(visit: Visit) -> None:
    visit.served.answer("long", *beginning("It goes "), gate("long"), event("TEXT_MESSAGE_END", messageId="m1"), finished())
    await visit.send("long")
    await expect(visit.page.locator(".assistant .body")).to_have_text("It goes")
    await visit.page.get_by_role("button", name="New conversation").click()
    await visit.send("meanwhile")
    await expect(visit.page.locator("#notice")).to_contain_text("Another message of yours is still being answered")
    await expect(visit.text).to_have_value("meanwhile")
    await visit.shot("busy")
    await visit.page.get_by_role("button", name="Show what is being answered").click()
    await expect(visit.page.locator("#transcript .body")).to_have_text(["long", "It goes"])
    visit.served.stack.upstream.release("long")
    await visit.ready()
    assert await visit.runs() == [("succeeded", "saved")]


async def test_an_answer_is_not_read_aloud_piece_by_piece_and_nothing_moves_for_who_wants_it_still(served: Served) -> None:
    async with served.visit(reduced_motion="reduce") as visit:
        await visit.open()
        pieces = [event("TEXT_MESSAGE_CONTENT", messageId="m1", delta=f"word {n} ") for n in range(40)]
        visit.served.answer(
            "words", *beginning(), *pieces[:20], gate("words"), *pieces[20:], event("TEXT_MESSAGE_END", messageId="m1"), finished()
        )
        await visit.page.evaluate(
            """() => {
              window.said = [];
              const announcer = document.getElementById("announcer");
              const noting = new MutationObserver(() => said.push(announcer.textContent));
              noting.observe(announcer, { childList: true, characterData: true, subtree: true });
            }"""
        )
        await visit.send("words")
        await expect(visit.page.locator(".assistant .body")).to_contain_text("word 19")
        moving = "node => [getComputedStyle(node).animationName, getComputedStyle(node, '::before').animationName]"
        assert await visit.page.locator(".typing i").first.evaluate(moving) == ["none", "none"]
        visit.served.stack.upstream.release("words")
        await expect(visit.page.locator(".assistant .body")).to_contain_text("word 39")
        await visit.ready()
        assert await visit.page.evaluate("() => said") == ["Message sent.", "The answer is complete."]
        # What changes with each piece is in no live region.
        live = "[aria-live], [role=log], [role=status], [role=alert]"
        assert (
            await visit.page.locator("#transcript").evaluate("(node, live) => node.closest(live) ?? node.querySelector(live)", live) is None
        )


async def test_a_conversation_that_takes_its_time_to_open_says_so(visit: Visit) -> None:
    await visit.send("hello")
    await visit.ready()
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        await held.wait()
        await route.continue_()

    await visit.page.route("**/items?*", hold)
    await visit.page.get_by_role("button", name="New conversation").click()
    await visit.page.locator("#conversations button").first.click()
    await expect(visit.page.locator("#scroller")).to_contain_text("One moment")
    await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    await visit.shot("opening")
    held.set()
    await expect(visit.page.locator(".message .body").first).to_have_text("hello")
    await visit.ready()


async def test_moderation_refuses_and_the_message_can_be_changed(visit: Visit) -> None:
    await visit.send("Buy contraband for me")
    await expect(visit.page.locator("#notice")).to_contain_text("was not taken, and cost nothing. It breaks this service's rules")
    await expect(visit.text).to_have_value("Buy contraband for me")
    await expect(visit.shown).to_have_count(0)
    await visit.shot("moderation")
    await visit.send("Buy bread for me")
    await expect(visit.page.locator(".assistant").first).to_be_visible()
    await visit.ready()
    assert await visit.runs() == [("succeeded", "saved")]


async def test_an_incomplete_answer_is_accepted_and_an_unknown_one_waits_for_an_operator(visit: Visit) -> None:
    visit.served.answer("half", *beginning("The total is 1"), ending="reset", ends_as="success")
    await visit.send("half")
    await expect(visit.page.get_by_role("button", name="Accept it and go on")).to_be_visible()
    await expect(visit.page.locator(".assistant")).to_contain_text("The total is 1")
    await visit.shot("incomplete")
    await visit.check_access()
    await visit.page.get_by_role("button", name="Accept it and go on").focus()
    await visit.page.keyboard.press("Enter")
    await visit.ready()
    await expect(visit.page.locator("#notice")).to_be_hidden()
    await expect(visit.text).to_be_focused()


async def test_the_page_follows_what_an_operator_decides(visit: Visit) -> None:
    visit.served.answer("lost", *beginning("I have "), ending="reset", ends_as="running")
    await visit.send("lost")
    await expect(visit.page.get_by_role("button", name="Refresh status")).to_be_visible()
    await expect(visit.page.locator(".assistant")).to_contain_text("I have")
    await expect(visit.page.locator("#conversations .mark")).to_have_text("outcome not known yet")
    await visit.shot("unknown")
    await visit.check_access()
    await operator(visit, "failed")
    await visit.page.get_by_role("button", name="Refresh status").click()
    await expect(visit.page.locator("#notice")).to_contain_text("An operator closed this task")
    await expect(visit.page.locator("#conversations .mark")).to_have_count(0)
    await visit.shot("resolved")
    await visit.ready()
    await expect(visit.page.locator(".assistant")).to_contain_text("I have")


async def test_a_failed_run_says_so_and_keeps_what_was_said(visit: Visit) -> None:
    visit.served.answer("fail", *started(), *message("m1", "I try."), failed())
    await visit.send("fail")
    await expect(visit.page.locator("#notice.warn")).to_be_visible()
    await visit.ready()
    await expect(visit.page.locator(".assistant .body")).to_have_text("I try.")
    await visit.shot("failed")


async def test_d9b_an_answer_that_cannot_be_saved_stays_on_the_page_until_it_is(visit: Visit) -> None:
    await visit.sql(
        "create function refuse_item() returns trigger language plpgsql as $$ begin"
        " if new.text = 'Not to be saved.' then raise exception 'refused' using errcode = 'check_violation'; end if; return new; end $$"
    )
    await visit.sql("create trigger refuse_item before insert on item for each row execute function refuse_item()")
    visit.served.answer("keep", *started(), *message("m1", "Not to be saved."), finished())
    try:
        await visit.send("keep")
        await expect(visit.page.locator("#notice")).to_contain_text("saved")
        await expect(visit.page.locator(".assistant .body")).to_have_text("Not to be saved.")
        await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
        await expect(visit.page.locator("#conversations .mark")).to_have_text("being saved")
        await visit.shot("saving")
    finally:
        await visit.sql("drop trigger refuse_item on item")
    await visit.page.get_by_role("button", name="Refresh status").click()
    await visit.ready()
    await expect(visit.page.locator(".assistant .body")).to_have_text("Not to be saved.")
    assert await visit.runs() == [("succeeded", "saved")]


async def test_a_question_is_answered_once_by_keyboard(served: Served) -> None:
    async with served.visit(name="Reports", human_input=True) as visit:
        await visit.open()
        await visit.send("Send the report of May to finance, please.")
        question = visit.page.locator("#question")
        await expect(question.get_by_role("button", name="Approve")).to_be_enabled()
        await visit.shot("question")
        await visit.check_access()
        await visit.page.reload()
        await expect(question.get_by_role("button", name="Approve")).to_be_enabled()
        await question.get_by_label("Comment").focus()
        await visit.page.keyboard.type("Go on.")
        await visit.page.keyboard.press("Tab")
        await visit.page.keyboard.press("Enter")
        await expect(question).to_be_hidden()
        await expect(visit.page.locator(".assistant").last).to_contain_text("Done: approve")
        await expect(visit.text).to_be_focused()
        assert [run[0] for run in await visit.runs()] == ["waiting", "succeeded"]
        await visit.shot("approved")


async def test_a_question_in_any_words_stays_text_and_its_comment_is_moderated(served: Served) -> None:
    asked = served.native.prompt
    served.native.prompt = {**asked, "title": f"Delete? {INJECTION}", "description": f"{INJECTION}\n[x](javascript:alert(1))"}
    try:
        async with served.visit(human_input=True, viewport=PHONE) as visit:
            await visit.open()
            await visit.send("please")
            question = visit.page.locator("#question")
            await expect(question.get_by_role("button", name="Approve")).to_be_enabled()
            await expect(question.get_by_role("heading")).to_have_text(f"Delete? {INJECTION}")
            await expect(question.locator(".question-text")).to_contain_text("[x](javascript:alert(1))")
            assert await question.locator("img, script, a").count() == 0
            await question.get_by_label("Comment").fill("contraband")
            await question.get_by_role("button", name="Reject").click()
            await expect(question.get_by_role("alert")).to_contain_text("was not taken, and cost nothing")
            await expect(question.get_by_role("alert")).to_be_in_viewport()
            await visit.shot("comment-refused")
            await question.get_by_label("Comment").fill(INJECTION)
            await question.get_by_role("button", name="Reject").click()
            await expect(question).to_be_hidden()
            await expect(visit.page.locator(".assistant").last).to_contain_text("Done: reject")
            assert await visit.page.title() != "taken"
    finally:
        served.native.prompt = asked


async def test_two_tabs_agree_on_a_decision_that_is_on_its_way(served: Served) -> None:
    async with served.visit(human_input=True) as visit:
        await visit.open()
        await visit.send("please")
        await expect(visit.page.get_by_role("button", name="Approve")).to_be_enabled()
        other = await visit.another_tab()
        await other.page.goto(visit.page.url)
        await expect(other.page.get_by_role("button", name="Reject")).to_be_enabled()
        served.native.hold()
        try:
            await visit.page.get_by_role("button", name="Approve").click()
            await expect(visit.page.locator(".assistant").last).to_contain_text("Done: ")
            await expect(visit.page.locator("#question")).to_be_hidden()
            await visit.shot("decision-on-its-way")
            await expect(other.page.locator("#question")).to_be_hidden()
            await expect(other.page.locator(".assistant").last).to_contain_text("Done: ")
        finally:
            served.native.let_go()
        for page in (visit.page, other.page):
            await expect(page.locator(".assistant").last).to_contain_text("Done: approve")
            await expect(page.locator("#question")).to_be_hidden()
        assert [run[0] for run in await visit.runs()] == ["waiting", "succeeded"]


async def test_a_decision_of_which_nobody_knows_whether_it_arrived_is_explained(served: Served) -> None:
    served.native.ignores_answers = True
    try:
        async with served.visit(human_input=True) as visit:
            await visit.open()
            await visit.send("please")
            await visit.page.get_by_role("button", name="Approve").click()
            said = visit.page.locator("#notice.warn")
            await expect(said).to_contain_text("does not show that your decision arrived")
            await expect(visit.page.locator("#question")).to_be_hidden()
            await visit.shot("decision-not-applied")
            await visit.page.reload()
            await expect(said).to_contain_text("does not show that your decision arrived")
            await expect(visit.page.locator("#question")).to_be_hidden()
            assert [run[0] for run in await visit.runs()] == ["waiting", "unknown"]
    finally:
        served.native.ignores_answers = False


async def test_a_question_expires(served: Served) -> None:
    async with served.visit(human_input=True) as visit:
        await visit.open()
        await visit.send("please")
        await expect(visit.page.get_by_role("button", name="Approve")).to_be_enabled()
        await visit.sql(
            "update interrupt i set expires_at = clock_timestamp() from run r join account a using (account_id)"
            " where i.run_id = r.run_id and a.subject = %s",
            visit.subject,
        )
        await visit.page.get_by_role("button", name="Reject").click()
        await expect(visit.page.locator("#question")).to_contain_text("The time for this decision is over")
        await visit.shot("expired")
        await visit.page.reload()
        await expect(visit.page.locator("#question")).to_contain_text("The time for this decision is over")
        await expect(visit.page.locator("#conversations .mark")).to_have_text("its time is over")


async def test_5000_items_open_at_the_end_and_older_ones_come_on_scrolling(visit: Visit) -> None:
    await visit.send("hello")
    await visit.ready()
    await visit.sql(
        "with c as (select c.* from conversation c join account a using (account_id) where a.subject = %s), r as ("
        " insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, persistence,"
        " attempt_token, correlation_id, config_version, token_version, fence_at, finished_at)"
        " select gen_random_uuid(), c.account_id, c.application_id,"
        " c.conversation_id, 's' || n, n, 'succeeded', 'saved', gen_random_uuid(), gen_random_uuid(), 1, 1, now(), now()"
        " from c cross join generate_series(2, 2500) n returning *)"
        " insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete)"
        " select r.run_id, p, r.conversation_id, r.sequence, gen_random_uuid(), 'message', case p when 0 then 'user' else 'assistant' end,"
        " 'text ' || r.sequence || '.' || p, true from r cross join generate_series(0, 1) p",
        visit.subject,
    )
    asked: list[str] = []
    await visit.page.get_by_role("button", name="New conversation").click()
    visit.page.on("request", lambda request: asked.append(request.url))
    await visit.page.locator("#conversations button").first.click()
    await expect(visit.page.locator(".message .body").last).to_have_text("text 2500.1")
    assert len(asked) <= 3
    await expect(visit.shown).to_have_count(50)
    await visit.shot("long")
    scroller = visit.page.locator("#scroller")
    for _ in range(12):
        before = await visit.page.locator(".message .body").first.inner_text()
        await scroller.evaluate("node => { node.scrollTop = 0 }")
        await expect(visit.page.locator(".message .body").first).not_to_have_text(before)
        assert await visit.shown.count() <= 120
    await expect(visit.page.get_by_text("text 2400.0", exact=True)).to_have_count(0)
    for _ in range(20):
        await scroller.evaluate("node => { node.scrollTop = node.scrollHeight }")
    await expect(visit.page.locator(".message .body").last).to_have_text("text 2500.1")
    assert await visit.page.evaluate("() => document.querySelectorAll('*').length") < 1500


async def test_keyboard_alone_on_a_phone(served: Served) -> None:
    async with served.visit(viewport=PHONE, color_scheme="dark", reduced_motion="reduce") as visit:
        await visit.open()
        assert await visit.page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
        await visit.shot("phone")
        await visit.page.keyboard.press("Tab")
        await visit.page.keyboard.press("Enter")  # the link that skips to the message
        await visit.page.keyboard.type("hello")
        await visit.page.keyboard.press("Enter")
        await expect(visit.page.locator(".assistant").first).to_be_visible()
        await visit.ready()
        await visit.check_access()
        await visit.page.get_by_role("button", name="Menu").focus()
        await visit.page.keyboard.press("Enter")
        await expect(visit.page.locator("#conversations button")).to_be_visible()
        await visit.shot("phone-menu")
        await visit.check_access()
        await visit.page.locator("#conversations button").focus()
        await visit.page.keyboard.press("Enter")
        await expect(visit.page.locator("#title")).to_be_focused()
