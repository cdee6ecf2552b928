"""Moderation of what people write: the protocol of moderators, and the one place where a text is shown to them (contract C3, E6).

A moderator says "allowed" or names categories. Anything else, an error or a time-out included, refuses: there is no failing open. What was
said is kept as verdicts, with the text's digest and never the text: of an admitted text in the transaction that admits it, of any other
here. The moderators themselves are `local_rules` and `moderator_services`; which of them are asked is `chains`.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

import structlog

from gateway.domain.ids import AccountId, ApplicationId, SubmissionId
from gateway.domain.problems import Code, Refused
from gateway.metrics import MODERATOR, Metrics
from gateway.store import moderation as store
from gateway.store.database import Database
from gateway.store.errors import StoreError

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.admission.moderation")


class TextKind(StrEnum):
    """What a text is to us; the schema's verdict_text_kind_known has the same list."""

    MESSAGE = "message"
    """A user's message: the text of a task."""
    COMMENT = "comment"
    """What a person adds to a decision (contract E6)."""


class Provider(StrEnum):
    """What kinds of moderators there are; the schema's verdict_provider_known has the same list."""

    NONE = "none"
    """The chain is empty: nobody was asked, and the verdict says so."""
    LOCAL = "local"
    OPENAI = "openai"
    WEBHOOK = "webhook"


class Outcome(StrEnum):
    """What became of asking a moderator; the schema's verdict_outcome_known has the same list."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Asked:
    """One text as a moderator sees it: exactly the characters that are stored and sent if it is allowed, and by whom, for what."""

    text: str = field(repr=False)
    kind: TextKind
    account_id: AccountId
    application_id: ApplicationId


@dataclass(frozen=True, slots=True)
class Judgement:
    """A moderator's complete verdict. `categories` is empty exactly when the text is allowed. `version`: of its rules or its model."""

    categories: tuple[str, ...] = ()
    version: str | None = None

    @property
    def allowed(self) -> bool:
        return not self.categories


class NotJudged(Exception):
    """No complete verdict came. `fault` is a word of ours (letters, digits, underscores), for the verdict's row; nobody else is told."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault


class Moderator(Protocol):
    """Judges a text. Whatever it raises counts as "could not be checked" and refuses the submission."""

    @property
    def provider(self) -> Provider: ...

    async def judge(self, asked: Asked) -> Judgement: ...


@dataclass(frozen=True, slots=True)
class Opinion:
    """Who was asked, and how long that took."""

    provider: Provider
    version: str | None
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class Passed:
    """A text that every moderator of its chain allowed. Only `Moderation.check` makes one, and nothing is admitted without."""

    kind: TextKind
    text_sha256: bytes
    chain_id: UUID | None
    opinions: tuple[Opinion, ...]

    def params(self) -> dict[str, object]:
        """The parameters of statements that write the verdicts with what they admit."""
        return {
            "text_sha256": self.text_sha256,
            "chain_id": self.chain_id,
            "providers": [opinion.provider.value for opinion in self.opinions],
            "versions": [opinion.version for opinion in self.opinions],
            "durations": [opinion.duration_seconds for opinion in self.opinions],
        }


_NOBODY: Final = Opinion(Provider.NONE, None, 0.0)

_ADVICE: Final = {
    "secret": "It seems to hold a password, key or token. Take that out; if it was real, replace it where it is used.",
    "card_number": "It seems to hold the number of a payment card. Take that out.",
}
_OTHER_ADVICE: Final = "It breaks this service's rules on content. Rephrase it."


@dataclass(frozen=True, slots=True)
class Moderation:
    """Shows texts to chains. `chain_of` gives the moderators of a chain; None is the chain of the settings. `seconds`: for each of them."""

    database: Database
    chain_of: Callable[[UUID | None], Awaitable[Sequence[Moderator]]]
    seconds: float
    clock: Callable[[], float]
    metrics: Metrics = field(default_factory=Metrics)

    async def check(self, asked: Asked, submission_id: SubmissionId, chain_id: UUID | None) -> Passed:
        """Ask each moderator of the chain in turn. Raises Refused: moderation_refused, or moderation_unavailable for any failure.

        The one way for all that people write: a message with TextKind.MESSAGE, the comment of a decision with TextKind.COMMENT, under the
        submission id of that decision. A decision without a comment has no text, and is not shown to anybody. What comes back goes, as
        its `params`, into the transaction that admits the text; of a text that is refused the verdicts are written here, and the caller
        has nothing to undo. Asking takes up to `seconds` a moderator, so no lock and no transaction may be held meanwhile.
        """
        verdicts = _Verdicts(Passed(asked.kind, hashlib.sha256(asked.text.encode("utf-8")).digest(), chain_id, ()), asked, submission_id)
        try:
            chain = await self.chain_of(chain_id)
        except NotJudged as error:
            await self._note(verdicts.and_then(_NOBODY), Outcome.UNAVAILABLE, fault=error.fault)
            raise Refused(Code.MODERATION_UNAVAILABLE) from None
        for moderator in chain:
            began_at = self.clock()
            fault = "failed"
            judgement: Judgement | None = None
            try:
                async with asyncio.timeout(self.seconds):
                    judgement = await moderator.judge(asked)
            except TimeoutError:
                fault = "timed_out"
            except NotJudged as error:
                fault = error.fault
            except Exception as error:  # noqa: BLE001 - failing closed means: whatever it was, the text was not checked
                _log.error("moderator_failed", provider=moderator.provider.value, error=type(error).__name__)
            version = judgement.version if judgement else None
            took = max(self.clock() - began_at, 0.0)
            verdicts = verdicts.and_then(Opinion(moderator.provider, version, took))
            self.metrics.observe(MODERATOR, took, moderator.provider.value, _outcome(judgement).value)
            if judgement is None:
                await self._note(verdicts, Outcome.UNAVAILABLE, fault=fault)
                raise Refused(Code.MODERATION_UNAVAILABLE)
            if not judgement.allowed:
                await self._note(verdicts, Outcome.REFUSED, categories=judgement.categories)
                raise _refused(judgement.categories)
        return verdicts.passed if chain else verdicts.and_then(_NOBODY).passed

    async def _note(self, verdicts: "_Verdicts", outcome: Outcome, *, categories: Sequence[str] = (), fault: str | None = None) -> None:
        asked = verdicts.asked
        params = {
            **verdicts.passed.params(),
            "account_id": asked.account_id,
            "application_id": asked.application_id,
            "submission_id": verdicts.submission_id,
            "text_kind": asked.kind.value,
            "outcome": outcome.value,
            "categories": list(categories),
            "fault": fault,
        }
        try:
            await store.note_without_run(self.database, params)
        except StoreError as error:
            # Refused all the same: the row is what is missing, not the refusal.
            _log.error("verdict_not_kept", outcome=outcome.value, error=type(error).__name__)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """What was said so far of one text."""

    passed: Passed
    asked: Asked
    submission_id: SubmissionId

    def and_then(self, opinion: Opinion) -> "_Verdicts":
        return replace(self, passed=replace(self.passed, opinions=(*self.passed.opinions, opinion)))


def _outcome(judgement: Judgement | None) -> Outcome:
    if judgement is None:
        return Outcome.UNAVAILABLE
    return Outcome.ALLOWED if judgement.allowed else Outcome.REFUSED


def _refused(categories: Sequence[str]) -> Refused:
    advice = dict.fromkeys(_ADVICE.get(category, _OTHER_ADVICE) for category in categories)
    return Refused(Code.MODERATION_REFUSED, extra={"categories": list(categories), "advice": " ".join(advice)})
