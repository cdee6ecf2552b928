"""`gateway probe`: can this service stand behind a gateway? A line for each clause as it is asked, then the verdict."""

from argparse import Namespace
from typing import Final
from urllib.parse import urlsplit

from gateway.bindings.urls import normalise_base_url
from gateway.bindings.vault import validate_token
from gateway.cli.output import CommandFailed, Output, WrongUsage
from gateway.cli.session import quiet_logs, read_token, settings_of
from gateway.domain.addresses import canonical_host, canonical_hosts
from gateway.domain.limits import MAX_TEXT_CHARACTERS
from gateway.domain.problems import Refused
from gateway.http_client import HttpClient
from gateway.probe import bridge, native
from gateway.probe.clauses import WORDINGS
from gateway.probe.findings import Finding, Report, Result
from gateway.probe.watched import Target
from gateway.settings import Settings
from gateway.upstream.endpoint import Endpoint, endpoint_of
from gateway.upstream.run_input import text_fits_upstream

_GREETING: Final = "Hello! Please answer with one short sentence."
_LOCAL: Final = canonical_hosts(("localhost", "127.0.0.1", "::1"))
_WIDTH: Final = max(len(result.value) for result in Result)


async def probe(args: Namespace, output: Output) -> int:
    """Exit status 0: kept, as far as a probe sees; 1: broken; 2: nothing was asked."""
    settings = settings_of(output)
    trusted = canonical_hosts(settings.trusted_upstream_hosts) | _LOCAL
    endpoint = _endpoint(args, trusted)
    text = _GREETING if args.text is None else args.text
    if not text.strip() or len(text) > MAX_TEXT_CHARACTERS or not text_fits_upstream(text):
        raise WrongUsage("That is no message that a gateway would send.", f"Give --text 1 to {MAX_TEXT_CHARACTERS} characters.")
    most = 1 if args.once else native.MOST_RUNS if args.human_input else bridge.MOST_RUNS
    _announce(output, settings, endpoint, most)
    async with HttpClient(connect_seconds=settings.connect_seconds, trusted_hosts=trusted) as client:
        target = Target(client, endpoint, settings.bounds, text)
        ask = native.probe_native if args.human_input else bridge.probe_bridge
        with quiet_logs():
            report = await ask(target, once=args.once, tell=lambda finding: output.line(_told(finding)))
    return _verdict(report, output)


def _endpoint(args: Namespace, trusted: frozenset[str]) -> Endpoint:
    try:
        base_url = normalise_base_url(args.url, trusted)
        token = validate_token(read_token(args.token_file))
    except Refused as refused:
        where = "The URL" if refused.extra.get("field") == "base_url" else "The token"
        raise WrongUsage(f"{where} cannot be used (A1). {refused.extra.get('rule', '')}", "Correct it; nothing was asked.") from None
    endpoint = endpoint_of(base_url=base_url, assistant_id=args.assistant, token=token)
    if not isinstance(endpoint, Endpoint):
        raise WrongUsage(f"The service cannot be called: {endpoint.value}.", "Correct it; nothing was asked.")
    return endpoint


def _announce(output: Output, settings: Settings, endpoint: Endpoint, most: int) -> None:
    runs = "once, with a short message" if most == 1 else f"up to {most} times, for short messages"
    output.progress(f"Asking {endpoint.base_url}. The agent is run {runs}.")
    host = canonical_host(urlsplit(endpoint.base_url).hostname or "")
    if host in _LOCAL - canonical_hosts(settings.trusted_upstream_hosts):
        output.progress(f"A gateway takes this address only where GATEWAY_TRUSTED_UPSTREAM_HOSTS names {host}.")


def _told(finding: Finding) -> str:
    wording = WORDINGS[finding.clause]
    mark = finding.result.value.upper() if finding.result is Result.BROKEN else finding.result.value
    lines = [f"{mark.ljust(_WIDTH)}  {wording.rule:<3} {wording.keeps}"]
    if finding.seen is not None:
        indent = " " * (_WIDTH + 6)
        lines += [f"{indent}{name} {text}" for name, text in _explained(finding)]
    return "\n".join(lines)


def _explained(finding: Finding) -> tuple[tuple[str, str], ...]:
    wording = WORDINGS[finding.clause]
    return ("expected:", wording.expected), ("seen:", finding.seen or ""), ("do:", wording.remedy)


def _verdict(report: Report, output: Output) -> int:
    first = report.first_broken
    skipped = report.of(Result.SKIPPED)
    if skipped:
        output.line(f"{Result.SKIPPED.value.ljust(_WIDTH)}  {', '.join(finding.clause.value for finding in skipped)}")
    kept, advice = len(report.of(Result.OK)), len(report.of(Result.ADVICE))
    counts = f"{kept} clauses kept, {len(report.of(Result.BROKEN))} broken, {advice} with advice, {len(skipped)} not seen; "
    counts += f"the agent {_ran(report.agent_runs)}."
    output.line("")
    output.result(_record(report), f"{'The contract is kept' if first is None else 'The contract is broken'}: {counts}")
    if first is None:
        return 0
    wording = WORDINGS[first.clause]
    raise CommandFailed(
        f"The first clause that is broken is {wording.rule}: {wording.keeps}.",
        wording.remedy,
        code="contract_broken",
        details={"rule": wording.rule, "clause": first.clause.value, "seen": first.seen},
    )


def _ran(times: int) -> str:
    return {0: "did not run", 1: "ran once"}.get(times, f"ran {times} times")


def _record(report: Report) -> dict[str, object]:
    first = report.first_broken
    return {
        "verdict": "kept" if first is None else "broken",
        "first_broken": None if first is None else {"rule": WORDINGS[first.clause].rule, "clause": first.clause.value},
        "agent_runs": report.agent_runs,
        "clauses": [_clause_record(finding) for finding in report.findings],
    }


def _clause_record(finding: Finding) -> dict[str, object]:
    wording = WORDINGS[finding.clause]
    told: dict[str, object] = {"clause": finding.clause.value, "rule": wording.rule, "result": finding.result.value, "keeps": wording.keeps}
    if finding.seen is not None:
        told |= {name.rstrip(":"): text for name, text in _explained(finding)}
    return told
