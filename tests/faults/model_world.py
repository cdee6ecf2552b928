"""The world of one example of the model test: replicas, people, applications, an upstream, time, and what is known of each run.

Time: rows are moved into the past (`PASS`) by as much as the clock of the processes goes forward. Nothing sleeps, thirty seconds cost as
much as one, the database's own clock and every statement stay as they are, and the two clocks agree but for the milliseconds that the test
itself takes. Tiny leases would do without the moving, and would make each outcome a race against this machine.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, TypeVar
from uuid import UUID

from gateway.bindings import applications, providers
from gateway.bindings.applications import Audience, NewApplication
from gateway.bindings.config import langchain_config
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.evidence import LookupStatus
from gateway.domain.fault_points import FaultPoint, Moment, Step
from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.problems import Refused
from gateway.domain.snapshot import MessageItem, parse
from gateway.identity import people
from gateway.runs.submit import Submitted
from gateway.store import accounts
from gateway.store.database import Database
from gateway.store.errors import StoreError
from tests.faults.model_checks import Eyes, KnownRun, blocked_by, faults_of
from tests.faults.model_database import Fault, ModelDatabase
from tests.faults.model_fates import APPS, ASKING, PEOPLE, Fate, claims, refused_for
from tests.faults.model_loop import Calls, ModelLoop, example
from tests.faults.model_native import NativePost, NativeThreadsOfModel
from tests.faults.model_replica import LIMITS, LOOKUP_BUDGET, TOTAL, WINDOW, ModelReplica, Paused
from tests.faults.model_upstream import Doing, ModelUpstream, Post, Question, Word

QUOTA: Final = 5
MOMENT: Final = 0.3
"""Longer than the pause between two fence statements and the wait for a native id, far shorter than everything else."""

EMPTY: Final[LiteralString] = "truncate account, provider, quota_rule, replica, witness cascade"
"""Everything else belongs to one of them."""
PASS: Final[LiteralString] = """
update run set lease_until = lease_until - s.span, fence_at = fence_at - s.span, started_at = started_at - s.span,
    next_lookup_at = next_lookup_at - s.span, unknown_at = unknown_at - s.span, next_save_at = next_save_at - s.span,
    acknowledged_at = acknowledged_at - s.span, resolved_at = resolved_at - s.span, created_at = created_at - s.span,
    updated_at = updated_at - s.span, finished_at = finished_at - s.span
