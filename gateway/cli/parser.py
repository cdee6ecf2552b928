"""The commands and their arguments. docs/cli.md is generated from here. Light: no command's module is imported, but for `demo` when asked.

Each leaf names its function as `module:function` below gateway.cli.
"""

import argparse
import importlib
import re
from typing import TYPE_CHECKING, Final, NoReturn

import gateway
from gateway.domain.resolution import ResolutionOutcome, RunFilter
from gateway.domain.text import is_storable

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]

# argparse's own sentences, up to where they repeat what was typed; the usage above them says what may be typed.
_TYPED: Final = re.compile(
    r"(unrecognized arguments|ambiguous option|invalid choice|invalid \S+ value|ignored explicit argument).*", re.DOTALL
)
_NAME_HELP: Final = "its name"
_RENAME_HELP: Final = "another name; nothing else changes by it"
_SUBJECT_HELP: Final = "the person's name in tokens (their subject)"
_URL_HELP: Final = "https://…; plain HTTP and private addresses only for GATEWAY_TRUSTED_UPSTREAM_HOSTS"
_TOKEN_FILE_HELP: Final = "file with the service token, or - for standard input; a token is never an argument"


class Parser(argparse.ArgumentParser):
    """argparse's, which does not repeat what was typed: somebody may have typed a token where no token belongs."""

    def error(self, message: str) -> NoReturn:
        """As argparse's."""
        super().error(_TYPED.sub(r"\1", message))


def build_parser(*, demo: bool) -> argparse.ArgumentParser:
    """The parser of every command. `demo`: with the arguments of `gateway demo`, which are the demo module's own."""
    parser = Parser(
        prog="gateway",
        description="A governance gateway in front of agent services.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage. Settings come from the environment: docs/settings.md.",
    )
    parser.add_argument("--version", action="version", version=f"gateway {gateway.__version__}")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _demo(commands, demo=demo)
    _leaf(commands, "serve", "serve:serve", "run one API replica")
    migrate = _leaf(commands, "migrate", "migrate:migrate", "apply the migrations; any number of replicas may run it at once")
    migrate.add_argument("--check", action="store_true", help="change nothing; fail when something is to apply")
    _check(commands)
    _probe(commands)
    _token(commands)
    _providers(_group(commands, "providers", "services that host applications"))
    _apps(_group(commands, "apps", "applications"))
    _accounts(_group(commands, "accounts", "people"))
    _quotas(_group(commands, "quotas", "quota rules, counted in tasks"))
    _moderation(_group(commands, "moderation", "who judges messages before they are taken"))
    _keys(_group(commands, "keys", "the keys that service tokens are encrypted under"))
    _runs(_group(commands, "runs", "runs that need somebody, and what an operator may do about them"))
    _audit(_group(commands, "audit", "the trail of operators' acts"))
    _admission(_group(commands, "admission", "new work on all replicas: stop it, start it again"))
    _chat(commands)
    return parser


def _group(commands: "Commands", name: str, help_text: str) -> "Commands":
    group = commands.add_parser(name, help=help_text, description=_sentence(help_text))
    return group.add_subparsers(metavar="COMMAND", required=True)


def _leaf(commands: "Commands", name: str, command: str, help_text: str) -> argparse.ArgumentParser:
    leaf = commands.add_parser(name, help=help_text, description=_sentence(help_text))
    # SUPPRESS: `gateway --json apps list` must not be undone by the leaf's own default.
    leaf.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="machine-readable output")
    leaf.set_defaults(command=command)
    return leaf


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _demo(commands: "Commands", *, demo: bool) -> None:
    leaf = _leaf(commands, "demo", "demo:run", "start everything on this machine and keep serving")
    if demo:
        importlib.import_module("gateway.cli.demo").add_arguments(leaf)


