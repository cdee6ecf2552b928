"""`gateway audit …`: the trail of operators' acts, and whether it is as it was written."""

from argparse import Namespace

from gateway.cli.output import CommandFailed, Output
from gateway.cli.session import open_database, settings_of
from gateway.domain.limits import PAGE_MAX
from gateway.runs.audit_trail import Trail, audit_json
from gateway.store.audit import AuditRow


async def list_all(args: Namespace, output: Output) -> int:
    """Entries, newest first, at most --limit."""
    settings = settings_of(output)
    found: list[AuditRow] = []
    cursor: str | None = None
    async with open_database(settings) as db:
        trail = Trail(db)
        while len(found) < args.limit:
            page = await trail.page(limit=min(PAGE_MAX, args.limit - len(found)), cursor=cursor)
            found += page.entries
            cursor = page.next
            if cursor is None:
                break
    if output.as_json:
        output.table("audit", [audit_json(row) for row in found], ())
    else:
        output.table("audit", [_shown(row) for row in found], ("audit_id", "at", "actor", "act", "target", "reason"))
    if cursor is not None:
        output.progress(f"There are more than these {len(found)}: --limit shows more.")
    return 0


async def verify(args: Namespace, output: Output) -> int:
    """Recompute the whole chain."""
    settings = settings_of(output)
    async with open_database(settings) as db:
        verdict = await Trail(db).verify()
    last = verdict.sha256.hex() if verdict.sha256 is not None else None
    if verdict.broken_audit_id is not None:
        raise CommandFailed(
            f"The audit trail is not as it was written: entry {verdict.broken_audit_id} ({verdict.why}).",
            "Find out who could write to the database past the gateway; compare with a backup from before.",
            code="audit_broken",
            details={"audit_id": verdict.broken_audit_id, "why": verdict.why, "good_entries": verdict.entries, "sha256": last},
        )
    text = f"All {verdict.entries} entries are as they were written."
    if last is not None:
        text += f" The last one's hash is {last}: kept elsewhere, it shows later whether entries are missing at the end."
    output.result({"entries": verdict.entries, "sha256": last}, text)
    return 0


def _shown(row: AuditRow) -> dict[str, object]:
    return {
        "audit_id": row.audit_id,
        "at": row.at,
        "actor": row.actor,
        "act": row.act,
        "target": f"{row.target_kind} {row.target_id}",
        "reason": row.reason,
    }
