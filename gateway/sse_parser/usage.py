"""The `usage` of a terminal event as numbers: what a run cost its service, summed over providers and models. Names of models are not kept.

It decides nothing, so nothing about it is a fault: what is not a count is left out.
"""

from collections.abc import Mapping
from typing import Final

from gateway.domain.strict_json import Json

COUNTS: Final[Mapping[str, str]] = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "reasoningTokens": "reasoning_tokens",
    "cachedInputTokens": "cached_input_tokens",
}
"""The protocol's names, and ours."""

_MAX_ENTRIES: Final = 64
_MAX_TOKENS: Final = 2**53
"""Beyond it JSON readers lose digits."""


def usage_of(raw: Json) -> Mapping[str, int]:
    """The sums of the counts in `raw`, each from 0 to 2^53, for those that are there; empty for what is no list of them."""
    totals: dict[str, int] = {}
    for entry in raw[:_MAX_ENTRIES] if isinstance(raw, list) else ():
        for wire_name, name in COUNTS.items():
            count = entry.get(wire_name) if isinstance(entry, dict) else None
            if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MAX_TOKENS:
                totals[name] = min(totals.get(name, 0) + count, _MAX_TOKENS)
    return totals
