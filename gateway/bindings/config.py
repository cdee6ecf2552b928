"""The non-secret configuration of an application as operators write it (contract A2, A3): a closed document, read strictly."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from gateway.domain.faults import invalid
from gateway.domain.strict_json import Json
from gateway.domain.text import is_storable

MAX_NAME_CHARACTERS: Final = 100
MAX_TAGS: Final = 50
DIFY_SUBTYPE: Final = "dify_apptype"
"""Where a web app keeps the kind of a Dify application, inside app_metadata."""

# Goes into URLs and JSON of the upstream, and into its answers for comparison.
_ASSISTANT_ID: Final = re.compile(r"[\x21-\x7e]{1,200}")


class BackendType(StrEnum):
    """Which kind of backend generates. DIFY is listed here and served elsewhere."""

    DIFY = "dify"
    LANGCHAIN = "langchain"


@dataclass(frozen=True, slots=True)
class ApplicationConfig:
    """A checked configuration. `assistant_id` is there exactly for langchain; `human_input` is false for dify."""

    backend_type: BackendType
    assistant_id: str | None
    human_input: bool = False
    app_type: str = "marketplace"
    is_marketplace_app: bool = True
    tags: tuple[str, ...] = ()


@with_config(extra="forbid")
class LangchainJson(TypedDict):
    """The assistant, and whether it may ask a person for approval."""

    assistant_id: str
    human_input: NotRequired[bool]


@with_config(extra="forbid")
class MetadataJson(TypedDict, total=False):
    """Where a web app lists the application. The kind of a Dify application is taken and not kept."""

    app_type: str
    is_marketplace_app: bool
    tags: list[str]
    dify_apptype: object


@with_config(extra="forbid")
class ConfigJson(TypedDict, total=False):
    """The configuration of an application. Without `backend_type` it is a Dify application, which is listed and served elsewhere."""

    backend_type: BackendType
    langchain: LangchainJson
    app_metadata: MetadataJson


def langchain_config(assistant_id: str, *, human_input: bool = False) -> ApplicationConfig:
    """The configuration that `apps create --assistant` means. Raises Refused(CONFIGURATION_INVALID)."""
    return parse_config({"backend_type": "langchain", "langchain": {"assistant_id": assistant_id, "human_input": human_input}})


def parse_config(document: Json) -> ApplicationConfig:
    """Check a decoded document. Raises Refused(CONFIGURATION_INVALID) with the field's path and the rule it breaks."""
    top = _object(document, "config", {"backend_type", "langchain", "app_metadata"})
    backend_type = _backend_type(top.get("backend_type", BackendType.DIFY.value))
    metadata = _object(top.get("app_metadata", {}), "app_metadata", {"app_type", "is_marketplace_app", "tags", DIFY_SUBTYPE})
    if backend_type is BackendType.LANGCHAIN and DIFY_SUBTYPE in metadata:
        raise invalid(f"app_metadata.{DIFY_SUBTYPE}", "A langchain application has no Dify subtype.")
    if backend_type is BackendType.DIFY and "langchain" in top:
        raise invalid("langchain", 'It belongs to backend_type "langchain"; a missing backend_type means "dify".')
    assistant_id, human_input = _langchain(top.get("langchain")) if backend_type is BackendType.LANGCHAIN else (None, False)
    defaults = ApplicationConfig(backend_type, assistant_id, human_input)
    return ApplicationConfig(
        backend_type=backend_type,
        assistant_id=assistant_id,
        human_input=human_input,
        app_type=_name(metadata.get("app_type", defaults.app_type), "app_metadata.app_type"),
        is_marketplace_app=_boolean(metadata.get("is_marketplace_app", defaults.is_marketplace_app), "app_metadata.is_marketplace_app"),
        tags=_tags(metadata.get("tags", list(defaults.tags))),
    )


def config_document(config: ApplicationConfig) -> ConfigJson:
    """The document that `parse_config` reads as `config`."""
    metadata: MetadataJson = {"app_type": config.app_type, "is_marketplace_app": config.is_marketplace_app, "tags": list(config.tags)}
    if config.backend_type is BackendType.DIFY or config.assistant_id is None:
        return {"backend_type": config.backend_type, "app_metadata": metadata}
    langchain: LangchainJson = {"assistant_id": config.assistant_id, "human_input": config.human_input}
    return {"backend_type": config.backend_type, "langchain": langchain, "app_metadata": metadata}


def checked_assistant_id(value: Json) -> str:
    """The id of an assistant. Raises Refused(CONFIGURATION_INVALID)."""
    if not isinstance(value, str) or not _ASSISTANT_ID.fullmatch(value):
        raise invalid("langchain.assistant_id", "It has 1 to 200 visible ASCII characters.")
    return value


def _backend_type(value: Json) -> BackendType:
    if value not in [known.value for known in BackendType]:
        raise invalid("backend_type", f"It is one of {', '.join(known.value for known in BackendType)}.")
    return BackendType(str(value))


def _langchain(value: Json) -> tuple[str, bool]:
    if value is None:
        raise invalid("langchain", "A langchain application needs it, with an assistant_id.")
    section = _object(value, "langchain", {"assistant_id", "human_input"})
    return checked_assistant_id(section.get("assistant_id")), _boolean(section.get("human_input", False), "langchain.human_input")


def _object(value: Json, field: str, known: set[str]) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise invalid(field, "It is a JSON object.")
    if not known.issuperset(value):
        raise invalid(field, f"It has no other keys than {', '.join(sorted(known - {DIFY_SUBTYPE}))}.")
    return value


def _boolean(value: Json, field: str) -> bool:
    if not isinstance(value, bool):
        raise invalid(field, "It is true or false.")
    return value


def _name(value: Json, field: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_CHARACTERS or not is_storable(value):
        raise invalid(field, f"It has 1 to {MAX_NAME_CHARACTERS} characters.")
    return value


def _tags(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_TAGS:
        raise invalid("app_metadata.tags", f"It is a list of at most {MAX_TAGS} texts.")
    return tuple(_name(tag, "app_metadata.tags") for tag in value)
