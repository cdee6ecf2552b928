"""The scripted upstream does what a script says, byte for byte, and its counts and signals tell the truth.

Read over plain sockets where bytes matter, since an HTTP client would hide how an answer ended.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.scripted_upstream import (
    DEFAULT_TOKEN,
    Answer,
    Ending,
    Script,
    ScriptedUpstream,
    event,
    failed,
    finished,
    gate,
    raw,
    script_from_json,
    script_to_json,
    started,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def upstream(anyio_backend: str) -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as running:
        yield running


@pytest.fixture
async def client(upstream: ScriptedUpstream) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {upstream.token}"}
    async with httpx.AsyncClient(base_url=upstream.base_url, headers=headers, trust_env=False) as opened:
        yield opened


def body(thread_id: str, *, run_id: str = "run-1", text: str = "hello", message_id: str = "m-1") -> dict[str, object]:
    return {
        "threadId": thread_id,
        "runId": run_id,
        "messages": [{"id": message_id, "role": "user", "content": text}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }


async def thread(client: httpx.AsyncClient) -> str:
    return str((await client.post("/threads", json={})).json()["thread_id"])


async def wire(upstream: ScriptedUpstream, thread_id: str) -> tuple[bytes, bytes, str]:
    """POST over a bare socket: head, all further bytes, and how the connection ended (eof or reset)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(upstream.base_url.rsplit(":", 1)[1]))
    sent = json.dumps(body(thread_id)).encode()
    lines = [
        "POST /ag-ui HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {upstream.token}",
        f"Content-Length: {len(sent)}",
        "Connection: close",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
    received, ended = b"", "eof"
    try:
        while piece := await reader.read(65536):
            received += piece
    except ConnectionResetError:
        ended = "reset"
    writer.close()
    headers, _, rest = received.partition(b"\r\n\r\n")
    return headers, rest, ended


def types(text: str) -> list[str]:
    return [json.loads(line[6:])["type"] for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.anyio
async def test_without_a_script_it_is_a_good_upstream(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    assert (await client.get("/capabilities")).json()["assistant_id"] == "agent"
    thread_id = await thread(client)
    answer = await client.post("/ag-ui", json=body(thread_id, text="Grüße"))
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert types(answer.text)[:2] == ["RUN_STARTED", "CUSTOM"]
    assert types(answer.text)[-1] == "RUN_FINISHED"
    assert '"delta":"Grüße"' in answer.text
    native = upstream.posts[0].native_run_id
    look_up = await client.get(f"/threads/{thread_id}/runs/{native}")
    assert look_up.json() == {"thread_id": thread_id, "run_id": native, "status": "success"}
    counts = upstream.counts()
    assert (counts.capabilities, counts.threads, counts.ag_ui, counts.executions, counts.lookups) == (1, 1, 1, 1, 1)
    assert counts.connections == 1, "connections are kept alive"
    assert counts.executions_by_text == {"Grüße": 1}
    assert json.loads(upstream.posts[0].body) == body(thread_id, text="Grüße")


@pytest.mark.anyio
async def test_what_a_good_upstream_refuses_is_no_execution(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    thread_id = await thread(client)
    refused = [
        await client.post("/ag-ui", json=body(thread_id), headers={"Authorization": "Bearer wrong"}),
        await client.post("/ag-ui", json=body("no-such-thread")),
        await client.post("/ag-ui", content=b"{"),
        await client.get("/ag-ui"),
        await client.get(f"/threads/{thread_id}/runs/none"),
        await client.get("/nowhere"),
    ]
    assert [answer.status_code for answer in refused] == [401, 404, 422, 405, 404, 404]
    assert upstream.counts().executions == 0
    assert upstream.counts().ag_ui == 3


@pytest.mark.anyio
async def test_answers_come_in_order_and_the_last_repeats(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(
        Script(
            capabilities=[Answer(http_status=503, body=b"busy", headers={"Content-Type": "text/html", "Retry-After": "1"}), Answer()],
            threads=[Answer(redirect="http://127.0.0.1:1/elsewhere"), Answer(json={"thread_id": "scripted"})],
            thread_ids=["same", "same"],
        )
    )
    first = await client.get("/capabilities")
    assert (first.status_code, first.content, first.headers["retry-after"]) == (503, b"busy", "1")
    assert [(await client.get("/capabilities")).status_code for _ in range(2)] == [200, 200]
    moved = await client.post("/threads", json={})
    assert (moved.status_code, moved.headers["location"]) == (307, "http://127.0.0.1:1/elsewhere")
    assert [await thread(client), await thread(client)] == ["scripted", "scripted"]
    assert (await client.post("/ag-ui", json=body("scripted"))).status_code == 200
    upstream.use(Script(thread_ids=["same", "same"]))
    ids = [await thread(client) for _ in range(3)]
    assert ids[:2] == ["same", "same"]
    assert ids[2] != "same"


@pytest.mark.anyio
async def test_one_text_can_have_answers_of_its_own(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(Script(any_thread=True, ag_ui_by_text={"fail": [Answer(http_status=500)]}, ag_ui=[Answer(frames=[*started(), failed()])]))
    assert (await client.post("/ag-ui", json=body("t", text="fail"))).status_code == 500
    assert types((await client.post("/ag-ui", json=body("t", text="other"))).text)[-1] == "RUN_ERROR"
    assert upstream.counts().executions_by_text == {"other": 1}
    assert upstream.run_status("run-1") == "error"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("ending", "tail", "ended"),
    [("clean", b"0\r\n\r\n", "eof"), ("unfinished", b"", "eof"), ("mid_chunk", b"400\r\ndata: ", "eof"), ("reset", b"", "reset")],
)
async def test_a_cut_after_a_frame_ends_as_told(upstream: ScriptedUpstream, ending: Ending, tail: bytes, ended: str) -> None:
    upstream.use(Script(any_thread=True, ag_ui=[Answer(cut_after_frame=2, ending=ending)]))
    head, rest, how = await wire(upstream, "t")
    assert b"transfer-encoding: chunked" in head
    assert rest.count(b"data: {") == 2
    assert rest.endswith(b"\n\n\r\n" + tail)
    assert how == ended
    assert upstream.posts[0].frames_written == 2
    assert upstream.run_status("run-1") == "success", "the run itself went on to its end"


@pytest.mark.anyio
@pytest.mark.parametrize("cut", [0, 1, 20, 75])
async def test_a_cut_at_any_byte(upstream: ScriptedUpstream, cut: int) -> None:
    whole = b'data: {"type":"RUN_STARTED","threadId":"t","runId":"run-1"}\n\n'
    upstream.use(Script(any_thread=True, ag_ui=[Answer(framing="close", cut_after_bytes=cut)]))
    head, rest, ended = await wire(upstream, "t")
    assert b"transfer-encoding" not in head
    assert len(rest) == cut
    assert rest[: len(whole)] == whole[:cut]
    assert ended == "eof"


@pytest.mark.anyio
async def test_every_byte_in_a_chunk_of_its_own(upstream: ScriptedUpstream) -> None:
    upstream.use(Script(any_thread=True, ag_ui=[Answer(frames=[event("X"), raw(b"\xff\r\n")], chunk_bytes=1, newline="\r\n")]))
    _, rest, _ = await wire(upstream, "t")
    written = b'data: {"type":"X"}\r\n\r\n\xff\r\n'
    assert rest == b"".join(b"1\r\n%c\r\n" % byte for byte in written) + b"0\r\n\r\n"


@pytest.mark.anyio
async def test_a_length_framed_stream_that_is_cut(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(Script(any_thread=True, ag_ui=[Answer(framing="length"), Answer(framing="length", cut_after_bytes=100)]))
    assert types((await client.post("/ag-ui", json=body("t"))).text)[-1] == "RUN_FINISHED"
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post("/ag-ui", json=body("t"))


@pytest.mark.anyio
async def test_gates_hold_the_stream_and_the_signals_say_where(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(Script(any_thread=True, one_run_per_thread=True, ag_ui=[Answer(frames=[*started(), gate("go"), finished()])]))
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(client.post("/ag-ui", json=body("t")))
        post = await upstream.executed(1)
        await upstream.frame_written(2)
        await upstream.waiting_at("go")
        assert post.frames_written == 2
        assert upstream.run_status("run-1") == "running"
        assert (await client.post("/ag-ui", json=body("t", run_id="run-2"))).status_code == 409
        upstream.release("go")
    assert types(sending.result().text)[-1] == "RUN_FINISHED"
    assert upstream.counts().executions == 1


@pytest.mark.anyio
async def test_a_client_that_leaves_does_not_stop_the_run(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(Script(any_thread=True, ag_ui=[Answer(frames=[*started(), gate("go"), finished()])]))
    async with client.stream("POST", "/ag-ui", json=body("t")) as answer:
        await anext(answer.aiter_lines())
    await upstream.client_gone(1)
    assert upstream.run_status("run-1") == "running"
    upstream.release("go")
    await upstream.ended(1)
    assert upstream.run_status("run-1") == "success"
    assert upstream.posts[0].frames_written == 2


@pytest.mark.anyio
async def test_overlapping_executions_are_seen(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(Script(any_thread=True, ag_ui=[Answer(frames=[*started(), gate("go"), finished()])]))
    async with asyncio.TaskGroup() as group:
        for run_id in ("run-1", "run-2"):
            group.create_task(client.post("/ag-ui", json=body("t", run_id=run_id)))
        await upstream.executed(2)
        upstream.release()
    assert upstream.counts().overlapping_executions == 1


@pytest.mark.anyio
@pytest.mark.parametrize("moment", ["before_body", "after_request"])
async def test_connections_that_close_or_reset_instead_of_answering(
    upstream: ScriptedUpstream, client: httpx.AsyncClient, moment: str
) -> None:
    plans = json.dumps({"any_thread": True, "ag_ui": [{"close": moment}, {"reset": moment, "executes": True}]})
    upstream.use(script_from_json(plans))
    for _ in range(2):
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
            await client.post("/ag-ui", json=body("t"))
    by_text = json.dumps({"any_thread": True, "ag_ui_by_text": {"hello": [{"close": moment}]}})
    upstream.use(script_from_json(by_text if moment == "before_body" else plans))
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
        await client.post("/ag-ui", json=body("t"))
    counts = upstream.counts()
    assert counts.ag_ui == (3 if moment == "after_request" else 1), "by text it is known only once it was read"
    assert counts.executions == (1 if moment == "after_request" else 0)


@pytest.mark.anyio
async def test_connection_plans_and_a_closed_port(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(Script(connections=["close", "reset", "hang", "serve"]))
    for _ in range(2):
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
            await client.get("/capabilities")
    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(client.get("/capabilities"))
        await upstream.connected(3)
        assert (await client.get("/capabilities")).status_code == 200
        hanging.cancel()
    await upstream.refuse()
    async with httpx.AsyncClient(base_url=upstream.base_url, trust_env=False) as fresh:
        with pytest.raises(httpx.ConnectError):
            await fresh.get("/capabilities")
        await upstream.listen()
        assert (await fresh.get("/capabilities")).status_code == 401


@pytest.mark.anyio
async def test_hang_and_stall_until_the_client_leaves(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(Script(any_thread=True, ag_ui=[Answer(hang=True), Answer(cut_after_frame=1, ending="stall")]))
    for number, executions in ((1, 0), (2, 1)):
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(client.post("/ag-ui", json=body("t")))
            await upstream.received(number)
            if executions:
                await upstream.frame_written(1, post=number)
            sending.cancel()
        await upstream.ended(number)
        assert upstream.posts[number - 1].client_gone
        assert upstream.counts().executions == executions


@pytest.mark.anyio
async def test_look_ups_say_what_is_scripted(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
    upstream.use(
        Script(
            any_thread=True,
            lookup=[Answer(), Answer(http_status=500), Answer(json={"thread_id": "{threadId}", "run_id": "other", "status": "success"})],
            lookup_status={"run-1": "running"},
            ag_ui=[Answer(native_run_id="{runId}")],
        )
    )
    await client.post("/ag-ui", json=body("t"))
    assert upstream.posts[0].native_run_id == "run-1"
    seen = [await client.get("/threads/t/runs/run-1") for _ in range(3)]
    assert seen[0].json() == {"thread_id": "t", "run_id": "run-1", "status": "running"}
    assert seen[1].status_code == 500
    assert seen[2].json() == {"thread_id": "t", "run_id": "other", "status": "success"}
    await upstream.looked_up(3)
    assert upstream.counts().lookups_by_native_run_id == {"run-1": 3}


@pytest.mark.anyio
async def test_a_signal_that_does_not_come_says_so(upstream: ScriptedUpstream) -> None:
    with pytest.raises(TimeoutError, match=r"no POST 1 within 0.01 s; Counts\(connections=0"):
        await upstream.received(1, timeout_seconds=0.01)


def test_a_script_is_the_same_thing_as_json() -> None:
    script = Script(
        ag_ui=[Answer(frames=[*started(), raw("x"), gate("g")], cut_after_bytes=3, ending="reset")],
        ag_ui_by_text={"a": [Answer(http_status=429, body="slow down")]},
        connections=["reset", "serve"],
    )
    again = script_from_json(script_to_json(script))
    assert again.ag_ui == script.ag_ui
    assert script_to_json(again) == script_to_json(script)
    with pytest.raises(ValueError, match="unknown_knob"):
        script_from_json('{"unknown_knob": 1}')


@pytest.mark.anyio
async def test_another_process_scripts_waits_and_releases() -> None:
    arguments = ["-m", "tests.support.scripted_upstream", "--port", "0"]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        told = json.loads(await process.stdout.readline())
        headers = {"Authorization": f"Bearer {told['token']}"}
        assert told["token"] == DEFAULT_TOKEN
        async with httpx.AsyncClient(base_url=told["base_url"], headers=headers, trust_env=False) as client:
            script = Script(any_thread=True, ag_ui=[Answer(frames=[*started(), gate("go"), finished()])])
            assert (await client.put("/_script", content=script_to_json(script))).status_code == 200
            assert (await client.put("/_script", json={"nonsense": 1})).status_code == 422
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(client.post("/ag-ui", json=body("t", text="from elsewhere")))
                waited = await client.get("/_wait", params={"what": "executed", "number": 1})
                assert waited.json()["executions"] == 1
                for signalled in ("frame_written&number=2&post=1", "waiting_at&gate=go"):
                    assert (await client.get(f"/_wait?what={signalled}")).status_code == 200
                assert (await client.get("/_wait?what=nothing")).status_code == 422
                late = await client.get("/_wait", params={"what": "ended", "timeout_seconds": 0.01})
                assert late.status_code == 408
                await client.post("/_release", json={"gate": "go"})
            assert types(sending.result().text)[-1] == "RUN_FINISHED"
            posts = (await client.get("/_posts")).json()
            assert [(post["text"], post["frames_written"]) for post in posts] == [("from elsewhere", 3)]
            await client.post("/_reset")
            assert (await client.get("/_counts")).json()["ag_ui"] == 0
    finally:
        process.terminate()
        assert await process.wait() == 0
