"""Writes the pages under docs/ that are made from code; with --check it writes nothing and fails when one is not as it would be written.

Pages: those of PAGES. Their words come from the code. docs/api.md is `api_page`.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gateway.cli.parser import build_parser  # noqa: E402 - the checkout's own, whatever is installed
from gateway.domain.confirmation import (  # noqa: E402
    EXPIRES_AT_PATTERN,
    MAX_COMMENT_CHARACTERS,
    MAX_PROMPT_DESCRIPTION_CHARACTERS,
    MAX_PROMPT_TITLE_CHARACTERS,
    PROMPT_TYPE,
    PROMPT_VERSION,
    Action,
)
from gateway.domain.evidence import EVIDENCE_DOCS, EvidenceKind  # noqa: E402
from gateway.domain.problems import PROBLEMS  # noqa: E402
from gateway.domain.reasons import REASON_MESSAGES, REASON_NOTES, Reason  # noqa: E402
from gateway.domain.states import (  # noqa: E402
    ALLOWED,
    ALLOWED_PERSISTENCE,
    EXECUTION_DOCS,
    OVER,
    PERSISTENCE_DOCS,
    SLOT_HOLDING,
    Execution,
    Persistence,
)
from gateway.probe.clauses import BRIDGE, NATIVE, WORDINGS, Clause, Wording  # noqa: E402
from gateway.settings import CLIENT_NAMES, SECRETS_DIR, Group, setting_docs  # noqa: E402
from gateway.sse_parser.events import IgnoredClass  # noqa: E402
from gateway.sse_parser.faults import FAULTS, Detail  # noqa: E402
from gateway.sse_parser.treatment import CUSTOM_NOTES, OUTCOME_NOTES, OUTCOMES, TREATMENTS, Row, Treatment  # noqa: E402
from gateway.web.pages import load_pages  # noqa: E402
from gateway.web.routes import DEMO_ROUTES, PUBLIC_ROUTES, page_routes  # noqa: E402
from tools.api_page import api_lines  # noqa: E402
from tools.telemetry_pages import logs_lines, metrics_lines  # noqa: E402

_State = TypeVar("_State", Execution, Persistence)

NOTICE: Final = "<!-- Made by tools/generate_docs.py from the code; `make docs` writes it anew. -->"


def settings_page() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "From the environment. Seconds may be fractions. An empty value counts as unset. All mistakes are reported together and stop the",
        "start; a name that begins like ours and is not here is one of them. No report shows a value.",
        "",
        f"Any setting may also be a file of its name in the directory `{SECRETS_DIR}`; the environment wins. A secret may be given as a",
        "file by its name with `_FILE`, which then holds the path.",
    ]
    for group in Group:
        rows = [(f"`{doc.name}`", doc.meaning, doc.default) for doc in setting_docs() if doc.group is group]
        lines += ["", f"## {group.value}", "", *_table(("setting", "meaning", "default"), rows)]
    secrets = [f"`{doc.name}_FILE`" for doc in setting_docs() if doc.secret]
    lines += ["", "## Files with secrets", "", f"{', '.join(secrets)}; and `{SECRETS_DIR}`, a directory of such files."]
    clients = [(f"`{name}`", meaning) for name, meaning in CLIENT_NAMES.items()]
    lines += ["", "## Of clients, not of servers", "", *_table(("variable", "meaning"), clients)]
    return _page(lines)


def problems_page() -> str:
    """docs/problems.md."""
    rows = [
        (str(problem.status), f"`{code.value}`", problem.title, problem.detail, f"`{problem.retry.value}`")
        for code, problem in sorted(PROBLEMS.items(), key=lambda entry: entry[1].status)
    ]
    intro = "Every refusal is `application/problem+json` with one of these codes. `detail` is fixed, never another program's text."
    return _page(["# Problems", "", intro, "", *_table(("status", "code", "title", "detail", "retry"), rows)])


def reasons_page() -> str:
    """docs/reasons.md."""
    rows = [(f"`{reason.value}`", REASON_MESSAGES[reason], REASON_NOTES[reason]) for reason in Reason]
    intro = "One closed list for `Run.reason`, `Conversation.blocked` and the `code` of RUN_ERROR."
    return _page(["# Reasons", "", intro, "", *_table(("code", "what people are told", "for operators"), rows)])


def states_page() -> str:
    """docs/states.md."""
    execution_rows = [
        (f"`{state.value}`", "held" if state in SLOT_HOLDING else "free", EXECUTION_DOCS[state], _names(ALLOWED[state], Execution))
        for state in Execution
    ]
    persistence_rows = [
        (f"`{state.value}`", PERSISTENCE_DOCS[state], _names(ALLOWED_PERSISTENCE[state], Persistence)) for state in Persistence
    ]
    over = _names(OVER, Execution)
    return _page(
        [
            "# States of a run",
            "",
            "Two columns, a table of transitions each: what is known about the one POST, and about saving. SQL repeats the guards.",
            "",
            "## Execution",
            "",
            *_table(("state", "slot", "meaning", "may become"), execution_rows),
            "",
            f"Over, and never to change again: {over}. A decision on a `waiting` run does not change its state.",
            "",
            *_diagram(ALLOWED),
            "",
            "## Persistence",
            "",
            *_table(("state", "meaning", "may become"), persistence_rows),
            "",
            *_diagram(ALLOWED_PERSISTENCE),
            "",
            "## Evidence",
            "",
            "What is recorded about a run, oldest first, as operators see it. No text of the service is ever in it.",
            "",
            *_table(("kind", "meaning"), [(f"`{kind.value}`", EVIDENCE_DOCS[kind]) for kind in EvidenceKind]),
        ]
    )


_TREATMENT_WORDS: Final[Mapping[Treatment, str]] = {
    Treatment.VALIDATED: "validated",
    Treatment.EXPANDED: "expanded",
    Treatment.BY_NAME: "by its name",
    Treatment.IGNORED: "ignored",
}


def events_page() -> str:
    """docs/events.md."""
    events = [(f"`{name}`", _treatment(row), row.note) for name, row in TREATMENTS.items()]
    events.append(("any other type", f"ignored (`{IgnoredClass.UNKNOWN.value}`)", "Types that are newer than this build break no stream."))
    words = {outcome: word for word, outcome in OUTCOMES.items()}
    outcomes = [(f"`{words[outcome]}`" if outcome in words else "any other", note) for outcome, note in OUTCOME_NOTES.items()]
    customs = [(f"`{name}`", note) for name, note in CUSTOM_NOTES.items()]
    faults = [(f"`{reason.value}`", f"`{detail.value}`", note + _bound_setting(detail)) for detail, (reason, note) in FAULTS.items()]
    lines = [
        "# Events of an agent service",
        "",
        "What the gateway does with each event type of AG-UI in a service's stream. What a service must send is in",
        "[upstream-contract.md](upstream-contract.md).",
        "",
        "- *Validated*: required fields must be there and of their type; null on an optional one is absence; others are passed over.",
        "- *Expanded*: as the protocol defines chunks, then as if the long forms had come.",
        "- *Ignored*: skipped, and counted in the evidence of the run under the name in brackets. It counts for the bounds like any other.",
        "- *Kept*: its text is kept, so its frame has a bound of its own.",
        "",
        *_table(("event", "treatment", "note"), events),
        "",
        "## Names of CUSTOM",
        "",
        *_table(("name", "note"), customs),
        "",
        "## Outcomes of RUN_FINISHED",
        "",
        *_table(("outcome", "note"), outcomes),
        "",
        "## Faults",
        "",
        "Only what contradicts the run ends it as unknown. The evidence names the fault by its detail; it never quotes the service.",
        "Silence and length have reasons of their own, `idle_timeout` and `total_timeout`.",
        "",
        *_table(("reason", "detail", "meaning"), faults),
    ]
    return _page(lines)


def probe_clauses_page() -> str:
    """docs/probe-clauses.md."""
    rows = [
        (f"`{clause.value}`", wording.rule + _mark(clause, wording), wording.keeps, wording.expected, wording.remedy)
        for clause, wording in WORDINGS.items()
    ]
    intro = [
        "What `gateway probe` asks of an agent service ([probe.md](probe.md)), in this order. The numbers are those of",
        "[rules.md](rules.md); *advice* never makes a verdict; *bridge* and *native* are asked in that profile only.",
    ]
    return _page(["# Clauses of a probe", "", *intro, "", *_table(("clause", "rule", "what is kept", "expected", "what to do"), rows)])


def _mark(clause: Clause, wording: Wording) -> str:
    marks = [name for name, others in (("bridge", NATIVE), ("native", BRIDGE)) if clause not in others]
    marks += ["advice"] if wording.advice else []
    return f" ({', '.join(marks)})" if marks else ""


def _bound_setting(detail: Detail) -> str:
    name = f"GATEWAY_MAX_{detail.value.upper()}"
    return f" `{name}`" if any(doc.name == name for doc in setting_docs()) else ""


def _treatment(row: Row) -> str:
    words = _TREATMENT_WORDS[row.treatment]
    if row.ignored_class is not None:
        words += f" (`{row.ignored_class.value}`)"
    return words + (", kept" if row.kept else "")


def cli_page() -> str:
    """docs/cli.md: from the parser's own actions, because the text of --help differs between versions of Python."""
    parser = build_parser(demo=importlib.util.find_spec("gateway.cli.demo") is not None)
    lines = ["# Command line", "", f"{parser.description} {parser.epilog} `--json` everywhere gives machine-readable output."]
    for words, leaf in _leaves(parser, ()):
        lines += ["", f"## `{' '.join(words)}`", "", f"{leaf.description}"]
        rows = [(_form(action), action.help or "") for action in _arguments(leaf)]
        if rows:
            lines += ["", *_table(("argument", "meaning"), rows)]
    return _page(lines)


