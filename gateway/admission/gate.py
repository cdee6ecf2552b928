"""The gate: the checks before a run in their one order, and the transaction that admits it (design.md "From request to POST" 1 and 2).

identity, account, visibility, parsing, replay look-up, application enabled, conversation, draining, moderation, admission.
Identity was verified by the caller. `check` may be cut short by a browser that leaves; `admit` must run in a task that nobody cancels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID, uuid4

from gateway.admission.admitting import Admitted, Admitting, Checked, Limits, Replayed
from gateway.admission.moderation import Asked, Moderation, TextKind
from gateway.admission.quota import quota_exhausted
from gateway.admission.run_agent_input import NamedAnswer, RunAgentInput, parse_run_agent_input
from gateway.admission.validation import parse_decision, parse_submission
from gateway.bindings.vault import Vault
from gateway.domain.fault_points import At, pass_by, through
from gateway.domain.ids import AccountId, ApplicationId, AttemptToken, ConversationId, CorrelationId, RunId
from gateway.domain.limits import ActiveLimits
from gateway.domain.problems import Code, Refused
from gateway.domain.quota import rule_states
from gateway.domain.reasons import Reason
from gateway.domain.states import Execution
from gateway.domain.submission import Decision, Submission, Submitted
from gateway.identity.accounts import Access, AccessCheck, build_access
from gateway.identity.tokens import Claims
from gateway.store import admission as store
from gateway.store import approval
from gateway.store.admission import AdmitRow, ContextRow, Verdict
from gateway.store.database import Database
from gateway.store.errors import AnswerLost, DatabaseUnavailable, DeadlockOrSerialization

_Parsed = TypeVar("_Parsed")

_ATTEMPTS: Final = 3
"""Admissions tried for one request: a lost answer or a deadlock is tried again at once; a database that is away is not waited for."""

_REFUSALS: Final = {
    Verdict.NOT_FOUND: Code.NOT_FOUND,
    Verdict.APP_DISABLED: Code.APP_DISABLED,
    Verdict.BACKEND_NOT_SERVED: Code.BACKEND_NOT_SERVED,
    Verdict.ACCOUNT_INACTIVE: Code.ACCOUNT_INACTIVE,
    Verdict.USER_BUSY: Code.USER_BUSY,
    Verdict.APP_BUSY: Code.APP_BUSY,
}
_OF_QUESTIONS: Final = {
    Verdict.INTERRUPT_NOT_PENDING: Code.INTERRUPT_NOT_PENDING,
    Verdict.INTERRUPT_EXPIRED: Code.INTERRUPT_EXPIRED,
}

SUBMISSION_REFUSALS: Final = (
    Code.TEXT_TOO_LONG,
    Code.INVALID_TEXT,
    Code.MODERATION_REFUSED,
    Code.MODERATION_UNAVAILABLE,
    Code.SUBMISSION_CONFLICT,
    Code.CONVERSATION_BUSY,
    Code.CONVERSATION_BLOCKED,
    Code.BINDING_INVALIDATED,
    Code.TASK_ALREADY_DONE,
    *_REFUSALS.values(),
    Code.QUOTA_EXHAUSTED,
    Code.ADMISSION_UNAVAILABLE,
    Code.DRAINING,
)
"""Every refusal of a submission here, for the description of the API."""

DECISION_REFUSALS: Final = (
    Code.NOT_FOUND,
    *_OF_QUESTIONS.values(),
    *(code for code in SUBMISSION_REFUSALS if code not in (Code.QUOTA_EXHAUSTED, Code.TASK_ALREADY_DONE)),
)
"""The same of a decision, which costs nothing."""

_BLOCKED: Final = {
    Reason.RUN_ACTIVE: Code.CONVERSATION_BUSY,
    Reason.BINDING_INVALIDATED: Code.BINDING_INVALIDATED,
    Reason.TASK_ALREADY_DONE: Code.TASK_ALREADY_DONE,
}
"""The refusals of a conversation that have a code of their own; all others are conversation_blocked, and `blocked` says which."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The ordered use case. `draining` is this replica's own; it is read again just before the commit."""

    database: Database
    access_check: AccessCheck
    vault: Vault
    moderation: Moderation
    limits: ActiveLimits
    lease_seconds: float
    quota_zone: str
    draining: Callable[[], bool]
    at: At = pass_by

    async def check(self, claims: Claims, application_id: ApplicationId, body: bytes) -> Checked | Replayed:
        """All checks up to moderation. Raises Refused; nothing was written then, and an existing run of the submission wins over it."""
        return await self._check(claims, application_id, await self._parsed(claims, application_id, lambda: parse_submission(body)))

    async def check_decision(self, claims: Claims, application_id: ApplicationId, run_id: RunId, body: bytes) -> Checked | Replayed:
        """The same for a decision about the question of `run_id` (contract E6)."""
        return await self._check(claims, application_id, await self._parsed(claims, application_id, lambda: parse_decision(run_id, body)))

    async def check_run_agent(self, claims: Claims, application_id: ApplicationId, body: bytes) -> tuple[RunAgentInput, Checked | Replayed]:
        """The same for an AG-UI client's RunAgentInput, and what it asked for."""
        asked = await self._parsed(claims, application_id, lambda: parse_run_agent_input(body))
        if isinstance(asked.submission, Submission):
            return asked, await self._check(claims, application_id, asked.submission)
        return asked, await self._check(claims, application_id, await self._decision(claims, application_id, asked, asked.submission))

    async def _decision(self, claims: Claims, application_id: ApplicationId, asked: RunAgentInput, named: NamedAnswer) -> Decision:
        access = await self.access_check.application(claims, application_id)
        question = (access.account_id, application_id, asked.client_thread, named.interrupt_id)
        run_id = await approval.run_of_question(self.database, *question)
        if run_id is None:
            raise Refused(Code.NOT_FOUND)
        return Decision(asked.submission_id, run_id, named.interrupt_id, named.answer)

    async def _parsed(self, claims: Claims, application_id: ApplicationId, parse: Callable[[], _Parsed]) -> _Parsed:
        try:
            return parse()
        except Refused as fault:
            # Who may not see the application learns nothing about the body: those two checks come first.
            await self.access_check.application(claims, application_id)
            raise fault from None

    async def _check(self, claims: Claims, application_id: ApplicationId, submission: Submission | Decision) -> Checked | Replayed:
        context = await self._context(claims, application_id, submission)
        access = build_access(claims, AccountId(context.account_id), context.all_groups, context.account_roles)
        if context.account_state != "active":
            raise Refused(Code.ACCOUNT_INACTIVE)
        if not context.visible:
            raise Refused(Code.NOT_FOUND)
        if (submitted := _submitted(context)) is not None:
            return _replay(access, submitted, submission)
        try:
            await self._check_open(access, application_id, context, submission)
            asked = _asked(access, application_id, submission)
            passed = await self.moderation.check(asked, submission.submission_id, context.chain_id) if asked else None
        except Refused as refusal:
            return await self._replay_or(refusal, access, application_id, submission)
        return Checked(access, application_id, submission, passed)

    async def admit(self, checked: Checked) -> Admitted | Replayed:
        """The admission transaction, with the rules for a lost answer. Raises Refused; must not be cancelled."""
        admitting = Admitting(checked, RunId(uuid4()), AttemptToken(uuid4()), CorrelationId(uuid4()), ConversationId(uuid4()))
        try:
            return await self._admit(admitting)
        except Refused as refusal:
            return await self._replay_or(refusal, checked.access, checked.application_id, checked.submission)

    async def _context(self, claims: Claims, application_id: ApplicationId, submission: Submission | Decision) -> ContextRow:
        params = {
            "subject": claims.subject,
            "groups": sorted(claims.groups),
            "application_id": application_id,
            "submission_id": submission.submission_id,
            "conversation_id": submission.conversation_id if isinstance(submission, Submission) else None,
            "client_thread": submission.client_thread if isinstance(submission, Submission) else None,
        }
        context = await store.context(self.database, params)
        if context is None and await self.access_check.make_account(claims):
            context = await store.context(self.database, params)
        if context is None:
            raise Refused(Code.ACCOUNT_INACTIVE)
        return context

    async def _check_open(
        self, access: Access, application_id: ApplicationId, context: ContextRow, submission: Submission | Decision
    ) -> None:
        if context.closed is not None:
            raise Refused(_REFUSALS[Verdict(context.closed)])
        if await self.vault.fault(application_id, context.token_ciphertext, context.token_key_id) is not None:
            raise Refused(Code.APP_DISABLED)
        if isinstance(submission, Decision):
            await self._check_question(access, application_id, submission)
        elif context.conversation_named:
            if not context.conversation_found:
                raise Refused(Code.NOT_FOUND)
            if context.blocked is not None:
                raise _conversation_refused(context.blocked, context.blocking_run_id)
        if self.draining():
            raise Refused(Code.DRAINING)

    async def _check_question(self, access: Access, application_id: ApplicationId, decision: Decision) -> None:
        row = await approval.question(self.database, decision.run_id, access.account_id, application_id)
        if row is None:
            raise Refused(Code.NOT_FOUND)
        if row.execution != Execution.WAITING or row.answered_by is not None or row.interrupt_id != decision.interrupt_id:
            raise Refused(Code.INTERRUPT_NOT_PENDING, run_id=RunId(row.answered_by or decision.run_id))
        if row.expired:
            raise Refused(Code.INTERRUPT_EXPIRED)
        comment, longest = decision.answer.comment, row.comment_max_chars or 0
        if comment is not None and len(comment) > longest:
            raise Refused(Code.TEXT_TOO_LONG, extra={"field": "comment", "max_characters": longest})

    async def _admit(self, admitting: Admitting) -> Admitted | Replayed:
        answer_lost = False
        for _ in range(_ATTEMPTS):
            try:
                return await self._outcome(admitting, await self._transaction(admitting))
            except AnswerLost:
                # Committed or not: the same insert again, on a new connection, waits for the lost transaction and then knows.
                answer_lost = True
            except DeadlockOrSerialization:
                pass
            except DatabaseUnavailable:
                if not answer_lost:
                    break
        raise Refused(Code.ADMISSION_UNAVAILABLE)

    async def _outcome(self, admitting: Admitting, row: AdmitRow) -> Admitted | Replayed:
        verdict = Verdict(row.verdict)
        if verdict is Verdict.ADMITTED:
            return admitting.admitted(row)
        if verdict is Verdict.SUBMITTED:
            if row.run_id == admitting.run_id and (own := await self._own_attempt(admitting)) is not None:
                return own
            return _replay(admitting.checked.access, _submitted_of(row), admitting.checked.submission)
        raise _refusal(verdict, row, self.limits)

    async def _transaction(self, admitting: Admitting) -> AdmitRow:
        async with self.database.transaction() as tx:
            row = await admitting.write(tx, Limits(self.limits, self.lease_seconds, self.quota_zone))
            if row.verdict == Verdict.ADMITTED:
                if self.draining():
                    raise Refused(Code.DRAINING)
                await through(self.at, admitting.step, tx.commit())
            return row

    async def _own_attempt(self, admitting: Admitting) -> Admitted | None:
        """Our own earlier transaction was committed after all; only the token on the row says who executes."""
        row = await store.attempt(self.database, admitting.run_id, admitting.attempt_token)
        if row is None or not row.ours:
            return None
        return admitting.admitted_as(ConversationId(row.conversation_id), row.config_version, row.token_version, row.created_at)

    async def _replay_or(
        self, refusal: Refused, access: Access, application_id: ApplicationId, submission: Submission | Decision
    ) -> Replayed:
        """Any refusal after the replay look-up looks once more: an existing run wins."""
        params = {
            "account_id": access.account_id,
            "application_id": application_id,
            "submission_id": submission.submission_id,
        }
        try:
            row = await store.submitted(self.database, params)
        except DatabaseUnavailable:
            raise refusal from None
        if row is None:
            raise refusal
        submitted = Submitted(RunId(row.run_id), ConversationId(row.conversation_id), row.created_conversation, row.fingerprint)
        return _replay(access, submitted, submission)


