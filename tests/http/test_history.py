"""Conversations and items over HTTP: order, pages, unsaved answers, rename, delete (field cases O-03, O-42; contract D10)."""

import asyncio
import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.snapshot import Item, MessageItem, Snapshot, ToolItem, ToolStatus, item_id, sha256
from gateway.store.statements import statement
from tests.http.world import World

pytestmark = pytest.mark.anyio

ANSWER: tuple[Item, ...] = (
    MessageItem(1, "m1", True),
    ToolItem(2, "search", ToolStatus.RETURNED, 1),
    ToolItem(3, "sum", ToolStatus.CALLED, None),
    MessageItem(4, "m2 \u2028 \U0001f600", True),
)


@dataclass
class Writer:
    """Writes conversations of one user as admission and saving would."""

    world: World
    application_id: ApplicationId
    subject: str
    account_id: UUID

    def conversation(self, title: str = "title", *, updated_at: str = "2026-01-01T00:00:00Z") -> UUID:
        conversation_id = uuid4()
        self.world.sql(
            "insert into conversation (conversation_id, application_id, account_id, title, updated_at) values (%s, %s, %s, %s, %s)",
            conversation_id,
            self.application_id,
            self.account_id,
            title,
            updated_at,
        )
        return conversation_id

    def run(
        self,
        conversation_id: UUID,
        sequence: int,
        *,
        execution: str = "succeeded",
        persistence: str = "saved",
        reason: str | None = None,
        outcome: str | None = None,
        items: Sequence[Item] = (),
        text: str = "hello",
        created_at: str = "2026-01-01T00:00:00Z",
    ) -> RunId:
        """A run with its user message, and its items where `persistence` says they are: rows when saved, else a snapshot."""
        run_id = RunId(uuid4())
        active = execution in ("reserved", "dispatched", "running", "unknown")
        slot = self.world.sql("select count(*) + 1 from run where user_slot is not null")[0][0] if active else None
        self.world.sql(
            "insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, persistence, reason,"
            " attempt_token, correlation_id, config_version, token_version, user_slot, application_slot, fence_at, lease_until,"
            " resolution_outcome, resolution_reason, resolved_at, created_at, finished_at)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 1, 0, %s, %s, now(), now(), %s, %s, case when %s::text is null then null"
            " else now() end, %s, case when %s then now() end)",
            run_id, self.account_id, self.application_id, conversation_id, str(uuid4()), sequence, execution, persistence, reason,
            uuid4(), uuid4(), slot, slot, outcome, outcome and "because", outcome, created_at,
            execution in ("succeeded", "failed", "released", "closed"),
        )  # fmt: skip
        self._item(run_id, conversation_id, sequence, 0, "message", "user", text, True, created_at=created_at)
        if persistence == "saved":
            for item in items:
                if isinstance(item, MessageItem):
                    self._item(
                        run_id, conversation_id, sequence, item.position, "message", "assistant", item.text, item.complete,
                        created_at=created_at,
                    )  # fmt: skip
                else:
                    self._item(
                        run_id, conversation_id, sequence, item.position, "tool", name=item.name, status=item.status.value,
                        parent=item.parent, created_at=created_at,
                    )  # fmt: skip
        elif items:
            body = Snapshot(tuple(items), persistence == "pending").canonical()
            self.world.sql(
                "insert into snapshot (run_id, revision, complete, body, sha256) values (%s, 1, %s, %s, %s)",
                run_id, persistence == "pending", body, sha256(body),
            )  # fmt: skip
        return run_id

    def _item(
        self,
        run_id: RunId,
        conversation_id: UUID,
        sequence: int,
        position: int,
        kind: str,
        role: str | None = None,
        text: str | None = None,
        complete: bool | None = None,
        *,
        name: str | None = None,
        status: str | None = None,
        parent: int | None = None,
        created_at: str,
    ) -> None:
        self.world.sql(
            "insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete, name, status,"
            " parent_position, created_at) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            run_id, position, conversation_id, sequence, item_id(run_id, position), kind, role, text, complete, name, status, parent,
            created_at,
        )  # fmt: skip

    async def get(self, path: str, **query: object) -> Any:
        answer = await self.world.client.get(
            f"{self.world.agent(self.application_id)}/conversations{path}",
            headers=self.world.bearer(self.subject),
            params={name: str(value) for name, value in query.items()},
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def items(self, conversation_id: UUID, *, limit: int | None = None, newest: bool = False) -> list[Any]:
        """All items in order, page by page; with `newest` from the end."""
        found: list[Any] = []
        query: dict[str, object] = {} if limit is None else {"limit": limit}
        if newest:
            query["newest"] = "true"
        while True:
            page = await self.get(f"/{conversation_id}/items", **query)
            assert limit is None or len(page["items"]) <= limit
            found = page["items"] + found if newest else found + page["items"]
            if page["next"] is None:
                return found
            query["cursor"] = page["next"]


@pytest.fixture
def writer(world: World) -> Writer:
    subject = f"writer-{uuid4()}"
    return Writer(world, world.application(), subject, world.account(subject))


async def test_o42_order_is_sequence_and_position_whatever_the_clock_says(writer: Writer) -> None:
    conversation_id = writer.conversation()
    # One timestamp for all rows of a run, and the clock set back an hour between the two runs.
    first = writer.run(conversation_id, 1, items=ANSWER, text="first", created_at="2026-01-01T12:00:00Z")
    second = writer.run(conversation_id, 2, items=ANSWER, text="second", created_at="2026-01-01T11:00:00Z")
    expected = [(str(run_id), position) for run_id in (first, second) for position in range(5)]
    for _ in range(50):
        page = await writer.get(f"/{conversation_id}/items")
        assert [(item["run_id"], item["position"]) for item in page["items"]] == expected
        assert page["next"] is None
    paged = await writer.items(conversation_id, limit=2)
    assert paged == page["items"]
    assert await writer.items(conversation_id, limit=3, newest=True) == page["items"]
    assert (await writer.get(f"/{conversation_id}/items", newest="true", limit=3))["items"] == page["items"][-3:]
    assert len({item["item_id"] for item in paged}) == 10


async def test_items_as_documented(writer: Writer) -> None:
    conversation_id = writer.conversation()
    run_id = writer.run(conversation_id, 1, items=ANSWER, text="question")
    common = {"run_id": str(run_id)}
    ids = [str(item_id(run_id, position)) for position in range(5)]
    assert await writer.items(conversation_id) == [
        common
        | {"type": "message", "item_id": ids[0], "role": "user", "text": "question", "complete": True, "state": "accepted", "position": 0},
        common | {"type": "message", "item_id": ids[1], "role": "assistant", "text": "m1", "complete": True, "position": 1},
        common | {"type": "tool", "item_id": ids[2], "name": "search", "status": "returned", "parent_item_id": ids[1], "position": 2},
        common | {"type": "tool", "item_id": ids[3], "name": "sum", "status": "called", "parent_item_id": None, "position": 3},
        common
        | {"type": "message", "item_id": ids[4], "role": "assistant", "text": "m2 \u2028 \U0001f600", "complete": True, "position": 4},
    ]


@pytest.mark.parametrize(
    ("execution", "persistence"),
    [("running", "partial"), ("unknown", "partial"), ("succeeded", "pending"), ("succeeded", "incomplete"), ("failed", "incomplete")],
)
async def test_what_is_not_saved_is_shown_from_the_snapshot_as_it_will_be_saved(writer: Writer, execution: str, persistence: str) -> None:
    items = (*ANSWER[:3], MessageItem(4, 'cut "off" \\ here', False))
    saved, unsaved = writer.conversation(), writer.conversation()
    writer.run(saved, 1, items=items)
    writer.run(unsaved, 1, items=ANSWER)
    run_id = writer.run(unsaved, 2, execution=execution, persistence=persistence, items=items)
    shown = await writer.items(unsaved, limit=2)
    assert len(shown) == 10
    unstable = {"run_id", "item_id", "parent_item_id"}
    reference = await writer.items(saved)
    assert [{k: v for k, v in item.items() if k not in unstable} for item in shown[5:]] == [
        {k: v for k, v in item.items() if k not in unstable} for item in reference
    ]
    assert [item["item_id"] for item in shown[5:]] == [str(item_id(run_id, position)) for position in range(5)]
    assert shown[7]["parent_item_id"] == str(item_id(run_id, 1))


async def test_a_snapshot_beside_saved_items_is_not_shown_twice(writer: Writer) -> None:
    conversation_id = writer.conversation()
    run_id = writer.run(conversation_id, 1, items=ANSWER)
    body = Snapshot(ANSWER, True).canonical()
    writer.world.sql("insert into snapshot values (%s, 1, true, %s, %s)", run_id, body, sha256(body))
    assert len(await writer.items(conversation_id)) == 5
    writer.world.sql("update run set persistence = 'pending' where run_id = %s", run_id)
    assert len(await writer.items(conversation_id)) == 5


@pytest.mark.parametrize(
    ("run", "state"),
    [
        ({"execution": "reserved", "persistence": "none"}, "accepted"),
        ({"execution": "unknown", "persistence": "none"}, "accepted"),
        ({"execution": "succeeded"}, "accepted"),
        ({"execution": "failed", "reason": "upstream_error"}, "accepted"),
        ({"execution": "failed", "reason": "upstream_rejected"}, "failed"),
        ({"execution": "failed", "reason": "thread_gone"}, "failed"),
        ({"execution": "released", "persistence": "none", "reason": "not_sent"}, "not_sent"),
        ({"execution": "closed", "persistence": "none", "outcome": "not_executed"}, "not_sent"),
        ({"execution": "closed", "persistence": "none", "outcome": "failed"}, "accepted"),
    ],
)
async def test_what_became_of_a_user_message(writer: Writer, run: dict[str, str], state: str) -> None:
    conversation_id = writer.conversation()
    writer.run(conversation_id, 1, **run)  # type: ignore[arg-type]
    assert [item["state"] for item in await writer.items(conversation_id)] == [state]


async def test_conversations_newest_activity_first_page_by_page(writer: Writer) -> None:
    # Three of them share a moment: the id decides, and no page loses or repeats one.
    moments = ["2026-01-03T00:00:00.000001Z", *["2026-01-02T00:00:00Z"] * 3, "2026-01-01T00:00:00Z"]
    made = [writer.conversation(f"c{number}", updated_at=moment) for number, moment in enumerate(moments)]
    for conversation_id in made:
        writer.run(conversation_id, 1)
    found, query = [], {"limit": 2}
    while True:
        page = await writer.get("", **query)
        found += page["conversations"]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert [UUID(one["conversation_id"]) for one in found] == [made[0], *sorted(made[1:4], reverse=True), made[4]]
    assert found[0]["updated_at"] == "2026-01-03T00:00:00.000001Z"
    assert {one["blocked"] for one in found} == {None}
    assert await writer.get(f"/{made[0]}") == found[0]


async def test_only_released_runs_are_not_listed_but_can_be_read(writer: Writer) -> None:
    conversation_id = writer.conversation()
    writer.run(conversation_id, 1, execution="released", persistence="none", reason="not_sent")
    assert (await writer.get(""))["conversations"] == []
    assert (await writer.get(f"/{conversation_id}"))["blocked"] is None
    writer.run(conversation_id, 2)
    assert len((await writer.get(""))["conversations"]) == 1


@pytest.mark.parametrize(
    ("execution", "persistence", "blocked"),
    [
        ("running", "partial", "run_active"),
        ("unknown", "none", "run_active"),
        ("succeeded", "pending", "save_pending"),
        ("succeeded", "incomplete", "incomplete_answer"),
        ("waiting", "none", "waiting_for_decision"),
    ],
)
async def test_what_blocks_is_told_with_its_run(writer: Writer, execution: str, persistence: str, blocked: str) -> None:
    conversation_id = writer.conversation()
    run_id = writer.run(conversation_id, 1, execution=execution, persistence=persistence, items=ANSWER)
    (one,) = (await writer.get(""))["conversations"]
    assert one["blocked"] == blocked
    assert one["active_run"]["run_id"] == str(run_id)
    assert one["active_run"]["snapshot"] is None


@pytest.mark.parametrize("listed", [True, False])
async def test_what_blocks_and_its_run_are_of_one_moment(writer: Writer, listed: bool) -> None:
    """Whoever asks while a run ends is told how it was before or how it is after, and never one half of each."""
    conversation_id = writer.conversation()
    run_id = writer.run(conversation_id, 1, persistence="pending", items=ANSWER)
    with psycopg.connect(writer.world.connection.info.dsn) as ending:
        # Whatever reads the run's question waits here, with what it has read before.
        ending.execute("lock table interrupt in access exclusive mode")
        reading = asyncio.create_task(writer.get("" if listed else f"/{conversation_id}"))
        while not writer.world.sql("select 1 from pg_locks where not granted and relation = 'interrupt'::regclass"):
            await asyncio.sleep(0.01)
        ending.execute("update run set persistence = 'saved' where run_id = %s", (run_id,))
    found = await reading
    one = found["conversations"][0] if listed else found
    told = one["blocked"], one["active_run"] and one["active_run"]["persistence"]
    assert told in ((None, None), ("save_pending", "pending"))


async def test_a_block_for_good_has_no_run(writer: Writer) -> None:
    conversation_id = writer.conversation()
    writer.run(conversation_id, 1)
    writer.world.sql("update conversation set blocked_reason = 'thread_gone' where conversation_id = %s", conversation_id)
    (one,) = (await writer.get(""))["conversations"]
    assert (one["blocked"], one["active_run"]) == ("thread_gone", None)


async def test_limits_and_cursors_are_checked(writer: Writer) -> None:
    first, second = writer.conversation(), writer.conversation()
    for conversation_id in (first, second):
        writer.run(conversation_id, 1, items=ANSWER)
    of_items = (await writer.get(f"/{first}/items", limit=1))["next"]
    of_conversations = (await writer.get("", limit=1))["next"]
    flipped = base64.urlsafe_b64encode(bytes(byte ^ 1 for byte in base64.urlsafe_b64decode(of_items + "=" * (-len(of_items) % 4)))).decode()
    queries = ["limit=0", "limit=201", "limit=-1", "limit=1.5", "limit=x", "limit=", "limit=1&limit=2", "limit=%D9%A1", "cursor="]
    queries += [f"cursor={bad}" for bad in ("x", "AAAA", "%00", "a" * 201, flipped, of_items[:-2], "é", of_items + "&cursor=" + of_items)]
    base = f"{writer.world.agent(writer.application_id)}/conversations"
    headers = writer.world.bearer(writer.subject)
    addresses = [f"{base}/{first}/items?{query}" for query in queries] + [f"{base}?{query}" for query in queries]
    # A cursor belongs to its list.
    addresses += [
        f"{base}/{second}/items?cursor={of_items}",
        f"{base}?cursor={of_items}",
        f"{base}/{first}/items?cursor={of_conversations}",
        f"{base}/{first}/items?newest=true&cursor={of_items}",
        f"{base}/{first}/items?newest=1",
    ]
    for address in addresses:
        answer = await writer.world.client.get(address, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request"), address
    for good in ("limit=1", "limit=200", "limit=50&other=x"):
        assert (await writer.world.client.get(f"{base}?{good}", headers=headers)).status_code == 200


async def test_rename(writer: Writer) -> None:
    older = writer.conversation(updated_at="2026-01-01T00:00:00Z")
    newer = writer.conversation(updated_at="2026-01-02T00:00:00Z")
    for conversation_id in (older, newer):
        writer.run(conversation_id, 1)
    address = f"{writer.world.agent(writer.application_id)}/conversations/{older}"
    headers = writer.world.bearer(writer.subject)

    async def patch(document: object) -> tuple[int, Any]:
        answer = await writer.world.client.patch(address, headers=headers, json=document)
        return answer.status_code, answer.json()

    status, renamed = await patch({"title": "  Grüße \U0001f600 "})
    assert (status, renamed["title"]) == (200, "Grüße \U0001f600")
    assert await patch({"title": "x" * 200}) == (200, renamed | {"title": "x" * 200})
    assert [one["conversation_id"] for one in (await writer.get(""))["conversations"]] == [str(newer), str(older)]
    for document, expected in (
        ({"title": " \n "}, (422, "invalid_text")),
        ({"title": "a\0b"}, (422, "invalid_text")),
        ({"title": "\ud800"}, (422, "invalid_text")),
        ({"title": "x" * 201}, (422, "text_too_long")),
        ({"title": 1}, (400, "malformed_request")),
        ({}, (400, "malformed_request")),
        ({"title": "a", "owner": "b"}, (400, "malformed_request")),
        (["title"], (400, "malformed_request")),
    ):
        answer = await writer.world.client.patch(
            address, headers=headers | {"Content-Type": "application/json"}, content=json.dumps(document)
        )
        assert (answer.status_code, answer.json()["code"]) == expected
    assert (await writer.get(f"/{older}"))["title"] == "x" * 200


async def test_delete_is_once_and_tells_what_it_did_not_do(writer: Writer) -> None:
    conversation_id = writer.conversation()
    run_id = writer.run(conversation_id, 1, execution="running", persistence="partial", items=ANSWER)
    address = f"{writer.world.agent(writer.application_id)}/conversations/{conversation_id}"
    headers = writer.world.bearer(writer.subject)
    answer = await writer.world.client.delete(address, headers=headers)
    receipt = answer.json()
    assert (answer.status_code, receipt["conversation_id"], receipt["active_run_id"]) == (200, str(conversation_id), str(run_id))
    assert [part["what"] for part in receipt["deleted"]] == ["history"]
    assert {part["what"] for part in receipt["not_deleted"]} >= {"upstream_memory", "backups"}
    # The run goes on; every later operation is refused as for an id that never was.
    assert writer.world.sql("select execution from run where run_id = %s", run_id) == [("running",)]
    runs = f"{writer.world.agent(writer.application_id)}/runs"
    later = [
        await writer.world.client.delete(address, headers=headers),
        await writer.world.client.get(address, headers=headers),
        await writer.world.client.get(f"{address}/items", headers=headers),
        await writer.world.client.patch(address, headers=headers, json={"title": "x"}),
        await writer.world.client.get(f"{runs}/{run_id}", headers=headers),
        await writer.world.client.get(f"{runs}/{run_id}/events", headers=headers),
        await writer.world.client.post(
            runs, headers=headers, json={"submission_id": "s", "text": "t", "conversation_id": str(conversation_id)}
        ),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in later] == [(404, "not_found")] * len(later)
    assert (await writer.get(""))["conversations"] == []


async def test_pages_are_read_by_their_indexes(writer: Writer) -> None:
    conversation_id = writer.conversation()
    for sequence in range(1, 4):
        writer.run(conversation_id, sequence, items=ANSWER)
    writer.world.sql(
        "insert into conversation (conversation_id, application_id, account_id, title)"
        " select gen_random_uuid(), %s, %s, 'c' from generate_series(1, 2000)",
        writer.application_id,
        writer.account_id,
    )
    writer.world.sql(
        "insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, persistence,"
        " attempt_token, correlation_id, config_version, token_version, fence_at, finished_at)"
        " select gen_random_uuid(), account_id, application_id, conversation_id, conversation_id::text, 1, 'succeeded', 'saved',"
        " gen_random_uuid(), gen_random_uuid(), 1, 0, now(), now() from conversation where title = 'c'"
    )
    writer.world.sql(
        "insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete)"
        " select r.run_id, n, r.conversation_id, 1, gen_random_uuid(), 'message', case n when 0 then 'user' else 'assistant' end, 't', true"
        " from run r join conversation c using (conversation_id) cross join generate_series(0, 4) n where c.title = 'c'"
    )
    for table in ("conversation", "run", "item", "snapshot"):
        writer.world.sql(f"analyze {table}")
    owner = {"account_id": writer.account_id, "application_id": writer.application_id, "limit": 51}
    pages = (
        ("history.items", owner | {"conversation_id": conversation_id, "sequence": 1, "position": 2, "step": 1}),
        ("history.items", owner | {"conversation_id": conversation_id, "sequence": 3, "position": 2, "step": -1}),
        ("history.conversations", owner | {"conversation_id": None, "after_at": datetime.now(UTC), "after_id": conversation_id}),
        ("history.conversations", owner | {"conversation_id": conversation_id, "after_at": None, "after_id": None}),
    )
    for name, params in pages:
        plan = writer.world.connection.execute(f"explain {statement(name).text}".encode(), params).fetchall()
        text = "\n".join(line for (line,) in plan)
        assert not re.search(r"Seq Scan on (conversation|run|item)\b", text), text
