"""Parts of a replica that its settings alone make, and the faults of settings that only making them finds."""

from collections.abc import Iterator, Sequence

from gateway import __version__
from gateway.admission.chains import NONE, NamedModerator, parse_moderators
from gateway.admission.local_rules import LocalRules, RuleInvalid, RulesTooLarge
from gateway.domain.problems import Refused
from gateway.settings import Fault, Settings, SettingsInvalid
from gateway.tracing import Traces, open_traces, traces_can_be_opened


def faults_of_parts(settings: Settings) -> Iterator[Fault]:
    """All of them, for `load_settings`; what is made is forgotten."""
    for make in (local_rules_of, named_moderators_of, _look_for_traces):
        try:
            make(settings)
        except SettingsInvalid as invalid:
            yield from invalid.faults


def local_rules_of(settings: Settings) -> LocalRules:
    """Raises SettingsInvalid."""
    rules: Sequence[str] = ()
    try:
        if settings.moderation_deny_file is not None:
            rules = settings.moderation_deny_file.read_text(encoding="utf-8").splitlines()
        return LocalRules(rules, secrets=settings.moderation_secrets == "refuse")
    except (OSError, UnicodeDecodeError) as error:
        says = f"the file cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8 text'})."
    except (RuleInvalid, RulesTooLarge) as invalid:
        says = f"{invalid}."
    raise SettingsInvalid([Fault("GATEWAY_MODERATION_DENY_FILE", says)])


def named_moderators_of(settings: Settings) -> Sequence[NamedModerator]:
    """Raises SettingsInvalid."""
    try:
        return parse_moderators(settings.moderation or (NONE,), settings.trusted_upstream_hosts)
    except Refused as refused:
        raise SettingsInvalid([Fault("GATEWAY_MODERATION", str(refused.extra["rule"]))]) from None


def traces_of(settings: Settings) -> Traces | None:
    """None where no collector is set. Raises SettingsInvalid."""
    _look_for_traces(settings)
    return None if settings.otlp_endpoint is None else open_traces(settings.otlp_endpoint, service_version=__version__)


def _look_for_traces(settings: Settings) -> None:
    if settings.otlp_endpoint is not None and not traces_can_be_opened():
        raise SettingsInvalid([Fault("GATEWAY_OTLP_ENDPOINT", "traces need the extra otel, which is not installed.")])
