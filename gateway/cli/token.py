"""`gateway token`: a bearer token signed with the local key, for scripts, demos and first steps."""

from argparse import Namespace

from gateway.cli.output import CommandFailed, Output, WrongUsage
from gateway.cli.session import settings_of
from gateway.identity.tokens import ClaimNames, is_name, sign_token


def token(args: Namespace, output: Output) -> int:
    """Print the token. Refuses where no local key is configured: with a key set, tokens come from the identity provider."""
    if not all(is_name(name) for name in (args.subject, *args.group)):
        raise WrongUsage("Subjects and groups have 1 to 200 characters and no control characters.", "Correct the name.")
    if not args.lifetime_seconds > 0:
        raise WrongUsage("A token's lifetime is a positive number of seconds.", "Correct --lifetime-seconds.")
    settings = settings_of(output)
    if settings.jwt_key is None:
        raise CommandFailed(
            "GATEWAY_JWT_KEY is not set, so there is no local key to sign with.",
            "Set it, or get a token from your identity provider.",
        )
    signed = sign_token(
        settings.jwt_key.get_secret_value().encode("utf-8"),
        subject=args.subject,
        groups=args.group,
        roles=args.role,
        lifetime_seconds=args.lifetime_seconds,
        claim_names=ClaimNames(subject=settings.jwt_subject_claim, groups=settings.jwt_groups_claim, roles=settings.jwt_roles_claim),
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
    )
    output.result({"token": signed}, signed)
    return 0
