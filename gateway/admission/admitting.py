"""What is admitted, and the one transaction that admits it: a task by admit_v3, a decision by decide_v1. What may be, says `gate`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from gateway.admission.moderation import Passed
from gateway.admission.validation import title_of
from gateway.domain.fault_points import Step
from gateway.domain.ids import AccountId, ApplicationId, AttemptToken, ConversationId, CorrelationId, RunId
from gateway.domain.limits import ActiveLimits
from gateway.domain.quota import RuleState, rule_states
from gateway.domain.snapshot import USER_POSITION, item_id
from gateway.domain.submission import Decision, Submission
from gateway.identity.accounts import Access
from gateway.store import admission as store
from gateway.store import approval
from gateway.store.admission import AdmitRow
from gateway.store.applications import UsableRow
from gateway.store.database import Transaction

_NOT_MODERATED: Final[Mapping[str, object]] = {"text_sha256": None, "chain_id": None, "providers": [], "versions": [], "durations": []}


@dataclass(frozen=True, slots=True)
class Limits:
    """What admission holds a run to."""

    active: ActiveLimits
    lease_seconds: float
    quota_zone: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A submission that passed every check before admission. `passed` is None where there is no text: a decision without a comment."""

    access: Access
    application_id: ApplicationId
    submission: Submission | Decision
    passed: Passed | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The submission was admitted before, by whomever; `run_id` is its one run."""

    access: Access
    run_id: RunId


@dataclass(frozen=True, slots=True)
class Admitted:
    """A run that this process, and nobody else, may execute: it holds the attempt token. `quota`: the rules that it was charged to.

    `usable`: its application as admission read it; None: to be read again (the answer was lost, or it is a decision).
    """

    access: Access
    run_id: RunId
    account_id: AccountId
    application_id: ApplicationId
    conversation_id: ConversationId
    submission: Submission | Decision
    attempt_token: AttemptToken
    correlation_id: CorrelationId
    config_version: int
    token_version: int
    created_at: datetime
    quota: tuple[RuleState, ...] = ()
    usable: UsableRow | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Admitting:
    """One admission with the ids that it keeps over its attempts."""

    checked: Checked
    run_id: RunId
    attempt_token: AttemptToken
    correlation_id: CorrelationId
    new_conversation_id: ConversationId

    async def write(self, tx: Transaction, limits: Limits) -> AdmitRow:
        """Admit inside `tx`; the caller commits or rolls back by the verdict."""
        submission = self.checked.submission
        params = self._params(submission, limits)
        if isinstance(submission, Submission):
            return await store.admit(tx, {**params, **self._task_params(submission, limits)})
        return await approval.decide(tx, {**params, **_decision_params(submission)})

    @property
    def step(self) -> Step:
        """Which commit of a run it is."""
        return Step.ADMISSION if isinstance(self.checked.submission, Submission) else Step.DECISION

    def _params(self, submission: Submission | Decision, limits: Limits) -> dict[str, object]:
        return {
            "account_id": self.checked.access.account_id,
            "subject": self.checked.access.subject,
            "claimed_groups": sorted(self.checked.access.claimed_groups),
            "application_id": self.checked.application_id,
            "submission_id": submission.submission_id,
            "fingerprint": submission.fingerprint(),
            "run_id": self.run_id,
            "attempt_token": self.attempt_token,
            "correlation_id": self.correlation_id,
            "max_per_user": limits.active.per_user,
            "max_per_application": limits.active.per_application,
            "lease_seconds": limits.lease_seconds,
            **(self.checked.passed.params() if self.checked.passed else _NOT_MODERATED),
        }

    def _task_params(self, task: Submission, limits: Limits) -> dict[str, object]:
        return {
            "conversation_id": task.conversation_id,
            "client_thread": task.client_thread,
            "new_conversation_id": self.new_conversation_id,
            "title": title_of(task.text),
            "item_id": item_id(self.run_id, USER_POSITION),
            "text": task.text,
            "groups": sorted(self.checked.access.groups),
            "quota_zone": limits.quota_zone,
        }

    def admitted(self, row: AdmitRow) -> Admitted:
        assert row.conversation_id is not None
        assert row.config_version is not None
        assert row.token_version is not None
        assert row.created_at is not None
        admitted = self.admitted_as(ConversationId(row.conversation_id), row.config_version, row.token_version, row.created_at)
        return replace(admitted, quota=rule_states(row.quota), usable=row.usable(self.checked.application_id))

    def admitted_as(self, conversation_id: ConversationId, config_version: int, token_version: int, created_at: datetime) -> Admitted:
        access = self.checked.access
        return Admitted(
            access=access,
            run_id=self.run_id,
            account_id=access.account_id,
            application_id=self.checked.application_id,
            conversation_id=conversation_id,
            submission=self.checked.submission,
            attempt_token=self.attempt_token,
            correlation_id=self.correlation_id,
            config_version=config_version,
            token_version=token_version,
            created_at=created_at,
        )


def _decision_params(decision: Decision) -> dict[str, object]:
    return {
        "waiting_run_id": decision.run_id,
        "interrupt_id": decision.interrupt_id,
        "action": decision.answer.action.value,
        "comment": decision.answer.comment,
    }