def approval_schemas_page() -> str:
    """docs/approval-schemas.md."""
    actions = [action.value for action in Action]
    comment = {"type": "string", "maxLength": MAX_COMMENT_CHARACTERS}
    prompt: dict[str, object] = {
        "type": {"const": PROMPT_TYPE},
        "version": {"const": PROMPT_VERSION},
        "title": {"type": "string", "minLength": 1, "maxLength": MAX_PROMPT_TITLE_CHARACTERS},
        "description": {"type": "string", "maxLength": MAX_PROMPT_DESCRIPTION_CHARACTERS},
        "actions": {"type": "array", "items": {"enum": actions}, "minItems": len(actions), "maxItems": len(actions), "uniqueItems": True},
        "expires_at": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": EXPIRES_AT_PATTERN}]},
        "comment_max_chars": {"type": "integer", "minimum": 0, "maximum": MAX_COMMENT_CHARACTERS},
    }
    answer: dict[str, object] = {"action": {"enum": actions}, "comment": comment}
    return _page(
        [
            "# Approval: the question and the answer",
            "",
            "What an agent gives to `interrupt()`, and what it returns, as JSON Schema (2020-12). There is no other form: a value that",
            "does not fit makes the run `failed` with `interrupt_unsupported`, and its conversation takes no further task.",
            "",
            "## The question",
            "",
            *_schema(prompt, required=[key for key in prompt if key != "comment_max_chars"]),
            "",
            "Beyond the schema: title and description are plain text, without control characters (line ends and tabs only in the",
            "description), halves of surrogate pairs and characters that turn the direction of text; the title is not blank;",
            "`expires_at` is a real moment.",
            f"Without `comment_max_chars` a comment has at most {MAX_COMMENT_CHARACTERS} characters; with 0 there is none.",
            "",
            "## The answer",
            "",
            *_schema(answer, required=["action"]),
        ]
    )