def _asked(access: Access, application_id: ApplicationId, submission: Submission | Decision) -> Asked | None:
    """The text that moderators are shown; a decision without a comment has none."""
    if isinstance(submission, Submission):
        return Asked(submission.text, TextKind.MESSAGE, access.account_id, application_id)
    comment = submission.answer.comment
    return None if comment is None else Asked(comment, TextKind.COMMENT, access.account_id, application_id)


def _submitted(context: ContextRow) -> Submitted | None:
    if context.submitted_run_id is None:
        return None
    assert context.submitted_conversation_id is not None
    assert context.submitted_fingerprint is not None
    return Submitted(
        RunId(context.submitted_run_id),
        ConversationId(context.submitted_conversation_id),
        bool(context.submitted_created_conversation),
        context.submitted_fingerprint,
    )


def _submitted_of(row: AdmitRow) -> Submitted:
    assert row.run_id is not None
    assert row.conversation_id is not None
    assert row.fingerprint is not None
    return Submitted(RunId(row.run_id), ConversationId(row.conversation_id), bool(row.created_conversation), row.fingerprint)


def _replay(access: Access, submitted: Submitted, submission: Submission | Decision) -> Replayed:
    if not submitted.is_replayed_by(submission):
        raise Refused(Code.SUBMISSION_CONFLICT)
    return Replayed(access, submitted.run_id)


def _conversation_refused(blocked: str, blocking_run_id: UUID | None) -> Refused:
    reason = Reason(blocked)
    run_id = RunId(blocking_run_id) if blocking_run_id else None
    return Refused(_BLOCKED.get(reason, Code.CONVERSATION_BLOCKED), run_id=run_id, extra={"blocked": reason.value})


def _refusal(verdict: Verdict, row: AdmitRow, limits: ActiveLimits) -> Refused:
    if verdict is Verdict.CONVERSATION_REFUSED:
        assert row.blocked is not None
        return _conversation_refused(row.blocked, row.blocking_run_id)
    if verdict is Verdict.QUOTA_EXHAUSTED:
        return quota_exhausted(rule_states(row.quota))
    run_id = RunId(row.blocking_run_id) if row.blocking_run_id else None
    limit = {Verdict.USER_BUSY: limits.per_user, Verdict.APP_BUSY: limits.per_application}.get(verdict)
    return Refused((_REFUSALS | _OF_QUESTIONS)[verdict], run_id=run_id, extra={} if limit is None else {"limit": limit})
