"""gateway-client.js by itself, in a real browser against a real gateway: what a page of somebody else's may build on."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from playwright.async_api import Request, expect

from tests.browser.served import Visit, beginning, body_of, in_three_parts
from tests.support.scripted_upstream import gate

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]

FOLLOW = """async ([app, submission]) => {
  const { GatewayClient } = await import("/static/gateway-client.js");
  const seen = (window.seen = []);
  for await (const event of new GatewayClient().submit(app, submission, new AbortController().signal)) seen.push(event);
  return seen;
}"""


def submission(visit: Visit, text: str) -> list[Any]:
    return [str(visit.application), {"submissionId": f"id of {text}".replace(" ", "-"), "text": text, "conversationId": None}]


async def test_a_run_is_told_as_typed_events_with_whole_texts(visit: Visit) -> None:
    visit.served.answer("typed", *in_three_parts(stop="typed"))
    visit.served.stack.upstream.release("typed")
    seen = await visit.page.evaluate(FOLLOW, submission(visit, "typed"))
    assert [event["type"] for event in seen[:3]] == ["connection", "connection", "run"]
    texts = [(event["text"], event["complete"]) for event in seen if event["type"] == "text"]
    assert texts[-1] == ("It is 13 °C.", True)
    assert ("Let me look that up.", True) in texts
    assert [event["status"] for event in seen if event["type"] == "tool"] == ["started", "called", "returned"]
    assert (seen[-1]["type"], seen[-1]["settled"], seen[-1]["run"]["persistence"]) == ("end", True, "saved")


async def test_a_clean_503_is_sent_again_under_its_id_after_what_the_gateway_says(visit: Visit) -> None:
    ids: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST":
            ids.append(body_of(request)["submission_id"])

    visit.page.on("request", note)
    supervisor = visit.served.replica.gateway.supervisor
    supervisor.draining = True
    following = asyncio.create_task(visit.page.evaluate(FOLLOW, submission(visit, "draining")))
    await visit.page.wait_for_function("() => window.seen?.some((event) => event.state === 'retrying')")
    supervisor.draining = False
    seen = await following
    waited = next(event["waitSeconds"] for event in seen if event.get("state") == "retrying")
    assert waited >= 1
    assert (len(ids), len(set(ids))) == (2, 1)
    assert seen[-1]["run"]["execution"] == "succeeded"
    assert await visit.runs() == [("succeeded", "saved")]


async def test_a_refusal_is_one_event_and_nothing_is_sent_again(visit: Visit) -> None:
    seen = await visit.page.evaluate(FOLLOW, submission(visit, "contraband"))
    assert [event["type"] for event in seen] == ["connection", "problem"]
    assert (seen[-1]["problem"]["code"], seen[-1]["problem"]["retry"]) == ("moderation_refused", "new-submission")


async def test_polling_is_bounded_by_what_the_gateway_says_and_keeps_the_items(visit: Visit) -> None:
    visit.served.answer("polled", *beginning("So far"), ending="reset", ends_as="success")
    seen = await visit.page.evaluate(FOLLOW, submission(visit, "polled"))
    assert (seen[-1]["type"], seen[-1]["run"]["persistence"]) == ("end", "incomplete")
    assert [item["text"] for event in seen if event["type"] == "items" for item in event["items"]][-1] == "So far"


async def test_looking_at_a_run_that_does_not_end_is_over_after_a_while(visit: Visit) -> None:
    """Thirty looks, as far apart as the gateway says; then it is for a person to look again."""
    await visit.page.clock.install()
    await visit.page.evaluate(
        """async () => {
          const { GatewayClient } = await import("/static/gateway-client.js");
          const asked = (window.asked = []);
          const run = { run_id: "r", execution: "unknown", poll_after_seconds: 30, snapshot: null };
          const client = new GatewayClient({ fetch: async () => (asked.push(Date.now()), Response.json(run)) });
          (async () => {
            for await (const event of client.poll("app", "r", new AbortController().signal)) window.last = event;
            window.over = true;
          })();
        }"""
    )
    while not await visit.page.evaluate("() => window.over"):
        await visit.page.clock.fast_forward(30_000)
    times = await visit.page.evaluate("() => asked")
    assert len(times) == 30
    assert all(later - earlier >= 30_000 for earlier, later in pairwise(times))
    last = await visit.page.evaluate("() => last")
    assert (last["type"], last["settled"], last["run"]["execution"]) == ("end", False, "unknown")


async def test_leaving_stops_nothing_and_the_run_is_watched_from_its_beginning(visit: Visit) -> None:
    visit.served.answer("left", *beginning("One"), gate("left"), *in_three_parts(stop="left")[-1:])
    await visit.page.evaluate(
        """async ([app, submission]) => {
          const { GatewayClient } = await import("/static/gateway-client.js");
          const leaving = new AbortController();
          for await (const event of new GatewayClient().submit(app, submission, leaving.signal)) {
            if (event.type === "run") window.run = event.run;
            if (event.type === "text" && event.text) break;
          }
        }""",
        submission(visit, "left"),
    )
    visit.served.stack.upstream.release("left")
    seen = await visit.page.evaluate(
        """async (app) => {
          const { GatewayClient } = await import("/static/gateway-client.js");
          const seen = [];
          for await (const event of new GatewayClient().watch(app, window.run.run_id, new AbortController().signal)) seen.push(event);
          return seen;
        }""",
        str(visit.application),
    )
    assert [event["text"] for event in seen if event["type"] == "text"][-1] == "One"
    assert seen[-1]["run"]["execution"] == "succeeded"
    assert await visit.runs() == [("succeeded", "saved")]


async def test_the_outbox_keeps_the_id_of_a_message_until_it_is_answered(visit: Visit) -> None:
    script = """async () => {
      const { Outbox } = await import("/static/gateway-client.js");
      const outbox = new Outbox(sessionStorage, "test");
      return [outbox.pending, outbox.put({ text: "a" }), outbox.put({ text: "a" }), outbox.put({ text: "b" })];
    }"""
    pending, first, same, other = await visit.page.evaluate(script)
    assert (pending, first) == (None, same)
    assert first["submissionId"] != other["submissionId"]
    await visit.page.reload()
    await expect(visit.text).to_be_visible()
    kept = await visit.page.evaluate(
        """async () => {
          const { Outbox } = await import("/static/gateway-client.js");
          const outbox = new Outbox(sessionStorage, "test");
          const kept = outbox.pending;
          outbox.drop("another");
          const still = outbox.pending;
          outbox.drop(kept.submissionId);
          return [kept, still, outbox.pending];
        }"""
    )
    assert kept == [other, other, None]