from (select make_interval(secs => %s) as span) s
"""
PASS_QUESTIONS: Final[LiteralString] = "update interrupt set expires_at = expires_at - make_interval(secs => %s)"

ENDED: Final = frozenset({Doing.DONE, Doing.ASKED, Doing.ERRED})

_Result = TypeVar("_Result")


@dataclass
class World:
    """One example. `story` is told when something is wrong."""

    loop: ModelLoop
    shared: Database
    eyes: Eyes
    calls: Calls = field(default_factory=Calls)
    story: list[str] = field(default_factory=list)
    known: dict[UUID, KnownRun] = field(default_factory=dict)
    replicas: dict[str, ModelReplica] = field(default_factory=dict)
    late: list[tuple[str, Callable[[], Awaitable[object]]]] = field(default_factory=list)
    apps: dict[str, ApplicationId] = field(default_factory=dict)
    people: dict[str, UUID] = field(default_factory=dict)
    conversations: dict[str, UUID] = field(default_factory=dict)
    suspended: set[str] = field(default_factory=set)
    disabled: set[str] = field(default_factory=set)
    assistants: int = 0
    owed_seconds: float = 0.0
    broken: list[str] = field(default_factory=list)
    tasks: "set[asyncio.Task[Any]]" = field(default_factory=set)

    async def begin(self) -> None:
        example.set(self.tasks)
        self.eyes.connection.execute(EMPTY)
        self.vault = Vault(KeyRing([b"k" * 32]))
        self.upstream = ModelUpstream(sent=self._sent, arrives=self._arrives)
        self.threads = NativeThreadsOfModel()
        await providers.create(self.shared, name="agents", base_url="https://agents.example", trusted_hosts=())
        for app in APPS:
            config = langchain_config(f"assistant-of-{app}", human_input=app == ASKING)
            new = NewApplication(app, "agents", config, Audience(), "token")
            self.apps[app] = await applications.create(self.shared, self.vault, new)
        for who in PEOPLE:
            await people.create(self.shared, who, groups=(), roles=())
            account = await accounts.find(self.shared, who)
            assert account is not None
            self.people[who] = account.account_id
        self.eyes.connection.execute(
            "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', %s, 'month')",
            [QUOTA],
        )
        self.seen = self.eyes.look()
        for name in ("A", "B"):
            await self.start_replica(name)

    async def end(self) -> None:
        """Cancel what is left of every process, dead ones too."""
        while left := [task for task in self.tasks if not task.done() and task is not asyncio.current_task()]:
            for task in left:
                task.cancel()
            await self.calls.quiet()  # what is rolled back is given the time; one that settles first has to be told twice

    async def start_replica(self, name: str) -> None:
        database = ModelDatabase(self.shared, self.calls, self.late)
        self.replicas[name] = ModelReplica(name, database, self.vault, self.upstream, self.threads, self.name_of)
        await self.replicas[name].heartbeat.beat()

    # --- telling ----------------------------------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        self.story.append(what)

    def fail(self, *faults: str) -> None:
        self.broken += faults
        told = "\n".join(f"  {number:3} {line}" for number, line in enumerate(self.story, 1))
        raise AssertionError("\n".join(faults) + f"\nThis is what happened:\n{told}")

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.fail(what)

    def name_of(self, run_id: RunId) -> str:
        return self.known[run_id].name if run_id in self.known else f"run {len(self.known) + 1}"

    def check(self) -> None:
        """Everything that must hold, now."""
        self.seen = self.eyes.look()
        for run in self.known.values():
            self._notice_end(run)
        faults = faults_of(self.seen, self.known, self.upstream.posts) + self.broken
        if faults:
            self.fail(*faults)

    def _notice_end(self, run: KnownRun) -> None:
        """Whether the process that executed `run` saw it through: its task is over, it lives, and the last that it heard was an end."""
        for replica in self.replicas.values():
            live = replica.live.get(run.name)
            if live is not None and replica.supervisor.live_runs.get(RunId(run.run_id)) is None:
                del replica.live[run.name]
                post = self.post_of(run)
                proves = not isinstance(post, NativePost) and not replica.gave_up  # or what is to be settled outlives the task
                ends = [word for word in (Word.FINISHED, Word.ERROR) if post is not None and word in post.told] if proves else []
                run.saw_end = ends[0] if ends else None

    def post_of(self, run: KnownRun) -> Post | None:
        correlation_id = str(self.seen.runs[run.run_id]["correlation_id"])
        return next((post for post in self.upstream.posts if post.correlation_id == correlation_id), None)

    def run_of(self, post: Post) -> str:
        run_id = next(run_id for run_id, run in self.seen.runs.items() if str(run["correlation_id"]) == post.correlation_id)
        return self.known[run_id].name

    def _sent(self, post: Post) -> None:
        self._must_hold_a_slot(post, "left")
        if isinstance(post, NativePost):
            saw, wanted = (None if post.saw is None else post.saw.native_id), (None if post.answers is None else post.answers[0])
            if saw != wanted:
                self.broken.append(f"POST {post.number} left for {wanted}, and the thread showed {saw} before its fence")

    def _arrives(self, post: Post) -> None:
        self._must_hold_a_slot(post, "arrived")

    def _must_hold_a_slot(self, post: Post, what: str) -> None:
        query = "select execution, user_slot, extract(epoch from clock_timestamp() - fence_at) as age from run where correlation_id = %s"
        rows = self.eyes.rows(query, post.correlation_id)
        if len(rows) != 1 or rows[0]["user_slot"] is None or rows[0]["execution"] == "reserved":
            self.broken.append(f"POST {post.number} {what} while its run was {rows}")
        elif what == "left" and rows[0]["age"] >= WINDOW + 1:  # a second for this machine
            self.broken.append(f"POST {post.number} left {rows[0]['age']:.1f} s after its fence")

    # --- processes --------------------------------------------------------------------------------------------------------------------

    async def quiet(self) -> None:
        """Let everybody go on until they wait for a rule again, short pauses included."""
        await self.calls.quiet()
        self.loop.advance(MOMENT)
        self.owed_seconds += MOMENT
        await self.calls.quiet()

    def kill(self, replica: ModelReplica) -> None:
        replica.die()
        for post in self.upstream.posts:
            if post.sender == replica.database:
                post.open = False
                if post.doing is Doing.HELD:
                    post.doing = Doing.NEVER

    def paused(self) -> dict[str, Paused]:
        """The tasks that wait, by what they wait for."""
        waiting = [paused for replica in self.replicas.values() for paused in replica.paused]
        told: dict[str, Paused] = {}
        for paused in waiting:
            name = str(paused)
            told[name if name not in told else f"{name} ({len(told)})"] = paused
        return told

    def posts(self, *doing: Doing) -> dict[str, Post]:
        return {f"POST {post.number} of {self.run_of(post)}": post for post in self.upstream.posts if post.doing in doing}

    def open_posts(self) -> dict[str, Post]:
        return {f"POST {post.number} of {self.run_of(post)}": post for post in self.upstream.posts if post.may_say()}

    async def restore(self) -> None:
        """Nobody is suspended, nothing is switched off."""
        for who in self.suspended:
            await people.activate(self.shared, who)
        for app in self.disabled:
            await applications.set_enabled(self.shared, app, enabled=True)
        self.suspended.clear()
        self.disabled.clear()

    def moving(self) -> list[str]:
        """The runs that can go forward: a task waits at a fault point or at its POST, or upstream may say something."""
        whose = [paused.whose for paused in self.paused().values()]
        posts = [post for post in self.upstream.posts if post.doing is Doing.HELD or post.may_say()]
        posts += [question.post for question in self.upstream.questions if question.live]
        return sorted({run.name for run in self.known.values() if run.name in whose} | {self.run_of(post) for post in posts})

    def forward(self, name: str, fate: "Fate") -> bool:
        """One step of a run to which nothing happens but its fate; False when there is none."""
        paused = next((paused for paused in self.paused().values() if paused.whose == name), None)
        known = next(run for run in self.known.values() if run.name == name)
        post = self.post_of(known)
        if paused is not None:
            self.release(paused, fate.settle if Fault.REFUSED in paused.faults() else None)
        elif post is not None and post.doing is Doing.HELD:
            self.say(f"POST {post.number} of {name}: {fate.way}")
            post.way.set_result(fate.way)
        elif post is not None and post.may_say():
            words = [word for word in (Word.STARTED, Word.NATIVE_ID, Word.TEXT) if word in post.may_say() and word not in post.told]
            word = words[0] if words else post.end_as(fate.end)
            self.say(f"POST {post.number} of {name} says {word}")
            post.say(word)
        elif asked := [question for question in self.upstream.questions if question.live and question.post is post]:
            self.answer(asked[0], asked[0].post.truth)
        else:
            return False
        return True

    def answer(self, question: Question, status: LookupStatus) -> None:
        """What the service says of a run, to whoever asked."""
        self.say(f"the look-up of {self.run_of(question.post)} says {status}")
        self.upstream.questions.remove(question)
        question.answer.set_result(status)

    async def pass_time(self, seconds: float, beating: Sequence[str] = ()) -> None:
        """`seconds` pass everywhere; the replicas of `beating` lived all the time, and their beats came through."""
        if seconds >= TOTAL:  # the assumption of design.md, invariant 1: nothing is held up for longer than that
            for post in self.posts(Doing.UNDER_WAY).values():
                self.upstream.lose(post)
        connection = self.eyes.connection
        with connection.transaction():
            connection.execute("set local session_replication_role = replica")  # not a change that the witness should see
            connection.execute(PASS, [seconds + self.owed_seconds])
            connection.execute(PASS_QUESTIONS, [seconds + self.owed_seconds])
        self.owed_seconds = 0.0
        for name in beating:
            await self.replicas[name].heartbeat.beat()
        self.loop.advance(seconds)
        await self.quiet()
        for name in beating:
            await self.replicas[name].heartbeat.beat()

    # --- acts -------------------------------------------------------------------------------------------------------------------------

    def body(self, submission_id: str, text: str, conversation_id: UUID | None) -> bytes:
        target = None if conversation_id is None else str(conversation_id)
        return json.dumps({"submission_id": submission_id, "text": text, "conversation_id": target}).encode()

    async def submit(
        self, replica: ModelReplica, who: str, app: str, submission_id: str, text: str, conversation_id: UUID | None
    ) -> Submitted | str:
        """The run, or the code of the refusal."""
        return await self.refused(replica.submissions.submit(claims(who), self.apps[app], self.body(submission_id, text, conversation_id)))

    def admitted(
        self, submitted: Submitted, who: str, app: str, submission_id: str, text: str, decided: tuple[UUID, str] | None = None
    ) -> KnownRun:
        run_id = submitted.view.run_id
        run = self.known[run_id] = KnownRun(f"run {len(self.known) + 1}", run_id, who, app, submission_id, text, decided)
        if submitted.view.conversation_id not in self.conversations.values():
            self.conversations[f"conversation {len(self.conversations) + 1}"] = submitted.view.conversation_id
        return run

    def is_of(self, conversation_id: UUID, who: str, app: str) -> bool:
        """Whether `who` may go on in that conversation of `app`."""
        row = self.seen.conversations[conversation_id]
        return row["deleted_at"] is None and (row["account_id"], row["application_id"]) == (self.people[who], self.apps[app])

    def expected(self, replica: ModelReplica, who: str, app: str, submission_id: str, text: str, target: UUID | None) -> str:
        """What becomes of a submission now: "admitted", "replayed", or the code of the refusal (design.md "Order of checks")."""
        if replica.database.away:
            return "DatabaseUnavailable"
        owner = (self.people[who], self.apps[app])
        if who in self.suspended:
            return "account_inactive"
        earlier = self.seen.submissions.get(submission_id)
        if earlier is not None and (earlier["account_id"], earlier["application_id"]) == owner:
            original = self.known[earlier["run_id"]]
            same_target = earlier["created_conversation"] if target is None else earlier["conversation_id"] == target
            if original.text != text or not same_target:
                return "submission_conflict"
            return "not_found" if self.seen.conversations[earlier["conversation_id"]]["deleted_at"] else "replayed"
        if app in self.disabled:
            return "app_disabled"
        if target is not None:
            conversation = self.seen.conversations[target]
            if conversation["deleted_at"] or (conversation["account_id"], conversation["application_id"]) != owner:
                return "not_found"
            blocked = blocked_by(self.seen, target)
            if blocked is not None:
                return refused_for(blocked)
        busy = self.busy(owner)
        if busy is not None:
            return busy
        charged = [charge for charges in self.seen.charges.values() for charge in charges if charge["refunded_at"] is None]
        if sum(charge["bucket"] == str(owner[0]) for charge in charged) >= QUOTA:
            return "quota_exhausted"
        return "admitted"

    def busy(self, owner: tuple[UUID, ApplicationId]) -> str | None:
        """The code of the refusal when user or application has no slot left."""
        active = [run for run in self.seen.runs.values() if run["user_slot"] is not None]
        if sum(run["account_id"] == owner[0] for run in active) >= LIMITS.per_user:
            return "user_busy"
        return "app_busy" if sum(run["application_id"] == owner[1] for run in active) >= LIMITS.per_application else None

    async def refused(self, act: Coroutine[Any, Any, _Result]) -> "_Result | str":
        """What `act` gives, or the code of the refusal, or the name of the database's error."""
        try:
            return await act
        except Refused as refused:
            return refused.code.value
        except StoreError as error:
            return type(error).__name__

    def run(self, name: str) -> tuple[KnownRun, Mapping[str, Any]]:
        known = next(run for run in self.known.values() if run.name == name)
        return known, self.seen.runs[known.run_id]

    def runs(self, holds: Callable[[Mapping[str, Any]], bool]) -> list[str]:
        return [run.name for run_id, run in self.known.items() if run_id in self.seen.runs and holds(self.seen.runs[run_id])]

    def wrote(self, run_id: UUID) -> list[str]:
        """The user's message of a run; a decision has none."""
        known = self.known[run_id]
        return [] if known.decided is not None else [known.text]

    def shown(self, run_id: UUID) -> list[str]:
        """The assistant's texts that the history has to show for a run: from its items, else from its snapshot."""
        row = self.seen.runs[run_id]
        if row["persistence"] == "saved":
            return [item["text"] for item in self.seen.items[run_id] if item["position"] > 0]
        if run_id not in self.seen.snapshots or row["persistence"] == "none":
            return []
        return [item.text for item in parse(self.seen.snapshots[run_id]["body"]).items if isinstance(item, MessageItem)]

    async def start(self, replica: ModelReplica, work: Coroutine[Any, Any, object]) -> None:
        """Something goes on in a task of that replica."""
        replica.tasks.own(work, "asked")

    async def settle_everything(self) -> None:
        """All processes die, upstream ends; then one new replica sweeps. Whatever can be settled without an operator must be."""
        for replica in list(self.replicas.values()):
            self.kill(replica)
        self.replicas.clear()
        for post in self.posts(Doing.UNDER_WAY).values():
            self.upstream.lose(post)
        for post in self.posts(Doing.EXECUTING).values():
            self.upstream.end(post, Doing.DONE)
        self.upstream.honest_answers = True
        self.say("at the end everybody dies, upstream ends, and Z starts")
        await self.start_replica("Z")
        self.replicas["Z"].pausing = False
        for _ in range(4):
            await self.pass_time(TOTAL + WINDOW, ["Z"])
            await self.replicas["Z"].reconciler.sweep()
            self.check()
        for name in self.runs(lambda _: True):
            known, row = self.run(name)
            its_post = self.post_of(known)
            waits = row["execution"] == "unknown" and row["attention"] == "operator"
            self.expect(row["user_slot"] is None or waits, f"{name} leaks its slot: {row['execution']}, {row['attention']}")
            self.expect(row["persistence"] != "pending", f"{name} is never saved")
            ended = its_post is not None and its_post.doing in ENDED and row["native_run_id"] is not None
            exhausted = row["lookups"] >= LOOKUP_BUDGET + row["lookups_granted"] or (row["unknown_days"] or 0) >= 1
            judged = exhausted or row["reason"] == "decision_not_applied"
            self.expect(not ended or row["execution"] != "unknown" or judged, f"{name} ended upstream, and stays unknown")

    def release(self, paused: Paused, fault: Fault | None) -> None:
        at = paused.point == FaultPoint(Moment.AFTER, Step.SETTLE)
        self.say(f"{paused} goes on" + (f"; the statement {fault}" if fault and not at else ""))
        paused.release(fault)
