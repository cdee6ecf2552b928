"""Moderators that are services over HTTP: the shape of OpenAI's /v1/moderations, and a plain webhook. A reply is believed only whole.

Within the caller's time, with a bounded reply, and at most one retry, where the connection broke or the service failed: asking twice harms
nobody. No redirects, no environment proxies, addresses judged where connections are made: all that is `http_client`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.admission.moderation import Asked, Judgement, NotJudged, Provider
from gateway.domain import strict_json
from gateway.domain.strict_json import Json
from gateway.http_client import CallFault, HttpClient, Reply
from gateway.upstream.endpoint import ServiceToken

MAX_REPLY_BYTES: Final = 64 * 1024
"""Real verdicts have about 2 KiB."""
UNSPECIFIED: Final = "unspecified"
"""The category of a refusal that names none."""

_MAX_CATEGORIES: Final = 64
_CATEGORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./ -]{0,63}")
_VERSION: Final = re.compile(r"[\x21-\x7e]{1,100}")
_BROKE: Final = frozenset({CallFault.NOT_CONNECTED, CallFault.DISCONNECTED, CallFault.REPLY_CUT})
_MALFORMED: Final = "reply_malformed"


@dataclass(frozen=True, slots=True)
class Service:
    """Where a moderator is asked, and as whom. `seconds`: for one call."""

    client: HttpClient
    url: str
    token: ServiceToken | None
    seconds: float

    async def ask(self, body: Mapping[str, object]) -> dict[str, Json]:
        """The object that the service answered with status 200. Raises NotJudged."""
        sent = orjson.dumps(body)
        reply = await self._call(sent)
        if reply in _BROKE or (isinstance(reply, Reply) and reply.status >= 500):
            reply = await self._call(sent)
        if isinstance(reply, CallFault):
            raise NotJudged(reply.value)
        if reply.status != 200:
            raise NotJudged(f"status_{reply.status}")
        try:
            told = strict_json.loads(reply.body)
        except strict_json.NotStrictJson:
            raise NotJudged(_MALFORMED) from None
        if not isinstance(told, dict):
            raise NotJudged(_MALFORMED)
        return told

    async def _call(self, body: bytes) -> Reply | CallFault:
        headers = {} if self.token is None else {"Authorization": self.token.authorization()}
        return await self.client.post_json(self.url, headers=headers, body=body, deadline_seconds=self.seconds, max_bytes=MAX_REPLY_BYTES)


@dataclass(frozen=True, slots=True)
class OpenAIModerator:
    """`{"input"}` -> `{"model", "results": [{"flagged", "categories": {name: bool}}]}`; a category may also be null, which is no."""

    service: Service
    provider = Provider.OPENAI

    async def judge(self, asked: Asked) -> Judgement:
        told = await self.service.ask({"input": asked.text})
        results = told.get("results")
        if not isinstance(results, list) or len(results) != 1 or not isinstance(results[0], dict):
            raise NotJudged(_MALFORMED)
        flagged, categories = results[0].get("flagged"), results[0].get("categories")
        if (
            not isinstance(categories, dict)
            or not categories
            or not all(value is None or isinstance(value, bool) for value in categories.values())
        ):
            raise NotJudged(_MALFORMED)
        return _judgement(_negated(flagged), [name for name, value in categories.items() if value], told.get("model"))


@dataclass(frozen=True, slots=True)
class WebhookModerator:
    """`{"text", "context"}` -> `{"allowed": bool, "categories": [text]}`, with `version` as the service likes, and categories exactly where
    the text is not allowed."""

    service: Service
    provider = Provider.WEBHOOK

    async def judge(self, asked: Asked) -> Judgement:
        context = {"kind": asked.kind.value, "app_id": str(asked.application_id), "account_id": str(asked.account_id)}
        told = await self.service.ask({"text": asked.text, "context": context})
        categories = told.get("categories")
        if not isinstance(categories, list):
            raise NotJudged(_MALFORMED)
        return _judgement(told.get("allowed"), categories, told.get("version"))


def _negated(flagged: Json) -> Json:
    return not flagged if isinstance(flagged, bool) else None


def _judgement(allowed: Json, categories: list[Json] | list[str], version: Json) -> Judgement:
    """The verdict, if it is one: a yes or a no of that type, categories that can be shown, and no yes that names any."""
    named = tuple(dict.fromkeys(name for name in categories if isinstance(name, str) and _CATEGORY.fullmatch(name)))
    if not isinstance(allowed, bool) or len(categories) > _MAX_CATEGORIES or len(named) != len(categories) or (allowed and named):
        raise NotJudged(_MALFORMED)
    told_version = version if isinstance(version, str) and _VERSION.fullmatch(version) else None
    return Judgement(() if allowed else named or (UNSPECIFIED,), told_version)
