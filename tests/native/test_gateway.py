"""Human approval end to end: the gateway before real native servers (contract E1 to E8)."""

from uuid import uuid4

import pytest

from tests.native.scene import Scene
from tests.upstreams.graphs import CANARY, PROMPT

pytestmark = pytest.mark.anyio


async def test_a_task_without_a_question_is_saved_and_is_the_only_one(scene: Scene) -> None:
    run = await scene.ask("hello")
    assert (run["execution"], run["persistence"], run["reason"], run["interrupt"]) == ("succeeded", "saved", None, None)
    assert await scene.said(run) == ["hello", "Hello from the fake model."]
    again = await scene.ada.submit(scene.application, "s2", "and?", run["conversation_id"])
    assert (again.status_code, again.json()["code"]) == (409, "task_already_done")
    conversation = await scene.ada.conversation(scene.application, run["conversation_id"])
    assert (conversation["blocked"], conversation["active_run"]) == ("task_already_done", None)


async def test_tool_steps_keep_their_place_and_nothing_of_their_contents(scene: Scene) -> None:
    run = await scene.ask("tool")
    assert (run["execution"], run["persistence"]) == ("succeeded", "saved")
    assert "get_weather" in await scene.said(run)
    assert CANARY not in str(await scene.sql("select text from item")) + str(run)


@pytest.mark.parametrize(("decision", "comment"), [("approve", None), ("reject", "not now, 你好")])
async def test_a_question_is_shown_and_its_answer_delivered_once(scene: Scene, decision: str, comment: str | None) -> None:
    run = await scene.ask("ask")
    assert (run["execution"], run["persistence"], run["kind"], run["answered_by"]) == ("waiting", "saved", "task", None)
    interrupt = run["interrupt"]
    assert (interrupt["title"], interrupt["description"], interrupt["actions"]) == (
        PROMPT["title"],
        PROMPT["description"],
        PROMPT["actions"],
    )
    assert (await scene.ada.conversation(scene.application, run["conversation_id"]))["active_run"] == {**run, "snapshot": None}
    assert await scene.acts() == []

    resume = await scene.decide(run, decision, comment)
    assert (resume["execution"], resume["persistence"], resume["kind"]) == ("succeeded", "saved", "resume")
    expected = {"action": decision} if comment is None else {"action": decision, "comment": comment}
    assert await scene.acts() == [expected]
    said = await scene.said(run)
    assert said[:2] == ["ask", "I need your confirmation."]
    assert said[-1] == f"You chose to {decision}."
    after = await scene.ada.run(scene.application, run["run_id"])
    assert (after["execution"], after["answered_by"], after["interrupt"]) == ("waiting", resume["run_id"], interrupt)
    late = await scene.ada.decide(scene.application, run["run_id"], interrupt["interrupt_id"], "d2", "approve")
    assert (late.status_code, late.json()["code"], late.json()["run_id"]) == (409, "interrupt_not_pending", resume["run_id"])
    replay = await scene.ada.decide(scene.application, run["run_id"], interrupt["interrupt_id"], "d1", decision, comment)
    assert (replay.status_code, replay.headers["Idempotent-Replayed"], replay.json()["run_id"]) == (200, "true", resume["run_id"])
    assert await scene.sql("select count(*) from quota_charge") == [(0,)]
    assert await scene.acts() == [expected]


async def test_a_second_question_needs_a_second_decision(scene: Scene) -> None:
    run = await scene.ask("ask-twice")
    first = await scene.decide(run, "approve")
    assert (first["execution"], first["kind"], first["interrupt"]["title"]) == ("waiting", "resume", "Really?")
    assert await scene.acts() == []
    second = await scene.decide(first, "reject", submission_id="d2")
    assert second["execution"] == "succeeded"
    assert await scene.acts() == [{"action": "reject"}]


async def test_the_time_to_decide_is_the_databases(scene: Scene) -> None:
    run = await scene.ask("ask 2020-01-01T00:00:00Z")
    assert (run["execution"], run["interrupt"]["expires_at"]) == ("waiting", "2020-01-01T00:00:00.000000Z")
    late = await scene.ada.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d1", "approve")
    assert (late.status_code, late.json()["code"]) == (409, "interrupt_expired")
    assert await scene.acts() == []


@pytest.mark.parametrize("form", ["ask-two", "ask-other"])
async def test_other_forms_are_refused_and_never_reduced(scene: Scene, form: str) -> None:
    run = await scene.ask(form)
    assert (run["execution"], run["reason"], run["interrupt"]) == ("failed", "interrupt_unsupported", None)
    again = await scene.ada.submit(scene.application, "s2", "and?", run["conversation_id"])
    assert (again.status_code, again.json()["blocked"]) == (409, "interrupt_unsupported")


@pytest.mark.parametrize("task", ["fail", "fail-late"])
async def test_errors_are_failures_whose_texts_go_nowhere(scene: Scene, task: str, capfd: pytest.CaptureFixture[str]) -> None:
    run = await scene.ask(task)
    assert (run["execution"], run["reason"]) == ("failed", "upstream_error")
    rows = await scene.sql("select row_to_json(r)::text from run r union all select row_to_json(e)::text from evidence e")
    rows += await scene.sql("select convert_from(body, 'UTF8') from snapshot union all select text from item")
    told = str(run) + str(rows) + "".join(capfd.readouterr())
    assert "abc123" not in told
    assert "/srv/app" not in told


async def test_who_lost_access_decides_nothing(scene: Scene) -> None:
    run = await scene.ask("ask")
    await scene.sql("update account set state = 'suspended'")
    refused = await scene.ada.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d1", "approve")
    assert (refused.status_code, refused.json()["code"]) == (403, "account_inactive")
    assert await scene.acts() == []


async def test_another_question_than_the_one_shown_is_not_answered(scene: Scene) -> None:
    run = await scene.ask("ask")
    wrong = await scene.ada.decide(scene.application, run["run_id"], str(uuid4()), "d1", "approve")
    assert (wrong.status_code, wrong.json()["code"]) == (409, "interrupt_not_pending")
    foreign = await scene.replica.client("bob").decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d1", "approve")
    assert foreign.status_code == 404
    await scene.sql("update interrupt set native_id = repeat('0', 32)")  # what is saved is not what is asked at the service
    released = await scene.decide(run, "approve", submission_id="d2")
    assert (released["execution"], released["reason"]) == ("released", "interrupt_changed")
    assert (await scene.ada.run(scene.application, run["run_id"]))["answered_by"] is None
    assert await scene.acts() == []