def _probe(commands: "Commands") -> None:
    leaf = _leaf(
        commands,
        "probe",
        "probe:probe",
        "ask a service whether it keeps the upstream contract, clause by clause (docs/probe.md); runs its agent up to three times",
    )
    leaf.add_argument("url", metavar="URL", help="base URL of the service; the machine's own addresses are allowed here")
    leaf.add_argument("--assistant", required=True, metavar="ID", help="the assistant that GET /capabilities has to name")
    leaf.add_argument("--token-file", required=True, metavar="FILE|-", help=_TOKEN_FILE_HELP)
    leaf.add_argument("--human-input", action="store_true", help="ask for the native profile; a question of the agent's is rejected")
    leaf.add_argument("--text", metavar="TEXT", help="the message that the agent gets (a short greeting)")
    leaf.add_argument("--once", action="store_true", help="run the agent once only: leaves out a second message, and the decision")


def _check(commands: "Commands") -> None:
    leaf = _leaf(commands, "check", "check:check", "find every configuration fault, then try database, schema, keys and providers")
    leaf.add_argument("--through", metavar="URL", help="also the way in through the real edge: buffering, repeats, time-outs, headers")
    leaf.add_argument("--token-file", metavar="FILE|-", help="an operator's bearer token for --through (one signed with GATEWAY_JWT_KEY)")
    leaf.add_argument("--idle-seconds", type=float, default=35.0, metavar="N", help="how long a silence the edge must stand (35)")
    _actor(leaf)


def _token(commands: "Commands") -> None:
    leaf = _leaf(commands, "token", "token:token", "print a bearer token signed with the local key")
    leaf.add_argument("subject", metavar="SUBJECT", help=_SUBJECT_HELP)
    leaf.add_argument("--role", action="append", default=[], choices=["operator"], help="a role; may be repeated")
    leaf.add_argument("--group", action="append", default=[], metavar="G", help="a group; may be repeated")
    leaf.add_argument("--lifetime-seconds", type=float, default=12 * 3600.0, metavar="N", help="how long it is valid (43200)")


def _providers(commands: "Commands") -> None:
    create = _leaf(commands, "create", "providers:create", "make a provider; prints its id")
    create.add_argument("name", metavar="NAME", help=_NAME_HELP)
    create.add_argument("--base-url", required=True, metavar="URL", help=_URL_HELP)
    _actor(create)
    _leaf(commands, "list", "providers:list_all", "list all providers")
    for name, help_text in (
        ("show", "show a provider"),
        ("disable", "stop new use of all its applications at once"),
        ("enable", "allow use again"),
    ):
        leaf = _leaf(commands, name, f"providers:{name}", help_text)
        leaf.add_argument("name", metavar="NAME", help=_NAME_HELP)
        if name != "show":
            _actor(leaf)
    change = _leaf(commands, "set", "providers:change", "change a provider; another URL ends the bindings of all its applications for good")
    change.add_argument("name", metavar="NAME", help=_NAME_HELP)
    change.add_argument("--base-url", metavar="URL", help=_URL_HELP)
    change.add_argument("--rename", metavar="NEW", help=_RENAME_HELP)
    _actor(change)


def _apps(commands: "Commands") -> None:
    create = _leaf(commands, "create", "apps:create", "make an application; prints its id")
    create.add_argument("name", metavar="NAME", help=_NAME_HELP)
    create.add_argument("--provider", required=True, metavar="NAME", help="the provider that hosts it")
    backend = create.add_mutually_exclusive_group(required=True)
    backend.add_argument("--assistant", metavar="ID", help="the assistant of a langchain application")
    backend.add_argument("--config", metavar="FILE.json", help="the whole configuration, or - for standard input")
    create.add_argument("--human-input", action="store_true", help="the agent may ask for approval (with --assistant)")
    create.add_argument("--token-file", metavar="FILE|-", help=_TOKEN_FILE_HELP)
    _audience(create)
    _leaf(commands, "list", "apps:list_all", "list all applications")
    _leaf(commands, "show", "apps:show", "show an application").add_argument("name", metavar="NAME", help=_NAME_HELP)
    change = _leaf(commands, "set", "apps:change", "change an application; another endpoint or assistant ends its bindings for good")
    change.add_argument("name", metavar="NAME", help=_NAME_HELP)
    change.add_argument("--rename", metavar="NEW", help=_RENAME_HELP)
    change.add_argument("--provider", metavar="NAME", help="another provider hosts it")
    wanted = change.add_mutually_exclusive_group()
    wanted.add_argument("--assistant", metavar="ID", help="another assistant of the service")
    wanted.add_argument("--config", metavar="FILE.json", help="the whole configuration, or - for standard input")
    _audience(change)
    change.add_argument("--no-owner", action="store_true", help="it has no owner any more")
    disable = _leaf(commands, "disable", "apps:disable", "stop new use at once; what runs goes on")
    disable.add_argument("name", metavar="NAME", help=_NAME_HELP)
    disable.add_argument("--wait", action="store_true", help="return when no run is active or unsaved any more")
    enable = _leaf(commands, "enable", "apps:enable", "allow use again")
    enable.add_argument("name", metavar="NAME", help=_NAME_HELP)
    set_token = _leaf(commands, "set-token", "apps:set_token", "replace the service token once the service takes the new one")
    set_token.add_argument("name", metavar="NAME", help=_NAME_HELP)
    set_token.add_argument("--token-file", required=True, metavar="FILE|-", help=_TOKEN_FILE_HELP)
    for leaf in (create, change, disable, enable, set_token):
        _actor(leaf)


