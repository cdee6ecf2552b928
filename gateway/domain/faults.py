"""The one way in which a configuration is refused: the field and a fixed sentence. Never the value: it may hold a secret."""

from gateway.domain.problems import Code, Refused


def invalid(field: str, rule: str) -> Refused:
    """The refusal `configuration_invalid`, to be raised. `rule` is a fixed sentence on what `field` must be."""
    return Refused(Code.CONFIGURATION_INVALID, extra={"field": field, "rule": rule})
