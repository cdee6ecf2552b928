"""`gateway keys …`."""

from argparse import Namespace

from gateway.bindings import keys
from gateway.bindings.keys import KeyNotEverywhere
from gateway.cli.output import CommandFailed, Output
from gateway.cli.session import actor_of, open_database, settings_of, vault_of


async def rekey(args: Namespace, output: Output) -> int:
    """Re-encrypt every token under the newest key."""
    settings = settings_of(output)
    vault, actor = vault_of(settings), actor_of(args)
    async with open_database(settings) as db:
        try:
            done = await keys.rekey(db, vault, lease_seconds=settings.lease_seconds, dry_run=args.dry_run, actor=actor)
        except KeyNotEverywhere as missing:
            raise CommandFailed(
                f"Replicas that live do not have the key {missing.key_id}; nothing was changed.",
                "Give every replica the new key, first in API_ENCRYPTION_KEYS_PREVIOUS (docs/keys.md), then try again.",
                code="key_not_everywhere",
                details={"replicas": [{"replica_id": replica.replica_id, "key_ids": replica.key_ids} for replica in missing.replicas]},
            ) from None
    unreadable = [{"app": token.row.name, "fault": token.fault.value, "key_id": token.row.key_id} for token in done.unreadable]
    record = {"key_id": done.key_id, "moved": done.moved, "dry_run": args.dry_run, "unreadable": unreadable}
    if unreadable:
        raise CommandFailed(
            f"{len(unreadable)} tokens do not open and stay as they are; {_said(done.moved, args.dry_run, done.key_id)}",
            "Add the missing key to API_ENCRYPTION_KEYS_PREVIOUS and try again, or set those tokens anew: gateway apps set-token",
            code="tokens_unreadable",
            details=record,
        )
    output.result(record, f"All tokens open; {_said(done.moved, args.dry_run, done.key_id)}")
    return 0


def _said(moved: int, dry_run: bool, key_id: str) -> str:
    return f"{moved} {'would be' if dry_run else 'were'} encrypted anew under the key {key_id}."