def _audience(leaf: argparse.ArgumentParser) -> None:
    leaf.add_argument("--description", metavar="TEXT", help="what users read about it")
    leaf.add_argument("--visibility", choices=["public", "group", "private"], help="who sees it (public)")
    leaf.add_argument("--group", action="append", metavar="G", help="who sees it with --visibility group; may be repeated")
    leaf.add_argument("--owner", metavar="SUBJECT", help="who sees it with --visibility private")
    leaf.add_argument("--user", action="append", metavar="SUBJECT", help="who else sees it with --visibility private; may be repeated")


def _accounts(commands: "Commands") -> None:
    create = _leaf(commands, "create", "accounts:create", "make an active account")
    change = _leaf(commands, "set", "accounts:change", "replace an account's own groups or roles")
    for leaf in (create, change):
        leaf.add_argument("subject", metavar="SUBJECT", help=_SUBJECT_HELP)
        leaf.add_argument("--group", action="append", metavar="G", help="a group; may be repeated")
        leaf.add_argument("--role", action="append", choices=["operator"], help="a role; may be repeated")
        _actor(leaf)
    change.add_argument("--no-groups", action="store_true", help="take all groups away")
    change.add_argument("--no-roles", action="store_true", help="take all roles away")
    _leaf(commands, "list", "accounts:list_all", "list all accounts")
    for name, help_text in (("suspend", "refuse the account from its next request on"), ("activate", "end a suspension")):
        leaf = _leaf(commands, name, f"accounts:{name}", help_text)
        leaf.add_argument("subject", metavar="SUBJECT", help=_SUBJECT_HELP)
        _actor(leaf)


def _quotas(commands: "Commands") -> None:
    change = _leaf(commands, "set", "quotas:change", "set the limit of a rule; prints its id")
    change.add_argument("--scope", required=True, choices=["user", "group", "app"], help="whose tasks count together")
    change.add_argument("--limit", required=True, type=_positive, metavar="N", help="tasks in a window")
    change.add_argument(
        "--window", required=True, metavar="W", help="hour, day or month of the calendar in GATEWAY_QUOTA_ZONE; or sliding: 1h, 1d, 30d, …"
    )
    change.add_argument("--app", metavar="NAME", help="only tasks of this application; needed with --scope app")
    change.add_argument("--group", metavar="G", help="only tasks of this group's members; needed with --scope group")
    _leaf(commands, "list", "quotas:list_all", "list the rules in force")
    heaviest = _leaf(commands, "heaviest", "quotas:heaviest", "list who sent the most tasks, and what got them")
    heaviest.add_argument("--window", default="1d", metavar="W", help="how far back: hours or days, as 1h or 30d (1d)")
    heaviest.add_argument("--limit", type=_positive, default=20, metavar="N", help="how many of each (20)")
    remove = _leaf(commands, "remove", "quotas:remove", "end a rule")
    remove.add_argument("rule", metavar="RULE", help="the rule's id")
    for leaf in (change, remove):
        _actor(leaf)


def _keys(commands: "Commands") -> None:
    rekey = _leaf(commands, "rekey", "keys:rekey", "re-encrypt every token under the newest key; replicas go on serving")
    rekey.add_argument("--dry-run", action="store_true", help="change nothing; say what would be done, and which tokens do not open")
    _actor(rekey)


