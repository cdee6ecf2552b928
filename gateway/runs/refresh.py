"""What an owner may do about a run that is not settled: ask again now, or accept an incomplete answer (contract D6, D9)."""

from dataclasses import dataclass

from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.problems import Code, Refused
from gateway.domain.states import Execution, Persistence
from gateway.identity.accounts import Access
from gateway.runs.look_up import LookUp
from gateway.runs.read import Reads, RunView
from gateway.runs.save import Save
from gateway.runs.submit import Own
from gateway.store import runs as store


@dataclass(frozen=True, slots=True)
class Refresh:
    """Look-ups and saves go on in tasks of the replica: a browser that leaves cancels none of them."""

    reads: Reads
    look_up: LookUp
    save: Save
    own: Own

    async def now(self, access: Access, application_id: ApplicationId, run_id: RunId) -> RunView:
        """Start a status look-up or a save retry now. Gives the run as it is before the answer; raises Refused(not_found)."""
        view = await self.reads.run(access, application_id, run_id)
        if view.persistence is Persistence.PENDING:
            self.own(self.save.now(run_id), "save")
        elif view.execution is Execution.UNKNOWN and await self.look_up.grant(run_id):
            self.own(self.look_up.one(run_id), "look-up")
        return view

    def due(self, view: RunView) -> None:
        """A read found that a look-up is due: start it. The claim sees to it that there is one at a time, and no more than the budget."""
        if view.lookup_due:
            self.own(self.look_up.one(view.run_id), "look-up")

    async def acknowledge(self, access: Access, application_id: ApplicationId, run_id: RunId) -> RunView:
        """The owner accepts an incomplete answer of a run that succeeded, and goes on. Repeating it changes nothing.

        Raises Refused: not_found, nothing_to_acknowledge.
        """
        await self.reads.run(access, application_id, run_id)
        if not await store.acknowledge(self.reads.database, run_id, access.account_id, application_id):
            raise Refused(Code.NOTHING_TO_ACKNOWLEDGE, run_id=run_id)
        return await self.reads.run(access, application_id, run_id)
