"""Whether a replica may take new work: the truth about database, schema, keys and draining, for probes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.bindings.keys import other_rings
from gateway.identity.tokens import Identity
from gateway.store import admission_gate
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.migrate import needed_version, schema_version
from gateway.web.services import Readiness

_PROBE_SECONDS: Final = 1.0
"""A probe's patience with the database."""


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """What a probe wants to know. `keys_usable`: this replica can encrypt and decrypt; `key_ids`: of its ring.

    A replica that never had the identity provider's keys would refuse everybody: where it cannot reach that, a rolling update stops.
    """

    database: Database
    identity: Identity
    keys_usable: bool
    key_ids: Sequence[str]
    lease_seconds: float
    draining: Callable[[], bool]
    needed: int = field(default_factory=needed_version)

    async def readiness(self) -> Readiness:
        identity, (version, warnings) = await asyncio.gather(self._identity(), self._database())
        checks = {
            "database": version is not None,
            "schema": version is not None and version >= self.needed,
            "keys": self.keys_usable,
            "identity": identity,
            "not_draining": not self.draining(),
        }
        return Readiness(all(checks.values()), checks, warnings)

    async def _identity(self) -> bool:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                return await self.identity.ready()
        except TimeoutError:
            return False

    async def _database(self) -> tuple[int | None, list[str]]:
        version, warnings = None, list[str]()
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                version = await schema_version(self.database)
                if version >= self.needed and await other_rings(self.database, self.key_ids, lease_seconds=self.lease_seconds):
                    warnings.append("key_rings_differ")
                if version >= self.needed and await admission_gate.closed(self.database) is not None:
                    warnings.append("admission_closed")
        except (StoreError, TimeoutError):
            version = None
        return version, warnings
