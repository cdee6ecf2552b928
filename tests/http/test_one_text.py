"""One canonical text (O-27): what was moderated is what is stored, fingerprinted and sent, byte for byte, for every shape of request."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

import psycopg
import pytest

from gateway.domain.ids import ApplicationId
from tests.support.moderation_corpus import INNOCENTS, RULES
from tests.support.moderator import moderator_server
from tests.support.stack import Client, Stack, parse_events

pytestmark = pytest.mark.anyio

TEXT: Final = 'Größe 🙂 \u200d می\u200cخواهم "\\/ \u2028 \u0085 \t\r\n ﬀ \ufeffx \U0010ffff end '


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be").hex()
    return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'


SHAPES: Final[dict[str, Callable[[dict[str, Any]], bytes]]] = {
    "utf-8": lambda body: json.dumps(body, ensure_ascii=False).encode(),
    "escapes": lambda body: json.dumps(body, ensure_ascii=True).encode(),
    "needless escapes": lambda body: ("{" + ",".join(f"{_escaped(name)}:{_escaped(value)}" for name, value in body.items()) + "}").encode(),
    "blanks": lambda body: json.dumps(body, ensure_ascii=False, indent=3).encode(),
    "other order": lambda body: json.dumps(dict(reversed(body.items())), ensure_ascii=False).encode(),
    "null conversation": lambda body: json.dumps({"conversation_id": None, **body}).encode(),
}


async def send(ada: Client, application: ApplicationId, raw: bytes, accept: str) -> str:
    """The conversation that a body of bytes was taken into."""
    headers = {**ada.headers, "Content-Type": "application/json", "Accept": accept}
    answer = await ada.http.post(f"/api/internal/apps/{application}/agent/runs", content=raw, headers=headers)
    if accept == "text/event-stream":
        assert answer.status_code == 200, answer.text
        return str(parse_events(answer.content)[0].data["threadId"])
    assert answer.status_code == 202, answer.text
    await ada.until_over(application, answer.json()["run_id"])
    return str(answer.json()["conversation_id"])


@pytest.mark.parametrize("kind", ["openai", "webhook"])
async def test_o27_what_upstream_got_is_what_was_moderated_for_every_shape(database_url: str, kind: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server(kind) as moderator:
        application = await stack.application()
        settings = stack.settings(GATEWAY_MODERATION=f"local,{moderator.named}", GATEWAY_MODERATION_SECONDS="30")
        ada = (await stack.replica(settings)).client("ada")
        conversations: list[str] = []
        number = 0
        for shape, written in SHAPES.items():
            for accept in ("application/json", "text/event-stream"):
                for conversation_id in (None, *conversations[:1]):
                    number += 1
                    text = f"{number} {TEXT}"
                    body = {"submission_id": f"s{number}", "text": text}
                    if conversation_id is not None and shape != "null conversation":
                        body["conversation_id"] = conversation_id
                    conversations.append(await send(ada, application, written(body), accept))
                    where = (shape, accept, conversation_id)
                    asked = moderator.bodies()[-1]
                    assert (asked["input"] if kind == "openai" else asked["text"]) == text, where
                    post = stack.upstream.posts[-1]
                    assert post.text.encode() == text.encode(), where
                    said = [item["text"] for item in await ada.items(application, conversations[-1]) if item.get("role") == "user"]
                    assert said[-1].encode() == text.encode(), where
        assert len(moderator.asked) == len(stack.upstream.posts) == number
        with psycopg.connect(stack.database_url) as connection:
            rows = connection.execute(
                "select i.text, v.text_sha256, s.fingerprint from item i join run r on r.run_id = i.run_id"
                " join submission s on s.run_id = i.run_id join moderation_verdict v on v.run_id = i.run_id where i.position = 0"
            ).fetchall()
        assert len(rows) == 2 * number
        for text, digest, fingerprint in rows:
            assert digest == hashlib.sha256(text.encode()).digest()
            assert fingerprint == hashlib.sha256(json.dumps(["task", text], separators=(",", ":")).encode()).digest()


async def test_o47_innocents_are_stored_and_sent_byte_for_byte(database_url: str, tmp_path: Any) -> None:
    deny_file = tmp_path / "deny"
    deny_file.write_text("\n".join(RULES), encoding="utf-8")
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        settings = stack.settings(GATEWAY_MODERATION="local", GATEWAY_MODERATION_DENY_FILE=str(deny_file))
        ada = (await stack.replica(settings)).client("ada")
        for number, text in enumerate(INNOCENTS):
            response, events = await ada.ask(application, f"s{number}", text)
            assert response.status_code == 200, (ascii(text), response.text)
            assert events[-1].type == "RUN_FINISHED"
        assert [post.text.encode() for post in stack.upstream.posts] == [text.encode() for text in INNOCENTS]
        with psycopg.connect(stack.database_url) as connection:
            stored = connection.execute(
                "select convert_to(i.text, 'UTF8') from item i join submission s on s.run_id = i.run_id where i.position = 0"
                " order by substr(s.submission_id, 2)::integer"
            ).fetchall()
        assert [bytes(row[0]) for row in stored] == [text.encode() for text in INNOCENTS]
        refused = await ada.submit(application, "evasion", "for\u200bbidden")
        assert refused.json()["code"] == "moderation_refused"
