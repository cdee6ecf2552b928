"""Approval when more happens than one question and one answer: a reload, another replica, lost access, others at the server, its death."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.domain.fault_points import FaultPoint, Moment, Step
from tests.native.scene import Scene
from tests.support.agent_service_server import TOKEN, agent_service_process, free_port
from tests.support.held import Held
from tests.support.native_client import NativeClient
from tests.support.native_servers import NativeServer
from tests.support.stack import Client, Stack, parse_events, text_of

pytestmark = pytest.mark.anyio


async def test_a_reload_shows_the_question_again_on_any_replica_and_decides_nothing(scene: Scene) -> None:
    async with scene.ada.stream(scene.application, "s1", "ask") as response:
        asked = parse_events(await response.aread())
    end = asked[-1].data
    assert (end["type"], end["outcome"]["type"]) == ("RUN_FINISHED", "interrupt")
    run = await scene.ada.run(scene.application, end["runId"])
    assert run["execution"] == "waiting"
    assert [one["id"] for one in end["outcome"]["interrupts"]] == [run["interrupt"]["interrupt_id"]]

    other = (await scene.stack.replica()).client("ada")
    for client in (scene.ada, other, scene.ada):
        conversation = await client.conversation(scene.application, run["conversation_id"])
        assert conversation["active_run"]["interrupt"] == run["interrupt"]
        assert conversation["blocked"] == "waiting_for_decision"
        async with client.watch(scene.application, run["run_id"]) as response:
            watched = parse_events(await response.aread())
        assert watched[-1].data["outcome"] == end["outcome"]
        assert text_of(watched) == text_of(asked) == "I need your confirmation."
    assert await scene.acts() == []

    resume = await scene.decide(run, "approve", "Go.", by=other)
    assert resume["execution"] == "succeeded"
    async with scene.ada.watch(scene.application, resume["run_id"]) as response:
        decided = parse_events(await response.aread())
    assert (decided[-1].type, decided[-1].data.get("outcome")) == ("RUN_FINISHED", None)
    assert text_of(decided).endswith("You chose to approve.")
    assert await scene.acts() == [{"action": "approve", "comment": "Go."}]
    conversation = await scene.ada.conversation(scene.application, run["conversation_id"])
    assert (conversation["active_run"], conversation["blocked"]) == (None, "task_already_done")

    told = json.dumps([run, resume, conversation, *(event.data for event in (*asked, *watched, *decided))])
    assert [native_id for native_id in await scene.native_ids() if native_id in told] == [], "no id of the server's leaves the gateway"


async def test_who_does_not_see_the_application_any_more_decides_nothing(scene: Scene) -> None:
    run = await scene.ask("ask")
    await scene.sql("update application set visibility = 'private'")
    refused = await scene.ada.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d1", "approve")
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    await scene.sql("update application set visibility = 'public', enabled = false")
    refused = await scene.ada.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d1", "approve")
    assert (refused.status_code, refused.json()["code"]) == (409, "app_disabled")
    assert await scene.acts() == []
    await scene.sql("update application set enabled = true")
    assert (await scene.decide(run, "reject"))["execution"] == "succeeded"
    assert await scene.acts() == [{"action": "reject"}]


async def test_a_question_that_somebody_answered_at_the_server_is_not_answered_again(scene: Scene) -> None:
    run = await scene.ask("ask")
    [(thread_id,)] = await scene.sql("select thread_id from binding")
    direct = NativeClient.of(scene.server)
    [pending] = await direct.pending(thread_id)
    await direct.resume(thread_id, {pending["id"]: {"action": "reject"}})
    released = await scene.decide(run, "approve")
    assert (released["execution"], released["reason"]) == ("released", "interrupt_changed")
    assert await scene.acts() == [{"action": "reject"}]
    runs = await direct.runs(thread_id)
    assert len(runs) == 2, "the gateway sent nothing"
    await direct.http.aclose()


async def test_a_question_that_another_took_the_place_of_is_not_answered(scene: Scene) -> None:
    run = await scene.ask("ask")
    [(thread_id,)] = await scene.sql("select thread_id from binding")
    direct = NativeClient.of(scene.server)
    replaced = await direct.begin(thread_id, "ask")
    if scene.server.name == "agent-service":
        assert replaced.status == 400, "it keeps its prompt"
    else:
        released = await scene.decide(run, "approve")
        assert (released["execution"], released["reason"]) == ("released", "interrupt_changed")
    assert await scene.acts() == []
    await direct.http.aclose()


async def hesitant_decision(scene: Scene, held: Held) -> tuple[dict[str, Any], dict[str, Any], Client]:
    """A question with an end, and a decision that was taken in time by a replica that holds there; with that replica's client."""
    ada = (await scene.stack.replica(at=held.at)).client("ada")
    for seconds in (4, 16, 64):  # the first is long enough for a machine with time
        run = await scene.ask(f"ask {await scene.on_time(seconds)}", f"s{seconds}")
        answer = await ada.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], f"d{seconds}", "approve")
        if answer.status_code == 202:
            return run, answer.json(), ada
        assert answer.json()["code"] == "interrupt_expired"
    raise AssertionError("no question was shown in time")


