"""Settings of the service: environment variables, secrets also as files. Not here: what they configure.

`docs/agent-service.md` lists them; a test compares the two.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "AGENT_SERVICE_"


class ModelKind(StrEnum):
    """Which chat model the built-in agent uses."""

    SCRIPTED = "scripted"
    OPENAI = "openai"


class SettingsError(Exception):
    """Everything that is wrong with the settings, at once. Never holds a value that was given."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def _from_file(secret: SecretStr | None, file: object) -> SecretStr | None:
    """The secret, given directly or as a file; ValueError (without the secret) when given both ways or unreadable."""
    if not isinstance(file, Path):
        return secret
    if secret is not None:
        raise ValueError("is given twice, as a value and as a file")
    try:
        return SecretStr(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"its file cannot be read: {type(error).__name__}") from None


class Settings(BaseSettings):
    """The settings. A `_file` field stands before its secret, because validation goes in this order."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    token_file: Path | None = Field(None, description="file with the token")
    token: SecretStr | None = Field(None, validate_default=True, description="bearer token that every caller must send; required")
    database: Path = Field(description="SQLite file of threads, runs and checkpoints; made when missing, one process at a time; required")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8090, description="port to listen on; 0 takes a free one")
    assistant: Annotated[str, Field(pattern=r"^[!-~]{1,200}$")] = Field("agent", description="assistant id told by GET /capabilities")
    agent: str | None = Field(None, description="MODULE:GRAPH of your own agent; unset: the built-in one")
    model: ModelKind = Field(ModelKind.SCRIPTED, description="model of the built-in agent: `scripted` or `openai`")
    openai_base_url: str | None = Field(None, description="base URL of any OpenAI-compatible endpoint; unset: OpenAI's own")
    openai_model: str | None = Field(None, validate_default=True, description="name of the model there; required with `openai`")
    openai_api_key_file: Path | None = Field(None, description="file with the API key")
    openai_api_key: SecretStr | None = Field(
        None, validate_default=True, description="API key for it; required with `openai` unless a base URL is given"
    )
    pace_seconds: Annotated[float, Field(ge=0, le=60)] = Field(0.03, description="pause before each piece the scripted model says")
    shutdown_seconds: Annotated[int, Field(ge=0)] = Field(10, description="how long running runs may go on after SIGTERM")

    @field_validator("token")
    @classmethod
    def _token(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr:
        token = _from_file(value, info.data.get("token_file"))
        if token is None:
            raise ValueError("is required")
        # What an Authorization header can carry; anything else would be refused at every call.
        if not token.get_secret_value().isascii() or not token.get_secret_value().isprintable() or " " in token.get_secret_value():
            raise ValueError("must be visible ASCII characters")
        if not token.get_secret_value():
            raise ValueError("is empty")
        return token

    @field_validator("openai_model")
    @classmethod
    def _openai_model(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("model") is ModelKind.OPENAI:
            raise ValueError("is required with the model `openai`")
        return value

    @field_validator("openai_api_key")
    @classmethod
    def _openai_api_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        key = _from_file(value, info.data.get("openai_api_key_file"))
        if key is None and info.data.get("model") is ModelKind.OPENAI and info.data.get("openai_base_url") is None:
            raise ValueError("is required with the model `openai` and no base URL of your own")
        return key


def read_settings(given: Mapping[str, object]) -> Settings:
    """Settings from the environment; `given`, by field name, wins (the command line). Raises SettingsError with every fault."""
    values: dict[str, Any] = dict(given)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError(tuple(_fault(detail["loc"], detail["type"], detail["msg"]) for detail in error.errors())) from None


def _fault(location: tuple[int | str, ...], kind: str, text: str) -> str:
    name = PREFIX + "_".join(str(part) for part in location).upper()
    return f"{name} {'is required' if kind == 'missing' else text.removeprefix('Value error, ')}"
