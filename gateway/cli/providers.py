"""`gateway providers …`."""

from argparse import Namespace

from gateway.bindings import providers
from gateway.cli.output import Output
from gateway.cli.session import actor_of, open_database, settings_of
from gateway.store import providers as rows
from gateway.store.providers import ProviderRow


async def create(args: Namespace, output: Output) -> int:
    """Make a provider and print its id."""
    settings = settings_of(output)
    async with open_database(settings) as db:
        trusted, actor = settings.trusted_upstream_hosts, actor_of(args)
        provider_id = await providers.create(db, name=args.name, base_url=args.base_url, trusted_hosts=trusted, actor=actor)
    output.result({"provider_id": provider_id}, str(provider_id))
    return 0


async def list_all(args: Namespace, output: Output) -> int:
    """All providers."""
    async with open_database(settings_of(output)) as db:
        found = await rows.list_all(db)
    output.table("providers", [_record(row) for row in found], ("name", "base_url", "enabled"))
    return 0


async def show(args: Namespace, output: Output) -> int:
    """One provider."""
    async with open_database(settings_of(output)) as db:
        output.record(_record(await providers.find(db, args.name)))
    return 0


async def change(args: Namespace, output: Output) -> int:
    """Move a provider."""
    settings = settings_of(output)
    async with open_database(settings) as db:
        moved = await providers.set_base_url(db, args.name, args.base_url, settings.trusted_upstream_hosts, actor=actor_of(args))
    text = "Moved. Conversations bound before stay readable and take no new message." if moved else "Nothing to change."
    output.result({"moved": moved}, text)
    return 0


async def enable(args: Namespace, output: Output) -> int:
    """Allow use again."""
    return await _switch(args, output, enabled=True)


async def disable(args: Namespace, output: Output) -> int:
    """Stop new use."""
    return await _switch(args, output, enabled=False)


async def _switch(args: Namespace, output: Output, *, enabled: bool) -> int:
    async with open_database(settings_of(output)) as db:
        changed = await providers.set_enabled(db, args.name, enabled=enabled, actor=actor_of(args))
    output.result({"enabled": enabled, "changed": changed}, "Enabled." if enabled else "Disabled.")
    return 0


def _record(row: ProviderRow) -> dict[str, object]:
    return {
        "provider_id": row.provider_id,
        "name": row.name,
        "base_url": row.base_url,
        "enabled": row.enabled,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
