"""`gateway providers …`."""

from argparse import Namespace

from gateway.bindings import providers
from gateway.bindings.administration import provider_json
from gateway.bindings.providers import ProviderChange
from gateway.cli.output import Output, WrongUsage
from gateway.cli.session import actor_of, open_database, settings_of
from gateway.store import providers as rows


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
    output.table("providers", [provider_json(row) for row in found], ("name", "base_url", "enabled"))
    return 0


async def show(args: Namespace, output: Output) -> int:
    """One provider."""
    async with open_database(settings_of(output)) as db:
        output.record(provider_json(await providers.find(db, args.name)))
    return 0


async def change(args: Namespace, output: Output) -> int:
    """Rename or move a provider."""
    wanted = ProviderChange(name=args.rename, base_url=args.base_url)
    if wanted == ProviderChange():
        raise WrongUsage("There is nothing to change.", "Give --base-url or --rename.")
    settings = settings_of(output)
    async with open_database(settings) as db:
        report = await providers.change(db, args.name, wanted, settings.trusted_upstream_hosts, actor=actor_of(args))
    text = "Changed." if report.changed else "Nothing to change."
    if report.moved:
        text = "Moved. Conversations bound before stay readable and take no new message."
    if report.token_dropped:
        text += " It is another server, so its applications have no token any more: gateway apps set-token NAME --token-file FILE"
    output.result({"changed": report.changed, "moved": report.moved, "token_dropped": report.token_dropped}, text)
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