def _moderation(commands: "Commands") -> None:
    change = _leaf(commands, "set", "moderation:change", "set who is asked, in this order; counts from the next message on")
    change.add_argument(
        "moderator",
        metavar="MODERATOR",
        nargs="+",
        help="local, openai:URL or webhook:URL; or none for nobody, or default to take the chain away",
    )
    change.add_argument("--app", metavar="NAME", help="for this application only; without it for all that have no chain of their own")
    change.add_argument(
        "--token-file",
        action="append",
        metavar="FILE|-",
        help="file with a service's token, or - for standard input; once for each service, in their order, or not at all: what was"
        " there before keeps its token",
    )
    _actor(change)
    _leaf(commands, "show", "moderation:show", "show the chains in force")


def _runs(commands: "Commands") -> None:
    found = _leaf(commands, "list", "runs:list_all", "list runs, by default the newest to need somebody first")
    found.add_argument(
        "--state", choices=[one.value for one in RunFilter], default=RunFilter.UNRESOLVED.value, help="which runs (unresolved)"
    )
    found.add_argument("--oldest-first", action="store_true", help="those first that have needed somebody for longest")
    found.add_argument("--app", metavar="NAME", help="only runs of this application")
    found.add_argument("--limit", type=_positive, default=200, metavar="N", help="how many (200)")
    show = _leaf(commands, "show", "runs:show", "show a run, what it blocks, which acts its state allows, and its evidence")
    show.add_argument("--text", action="store_true", help="also what was written and answered; that you read it is recorded")
    lookup = _leaf(commands, "lookup", "runs:look_up", "ask the service for the run's state now, once more than the budget")
    retry_save = _leaf(commands, "retry-save", "runs:retry_save", "save a pending run now, from its stored bytes")
    resolve = _leaf(commands, "resolve", "runs:resolve", "record what became of a run, once and for good")
    for leaf in (show, lookup, retry_save, resolve):
        leaf.add_argument("run", metavar="RUN", help="the run's id")
        _actor(leaf)
    resolve.add_argument("--outcome", required=True, choices=[one.value for one in ResolutionOutcome], help="what became of it")
    resolve.add_argument("--reason", required=True, metavar="TEXT", help="why; the run's owner reads it too")


def _reason(text: str) -> str:
    if not (len(text.strip()) > 0 and len(text) <= 1000 and is_storable(text)):
        raise argparse.ArgumentTypeError("write 1 to 1000 characters")
    return text.strip()


def _admission(commands: "Commands") -> None:
    close = _leaf(commands, "close", "admission:close", "admit nothing new on any replica; running streams and reads go on")
    again = _leaf(commands, "open", "admission:reopen", "admit again")
    for leaf in (close, again):
        leaf.add_argument("--reason", required=True, metavar="TEXT", type=_reason, help="why, for the audit trail")
        _actor(leaf)
    _leaf(commands, "show", "admission:show", "whether it is closed, by whom and why")


def _audit(commands: "Commands") -> None:
    found = _leaf(commands, "list", "audit:list_all", "list entries, newest first")
    found.add_argument("--limit", type=_positive, default=200, metavar="N", help="how many (200)")
    _leaf(commands, "verify", "audit:verify", "recompute the whole chain of hashes; fails at the first entry that was changed")


def _actor(leaf: argparse.ArgumentParser) -> None:
    leaf.add_argument("--as", dest="acting_as", metavar="SUBJECT", help="who you are, for the audit trail (your system's user name)")


def _chat(commands: "Commands") -> None:
    leaf = _leaf(commands, "chat", "chat:chat", "talk to an application through the public API")
    leaf.add_argument("app", metavar="APP", help="name or id of the application")
    leaf.add_argument("text", metavar="TEXT", nargs="?", help="one message; without it, each line of standard input is one")
    leaf.add_argument("--url", metavar="URL", help="where the gateway is (GATEWAY_URL, else http://127.0.0.1:8080)")
    leaf.add_argument("--token-file", metavar="FILE|-", help="file with your bearer token (else GATEWAY_TOKEN)")
    leaf.add_argument("--conversation", metavar="ID", help="go on with this conversation")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number