async def test_a_question_that_expires_between_its_display_and_the_decision_is_not_answered(scene: Scene) -> None:
    """By the database's clock: what was decided in time and comes to its fence too late is released, what is decided late is refused."""
    held = Held(FaultPoint(Moment.BEFORE, Step.FENCE))
    run, decision, ada = await hesitant_decision(scene, held)
    async with asyncio.timeout(60):
        await held.reached.wait()
    await scene.sql("select pg_sleep(greatest(extract(epoch from max(expires_at) - clock_timestamp()), 0)) from interrupt")
    held.go_on.set()
    released = await ada.until_over(scene.application, decision["run_id"])
    assert (released["execution"], released["reason"]) == ("released", "interrupt_expired")
    for client, choice in ((scene.ada, "approve"), (ada, "reject")):
        late = await client.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], f"late-{choice}", choice)
        assert (late.status_code, late.json()["code"]) == (409, "interrupt_expired")
    after = await scene.ada.run(scene.application, run["run_id"])
    assert (after["execution"], after["answered_by"], after["interrupt"]) == ("waiting", None, run["interrupt"])
    conversation = await scene.ada.conversation(scene.application, run["conversation_id"])
    assert (conversation["blocked"], conversation["active_run"]["interrupt"]) == ("waiting_for_decision", run["interrupt"])
    [(thread_id,)] = await scene.sql(f"select thread_id from binding where conversation_id = '{run['conversation_id']}'")
    direct = NativeClient.of(scene.server)
    assert (len(await direct.pending(thread_id)), len(await direct.runs(thread_id))) == (1, 1), "the server was told nothing"
    await direct.http.aclose()
    assert await scene.acts() == []


async def test_a_question_that_has_an_end_is_answered_before_it(scene: Scene) -> None:
    run = await scene.ask("ask 2099-12-31T23:59:59.5+01:00")
    assert run["interrupt"]["expires_at"] == "2099-12-31T22:59:59.500000Z"
    assert (await scene.decide(run, "approve", "in time"))["execution"] == "succeeded"
    assert await scene.acts() == [{"action": "approve", "comment": "in time"}]


ROUNDS = 2


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(10, marks=pytest.mark.slow)])
async def test_two_decisions_at_the_same_moment_on_two_replicas_have_one_effect(scene: Scene, rounds: int) -> None:
    other = (await scene.stack.replica()).client("ada")
    for number in range(rounds):
        run = await scene.ask("ask", f"s{number}")
        interrupt_id = run["interrupt"]["interrupt_id"]
        second = "approve" if number % 2 else "reject"
        answers = await asyncio.gather(
            scene.ada.decide(scene.application, run["run_id"], interrupt_id, f"a{number}", "approve"),
            other.decide(scene.application, run["run_id"], interrupt_id, f"b{number}", second),
        )
        assert sorted(answer.status_code for answer in answers) == [202, 409]
        won, lost = sorted((answer.json() for answer in answers), key=lambda told: "code" in told)
        assert (lost["code"], lost["run_id"]) == ("interrupt_not_pending", won["run_id"])
        assert (await other.until_over(scene.application, won["run_id"]))["execution"] == "succeeded"
        assert len(await scene.acts()) == number + 1


# A server that dies and comes back, which only our own does here within a test's time


def served_again(tmp_path: Path, port: int, folder: Path) -> Any:
    """agent-service with the tests' graph on a port, in a process of its own."""
    given = ("--agent", "tests.upstreams.graphs:graph", "--port", str(port))
    return agent_service_process(tmp_path, *given, GRAPH_FOLDER=str(folder))


def acts_in(folder: Path) -> list[Mapping[str, Any]]:
    file = folder / "acts.jsonl"
    return [json.loads(line)["answer"] for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


async def waiting_run(stack: Stack, port: int, text: str = "ask") -> Scene:
    replica = await stack.replica()
    application = await stack.application_of(f"http://127.0.0.1:{port}", TOKEN)
    server = NativeServer("agent-service", f"http://127.0.0.1:{port}", TOKEN, Path(), 0, ())
    return Scene(server, stack, replica, application, replica.client("ada"))


async def test_a_decision_while_the_server_is_away_is_released_and_made_again(database_url: str, tmp_path: Path) -> None:
    port = free_port()
    async with Stack.over(database_url) as stack:
        async with served_again(tmp_path, port, tmp_path):
            scene = await waiting_run(stack, port)
            run = await scene.ask("ask")
        away = await scene.decide(run, "approve")
        assert (away["execution"], away["reason"]) == ("released", "thread_failed"), (
            "its capabilities were known, its state was not to be had"
        )
        assert (await scene.ada.run(scene.application, run["run_id"]))["answered_by"] is None
        async with served_again(tmp_path, port, tmp_path):
            again = await scene.decide(run, "approve", submission_id="d2")
        assert (again["execution"], again["persistence"]) == ("succeeded", "saved")
        assert acts_in(tmp_path) == [{"action": "approve"}]


async def test_a_decision_that_its_server_died_on_is_never_sent_again(database_url: str, tmp_path: Path) -> None:
    port, gate = free_port(), uuid4().hex
    async with Stack.over(database_url) as stack:
        async with served_again(tmp_path, port, tmp_path) as (process, _):
            scene = await waiting_run(stack, port)
            run = await scene.ask(f"ask-wait {gate}")
            answer = await scene.ada.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d1", "approve")
            async with asyncio.timeout(30):
                while not (tmp_path / f"{gate}.reached").exists():
                    await asyncio.sleep(0.02)
            process.kill()
            await process.wait()
            unknown = await scene.ada.until_over(scene.application, answer.json()["run_id"])
            assert unknown["execution"] == "unknown"
        (tmp_path / f"{gate}.open").touch()
        async with served_again(tmp_path, port, tmp_path):
            path = f"/api/internal/apps/{scene.application}/agent/runs/{unknown['run_id']}"
            await scene.ada.http.post(f"{path}/refresh", headers=scene.ada.headers)
            async with asyncio.timeout(30):
                while (settled := (await scene.ada.get(path)).json())["execution"] == "unknown":
                    await asyncio.sleep(0.05)
            late = await scene.ada.decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d2", "approve")
        assert settled["execution"] == "failed"
        assert (late.status_code, late.json()["code"]) == (409, "interrupt_not_pending")
        assert acts_in(tmp_path) == []
