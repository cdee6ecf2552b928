"""`gateway moderation …`: who judges messages before they are taken."""

from argparse import Namespace

from gateway.admission.operator_chains import OperatorChains
from gateway.bindings.vault import KeyRing, Vault
from gateway.cli.output import Output
from gateway.cli.session import actor_of, open_database, read_token, settings_of, vault_of
from gateway.settings import Settings
from gateway.store.database import Database


async def change(args: Namespace, output: Output) -> int:
    """Set the chain of an application, or of all."""
    settings = settings_of(output)
    tokens = [read_token(path) for path in args.token_file or ()]
    if tokens:
        vault_of(settings)
    async with open_database(settings) as db:
        await _chains(db, settings).set(args.app, args.moderator, tokens, actor=actor_of(args))
    output.result({"set": True}, "Set. It counts from the next message on.")
    return 0


async def show(args: Namespace, output: Output) -> int:
    """The chains in force."""
    settings = settings_of(output)
    async with open_database(settings) as db:
        shown = await _chains(db, settings).shown()
    chains = [
        {
            **chain,
            "of": chain["app"] or ("all" if chain["since"] else "settings"),
            "asked": ", ".join(
                one["moderator"] + (f" (token: {one['token']})" if "token" in one else "") for one in chain["moderators"]
            ) or "nobody",
        }
        for chain in shown["chains"]
    ]  # fmt: skip
    output.table("chains", chains, ("of", "since", "asked"))
    return 0


def _chains(db: Database, settings: Settings) -> OperatorChains:
    vault = Vault(KeyRing(settings.encryption_keys)) if settings.encryption_keys else None
    return OperatorChains(db, vault, settings.trusted_upstream_hosts, settings.moderation)