def _schema(properties: Mapping[str, object], *, required: Sequence[str]) -> list[str]:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return ["```json", *json.dumps(schema, indent=2).splitlines(), "```"]


def api_page() -> str:
    """docs/api.md."""
    return _page(api_lines((*PUBLIC_ROUTES, *page_routes(load_pages()), *DEMO_ROUTES)))


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "api": api_page,
    "settings": settings_page,
    "problems": problems_page,
    "reasons": reasons_page,
    "states": states_page,
    "events": events_page,
    "probe-clauses": probe_clauses_page,
    "cli": cli_page,
    "approval-schemas": approval_schemas_page,
    "metrics": lambda: _page(metrics_lines()),
    "logs": lambda: _page(logs_lines(ROOT)),
}


def stale_pages(folder: Path) -> list[str]:
    """The names of pages that are not as they would be written."""
    return [name for name, page in PAGES.items() if _read(folder / f"{name}.md") != page()]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or with --check compare them; exit status 1 when one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    folder = ROOT / "docs"
    stale = stale_pages(folder)
    if args.check:
        for name in stale:
            print(f"docs/{name}.md is not as the code has it: make docs", file=sys.stderr)
        return 1 if stale else 0
    folder.mkdir(exist_ok=True)
    for name in stale:
        (folder / f"{name}.md").write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote docs/{name}.md")
    return 0


def _page(lines: Iterable[str]) -> str:
    return "\n".join([NOTICE, *lines, ""])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {row} |" for row in body)]


def _names(states: frozenset[_State], order: Iterable[_State]) -> str:
    return ", ".join(f"`{state.value}`" for state in order if state in states) or "-"


def _diagram(allowed: Mapping[_State, frozenset[_State]]) -> list[str]:
    lines: list[str] = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(allowed)).value}"]
    for source in allowed:
        lines += [f"    {source.value} --> {target.value}" for target in allowed if target in allowed[source]]
    lines += [f"    {state.value} --> [*]" for state in allowed if not allowed[state]]
    return [*lines, "```"]


def _leaves(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    words = words or (parser.prog,)
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield words, parser
    for name, child in groups[0].choices.items() if groups else ():
        yield from _leaves(child, (*words, name))


def _arguments(leaf: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in leaf._actions if action.dest not in ("help", "json")]


def _form(action: argparse.Action) -> str:
    shown = (
        action.metavar if isinstance(action.metavar, str) else "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return f"`[{shown}]`" if action.nargs == "?" else f"`{shown}`"
    form = action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {shown}"
    return f"`{form}`" if action.required else f"`[{form}]`"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
